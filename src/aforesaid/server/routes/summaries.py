"""Summaries of what a context no longer shows."""

from aforesaid.protocol.bodies import PolicyBody, RequestModel, ResponseModel
from aforesaid.server.calls import Call, NoBody, NoQuery
from aforesaid.server.endpoints import Reply, Routes
from aforesaid.server.responses import as_json
from aforesaid.server.routes.contexts import policy_of
from aforesaid.summaries.records import Summary

routes = Routes("summaries")


class SummaryQuery(RequestModel, frozen=True, kw_only=True):
    """For which window."""

    policy: PolicyBody | None = None


class SummaryBody(ResponseModel, frozen=True, kw_only=True):
    """The summary, as far as it goes; none where the window shows everything, or none was made yet."""

    summary: Summary | None


@routes.get("/conversations/{conversation_id}/summary", answer=SummaryBody)
async def get_summary(call: Call[NoBody, NoQuery]) -> Reply:
    """The summary of the conversation, as far as it goes."""
    return as_json({"summary": await call.manager.summary(call.conversation_id)})


@routes.post("/conversations/{conversation_id}/summary", answer=SummaryBody)
async def summarize(call: Call[SummaryQuery, NoQuery]) -> Reply:
    """Bring the summary up to what the window no longer shows. Contexts see to that by themselves."""
    policy = policy_of(call.body.policy)
    return as_json({"summary": await call.manager.summarize(call.conversation_id, policy=policy)})
