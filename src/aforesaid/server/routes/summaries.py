"""Summaries of messages outside the window."""

from aforesaid.protocol.bodies import PolicyBody, RequestModel, ResponseModel
from aforesaid.server.calls import Call, NoBody, NoQuery
from aforesaid.server.endpoints import Reply, Routes
from aforesaid.server.responses import json_response
from aforesaid.server.routes.contexts import policy_of
from aforesaid.summaries.records import Summary

routes = Routes("summaries")


class SummaryQuery(RequestModel, frozen=True, kw_only=True):
    """The policy of the window."""

    policy: PolicyBody | None = None


class SummaryBody(ResponseModel, frozen=True, kw_only=True):
    """The current summary; null if the window contains everything or no summary exists yet."""

    summary: Summary | None


@routes.get("/conversations/{conversation_id}/summary", response=SummaryBody)
async def get_summary(call: Call[NoBody, NoQuery]) -> Reply:
    """Return the current summary of a conversation."""
    return json_response({"summary": await call.manager.summary(call.conversation_id)})


@routes.post("/conversations/{conversation_id}/summary", response=SummaryBody)
async def summarize(call: Call[SummaryQuery, NoQuery]) -> Reply:
    """Update the summary to cover all messages outside the window.

    Loading a context does this in the background.
    """
    policy = policy_of(call.body.policy)
    return json_response({"summary": await call.manager.summarize(call.conversation_id, policy=policy)})
