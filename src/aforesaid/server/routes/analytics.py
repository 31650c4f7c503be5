"""Numbers about conversations, from roll-ups."""

from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict

from aforesaid.analytics import By
from aforesaid.analytics.reports import Analytics
from aforesaid.analytics.service import MOST_READ
from aforesaid.analytics.topics import MOST_EXAMPLES, Topic, Topics
from aforesaid.protocol.bodies import Moment, RequestModel, ResponseModel
from aforesaid.server.endpoints import Call, Media, NoBody, NoQuery, Reply, Routes
from aforesaid.server.responses import Response, json_response

routes = Routes("analytics")

CSV = "text/csv"


class AnalyticsQuery(RequestModel, frozen=True, kw_only=True):
    """The period, by default the last 30 days, and the groups. At most one filter can be given."""

    date_from: Moment | None = None
    date_to: Moment | None = None
    """The days of both are part of the period. Days are days in UTC."""
    by: By | None = None
    """The numbers for each day, channel, client or agent as well."""
    channel: Annotated[str, Meta(max_length=32)] | None = None
    client_id: str | None = None
    agent: Annotated[str, Meta(max_length=1024)] | None = None
    fresh: bool = True
    """Whether to count first what changed since the last count."""


class RecomputeBody(RequestModel, frozen=True, kw_only=True):
    """Whether conversations that were deleted or have expired stay in the numbers."""

    keep_removed: bool = True


class RecomputedBody(ResponseModel, frozen=True, kw_only=True):
    """The number of conversations that were counted."""

    conversations: int


@routes.get("/analytics", response=Analytics, route_class="search")
async def get_analytics(call: Call[NoBody, AnalyticsQuery]) -> Reply:
    """Return the numbers of a period: counts, shares, percentiles and buckets."""
    return json_response((await _report(call)).to_dict())


@routes.get(
    "/analytics.csv",
    response=Media(type=CSV, description="A line per group, or one for the period."),
    route_class="search",
)
async def get_analytics_csv(call: Call[NoBody, AnalyticsQuery]) -> Reply:
    """Return the same numbers as CSV, without buckets."""
    return Response((await _report(call)).to_csv().encode(), media=f"{CSV}; charset=utf-8".encode())


async def _report(call: Call[Any, AnalyticsQuery]) -> Analytics:
    return await call.manager.analytics(**asdict(call.query))


@routes.post("/analytics/recompute", response=RecomputedBody, scope="admin", body_optional=True)
async def recompute_analytics(call: Call[RecomputeBody, NoQuery]) -> Reply:
    """Count every conversation again from its log."""
    counted = await call.manager.recompute_analytics(keep_removed=call.body.keep_removed)
    return json_response({"conversations": counted})


class TopicsQuery(RequestModel, frozen=True, kw_only=True):
    """The period, by default the last 30 days, and how many of its conversations are read."""

    date_from: Moment | None = None
    date_to: Moment | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_READ)] = 1000


class TopicChange(RequestModel, frozen=True, kw_only=True):
    """Sentences as people say them in conversations about the topic."""

    examples: Annotated[list[str], Meta(min_length=1, max_length=MOST_EXAMPLES)]


class TopicsBody(ResponseModel, frozen=True, kw_only=True):
    """The topics that the owner named, sorted by name."""

    topics: list[Topic]


class DeletedTopicBody(ResponseModel, frozen=True, kw_only=True):
    """Whether there was one."""

    deleted: bool


@routes.get("/analytics/topics", response=Topics, route_class="search")
async def get_topic_report(call: Call[NoBody, TopicsQuery]) -> Reply:
    """Return what the conversations of a period are about: named topics, and terms that are new."""
    return json_response((await call.manager.topic_report(**asdict(call.query))).to_dict())


@routes.get("/topics", response=TopicsBody)
async def list_topics(call: Call[NoBody, NoQuery]) -> Reply:
    """List the topics that the owner named."""
    return json_response({"topics": [one.to_dict() for one in await call.manager.topics()]})


@routes.put("/topics/{name}", response=Topic, status=200)
async def set_topic(call: Call[TopicChange, NoQuery]) -> Reply:
    """Name a topic by example sentences. A known name gets the new examples."""
    return json_response((await call.manager.set_topic(call.path["name"], call.body.examples)).to_dict())


@routes.delete("/topics/{name}", response=DeletedTopicBody, status=200)
async def delete_topic(call: Call[NoBody, NoQuery]) -> Reply:
    """Remove a topic. A missing one is not an error."""
    return json_response({"deleted": await call.manager.delete_topic(call.path["name"])})
