"""Keep what an agent was sent for an answer, so that its request can be shown later as it was.

A kept request is a document of the conversation: the store removes it with the conversation, and with any
message that is redacted. It refers to messages and notes by id. The text of a summary is part of it, because
a later summary replaces the stored one.
"""

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from aforesaid._internal.tasks import within
from aforesaid.contracts import ConversationStore
from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    InvalidSetting,
    NotFound,
    StoreDamaged,
    shown,
)
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.contexts import Context, Report
from aforesaid.model.ids import conversation_key, parse_name
from aforesaid.summaries.service import TAG as SUMMARY
from aforesaid.telemetry import describe
from aforesaid.windows import WindowPolicy

log = logging.getLogger("aforesaid.agents")

KIND = "sent requests"


class SentRequest(Struct, frozen=True, kw_only=True):
    """The last request of a turn to its agent."""

    message_id: str
    """The id of the answer."""
    agent_name: str
    sent_at: datetime
    steps: int
    """Number of requests of the turn."""
    policy: dict[str, Any] | None
    """The limits of the window; None for the budget of the settings."""
    message_ids: tuple[str, ...]
    """The messages of the log and of the turn, in the order of the request."""
    notes: tuple[str, ...] = ()
    """Ids of the notes in the request."""
    summary: str | None = None
    """The summary in the request."""
    report: Report = Report()
    """How the window was chosen."""


def sent_request(
    context: Context,
    *,
    message_id: str,
    agent_name: str,
    steps: int,
    policy: WindowPolicy | None,
    sent_at: datetime,
) -> SentRequest:
    """Return what to keep of a context that was sent."""
    return SentRequest(
        message_id=message_id,
        agent_name=agent_name,
        sent_at=sent_at,
        steps=steps,
        policy=None if policy is None else asdict(policy),
        message_ids=tuple(one.message_id for one in context.messages if one.message_id is not None),
        notes=context.report.notes,
        summary=_summary(context),
        report=context.report,
    )


async def keep_request(manager: ManagerProtocol, conversation_id: str, request: SentRequest) -> None:
    """Store a request. A failure is logged: the answer is stored already. Behind a server, do nothing."""
    try:
        store = manager.store
    except InvalidSetting:
        return
    try:
        await within(manager.unstored.patience, _keep(manager, store, conversation_id, request))
    except ConversationNotFound:
        log.info("the request of an answer is not kept: its conversation is gone")
    except TimeoutError:
        log.warning("the request of an answer cannot be kept: the store did not take it in time")
    except AforesaidError as error:
        log.warning("the request of an answer cannot be kept: %s", describe(error))


async def _keep(
    manager: ManagerProtocol, store: ConversationStore, conversation_id: str, request: SentRequest
) -> None:
    await _store_request(store, conversation_id, request)
    if request.summary is None:
        return
    # A redaction in the meantime removed the summary, but not this copy of it.
    kept = await manager.summary(conversation_id)
    if kept is None or kept.text not in request.summary:
        await _store_request(store, conversation_id, replace(request, summary=None))


async def _store_request(store: ConversationStore, conversation_id: str, request: SentRequest) -> None:
    data = msgspec.json.encode(request)
    await store.put_document(KIND, request.message_id, data, conversation_id=conversation_id)


async def kept_request(store: ConversationStore, conversation_id: str, message_id: str) -> SentRequest:
    """Return the request that an answer was given to. Raises `NotFound`."""
    conversation = conversation_key(conversation_id, owner=store.owner).id
    name = parse_name(message_id, field="message_id")
    document = await store.get_document(KIND, name, conversation_id=conversation)
    if document is None:
        raise NotFound(f"no request is kept for message {shown(message_id)}")
    try:
        return msgspec.json.decode(document.data, type=SentRequest)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"a kept request cannot be read: {error}") from error


def _summary(context: Context) -> str | None:
    found: Iterable[str] = (
        one.content for one in context.messages if SUMMARY in one.tags and isinstance(one.content, str)
    )
    return next(iter(found), None)
