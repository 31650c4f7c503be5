"""Calls for analytics. The signatures are the manager's."""

from datetime import datetime
from typing import Any

import msgspec

from aforesaid.analytics import By
from aforesaid.analytics.reports import Analytics
from aforesaid.errors import StoreForeign
from aforesaid.model.clock import parse_moment
from aforesaid.remote.calls import Call
from aforesaid.remote.requests.base import Calls


class AnalyticsCalls(Calls):
    """Calls for analytics."""

    def analytics(
        self,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        *,
        by: By | None = None,
        channel: str | None = None,
        client_id: str | None = None,
        agent: str | None = None,
        fresh: bool = True,
    ) -> Call[Analytics]:
        query = {
            "date_from": _moment(date_from, "date_from"),
            "date_to": _moment(date_to, "date_to"),
            "by": by,
            "channel": channel,
            "client_id": client_id,
            "agent": agent,
            "fresh": fresh,
        }
        return self._call("GET", "analytics", query=query, read=_analytics)

    def recompute_analytics(self, *, keep_removed: bool = True) -> Call[int]:
        return self._call(
            "POST",
            "analytics",
            "recompute",
            body={"keep_removed": keep_removed},
            read=lambda document: int(document["conversations"]),
        )


def _moment(value: datetime | str | None, field: str) -> str | None:
    return None if value is None else parse_moment(value, field=field).isoformat()


def _analytics(document: Any) -> Analytics:
    try:
        return msgspec.convert(document, Analytics)
    except msgspec.MsgspecError as error:
        raise StoreForeign("the server sent invalid analytics") from error
