"""Numbers about conversations, from roll-ups."""

from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict

from aforesaid.analytics import By
from aforesaid.analytics.reports import Analytics
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
