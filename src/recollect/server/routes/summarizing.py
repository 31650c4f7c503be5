"""Summaries: what stands in for the part of a conversation that a window no longer shows."""

from typing import Any

from msgspec.structs import asdict

from recollect.protocol.bodies import Answered, PolicyBody, Sent
from recollect.server.answers import as_json
from recollect.server.calls import Call, NoBody, NoQuery
from recollect.server.endpoints import Reply, Routes
from recollect.summaries import Summary
from recollect.windows import WindowPolicy

routes = Routes("summaries")


class SummaryQuestion(Sent, frozen=True, kw_only=True):
    """Which window the summary is for; without one, that of the settings."""

    policy: PolicyBody | None = None


class SummaryBody(Answered, frozen=True, kw_only=True):
    """The summary; null where there is none."""

    summary: Summary | None


@routes.get("/conversations/{conversation_id}/summary", answer=SummaryBody)
async def get_summary(call: Call[NoBody, NoQuery]) -> Reply:
    """The summary of a conversation, as far as it goes."""
    return as_json({"summary": await call.manager.summary(call.conversation_id)})


@routes.post("/conversations/{conversation_id}/summary", answer=SummaryBody)
async def summarize(call: Call[SummaryQuestion, NoQuery]) -> Reply:
    """Bring the summary up to what the window no longer shows; contexts see to that by themselves."""
    asked = call.body.policy
    policy = None if asked is None else WindowPolicy(**_fields(asked))
    return as_json({"summary": await call.manager.summarize(call.conversation_id, policy=policy)})


def _fields(body: PolicyBody) -> dict[str, Any]:
    fields = asdict(body)
    return fields | {"tags": tuple(fields["tags"])}
