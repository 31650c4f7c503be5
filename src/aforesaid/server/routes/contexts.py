"""Contexts for models, and summaries of messages outside the window."""

from typing import Any

import msgspec
from msgspec import Struct, structs

from aforesaid.agents.sent_requests import SentRequest, kept_request
from aforesaid.dialects import read
from aforesaid.memory.manager import ConversationManager
from aforesaid.notes.records import shown_again
from aforesaid.protocol import context_document
from aforesaid.protocol.bodies import (
    ContextBody,
    ContextQuery,
    Count,
    Dialect,
    FirstContextQuery,
    Name,
    PolicyBody,
    RequestBody,
    RequestModel,
    ResponseModel,
)
from aforesaid.server.endpoints import Call, NoBody, NoQuery, Reply, Routes
from aforesaid.server.responses import json_response
from aforesaid.summaries.service import Summary
from aforesaid.tokens import counter_named
from aforesaid.windows import WindowPolicy, write_request

routes = Routes("context")
summaries = Routes("summaries")


class ContextLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most common limits of a context."""

    agent_name: str | None = None
    max_messages: Count | None = None
    max_turns: Count | None = None
    max_tokens: Count | None = None
    dialect: Dialect | None = None


@routes.get("/conversations/{conversation_id}/context", response=ContextBody | RequestBody)
async def get_context(call: Call[NoBody, ContextLimits]) -> Reply:
    """Return the context for a model: by default exactly the most recent messages.

    With `dialect`, the messages form a valid request in the format of that provider, by default within the
    token budget of the settings. With `max_turns` or `max_tokens`, they also form a valid request. An unknown
    conversation has an empty context; the report says so.
    """
    query = call.query
    limits = {name: getattr(query, name) for name in ("max_messages", "max_turns", "max_tokens")}
    given = {name: value for name, value in limits.items() if value is not None}
    policy = WindowPolicy(**given) if given else None
    return await _context(call, query.dialect, agent_name=query.agent_name, policy=policy)


@routes.post(
    "/conversations/{conversation_id}/context",
    response=ContextBody | RequestBody,
    scope="read",
    route_class="read",
)
async def load_context(call: Call[ContextQuery, NoQuery]) -> Reply:
    """Return a context with all window settings and with pending messages, which are not stored yet."""
    body = call.body
    policy = policy_of(body.policy)
    pending = read(list(body.pending)) if body.pending else []
    options: dict[str, Any] = {"agent_name": body.agent_name, "policy": policy, "pending": pending}
    if body.dialect is None:
        options["for_request"] = body.for_request
    return await _context(call, body.dialect, body.counter, **options)


class AnswerQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer."""

    message_id: Name


class ShownRequest(SentRequest, frozen=True, kw_only=True):
    """The last request of a turn to its agent, with the words of its notes."""

    notes_text: str = ""
    """The notes as the agent read them, without the words of notes that were forgotten since."""


@routes.get("/conversations/{conversation_id}/request", response=ShownRequest, errors=(404,))
async def get_sent_request(call: Call[NoBody, AnswerQuery]) -> Reply:
    """Return the request that an answer was given to, as it was sent: limits, messages, notes, summary.

    Agents of this server keep it with the answer. It is removed when a message of the conversation is
    redacted.
    """
    store = call.manager.store
    await call.manager.unstored.later_is_done()  # a request is stored after its answer
    request = await kept_request(store, call.conversation_id, call.query.message_id)
    notes = await call.manager.notes(history=True) if request.notes else []
    shown = ShownRequest(**structs.asdict(request), notes_text=shown_again(request.notes, notes))
    return json_response(shown)


@routes.post("/context", response=ContextBody, scope="read", route_class="read")
async def first_context(call: Call[FirstContextQuery, NoQuery]) -> Reply:
    """Return the context of a conversation that does not exist yet: notes and pending messages."""
    body = call.body
    policy = policy_of(body.policy)
    pending = read(list(body.pending)) if body.pending else []
    manager = _with_counter(call, body.counter)
    return json_response(context_document(await manager.first_context(pending, policy=policy)))


def _with_counter(call: Call[Any, Any], counter: str | None) -> ConversationManager:
    return call.manager if counter is None else call.manager.counting_with(counter_named(counter))


async def _context(
    call: Call[Any, Any], dialect: str | None, counter: str | None = None, **options: Any
) -> Reply:
    manager = _with_counter(call, counter)
    if dialect is None:
        return json_response(context_document(await manager.load_context(call.conversation_id, **options)))
    context = await manager.load_context(call.conversation_id, **options, for_request=True)
    policy: WindowPolicy | None = options.get("policy")
    request = write_request(context, dialect, cache_marks=policy is not None and policy.cache_marks)
    return json_response(
        {"messages": request.messages, "system": request.system, "repaired": request.repaired}
    )


def policy_of(body: PolicyBody | None) -> WindowPolicy | None:
    """Return the policy of a body; None selects the policy of the settings."""
    if body is None:
        return None
    fields = msgspec.structs.asdict(body)
    return WindowPolicy(**fields | {"tags": tuple(fields["tags"])})


# Summaries


class SummaryQuery(RequestModel, frozen=True, kw_only=True):
    """The policy of the window."""

    policy: PolicyBody | None = None


class SummaryBody(ResponseModel, frozen=True, kw_only=True):
    """The current summary; null if the window contains everything or no summary exists yet."""

    summary: Summary | None


@summaries.get("/conversations/{conversation_id}/summary", response=SummaryBody)
async def get_summary(call: Call[NoBody, NoQuery]) -> Reply:
    """Return the current summary of a conversation."""
    return json_response({"summary": await call.manager.summary(call.conversation_id)})


@summaries.post("/conversations/{conversation_id}/summary", response=SummaryBody)
async def summarize(call: Call[SummaryQuery, NoQuery]) -> Reply:
    """Update the summary to cover all messages outside the window.

    Loading a context does this in the background.
    """
    policy = policy_of(call.body.policy)
    return json_response({"summary": await call.manager.summarize(call.conversation_id, policy=policy)})
