"""Calls for analytics. The signatures are the manager's."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from aforesaid.analytics import By
from aforesaid.analytics.reports import Analytics
from aforesaid.analytics.service import MOST_READ
from aforesaid.analytics.topics import Topic, Topics, parse_topic
from aforesaid.errors import StoreForeign
from aforesaid.model.clock import parse_moment
from aforesaid.model.conversations import check_count
from aforesaid.remote.calls import Call
from aforesaid.remote.requests.base import Calls

T = TypeVar("T")


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
        return self._call("GET", "analytics", query=query, read=partial(_read, Analytics))

    def recompute_analytics(self, *, keep_removed: bool = True) -> Call[int]:
        return self._call(
            "POST",
            "analytics",
            "recompute",
            body={"keep_removed": keep_removed},
            read=lambda document: int(document["conversations"]),
        )

    def set_topic(self, name: str, examples: Sequence[str]) -> Call[Topic]:
        topic = parse_topic(name, examples)
        body = {"examples": list(topic.examples)}
        return self._call("PUT", "topics", topic.name, body=body, read=partial(_read, Topic))

    def delete_topic(self, name: str) -> Call[bool]:
        return self._call("DELETE", "topics", name, read=lambda document: bool(document["deleted"]))

    def topics(self) -> Call[list[Topic]]:
        return self._call("GET", "topics", read=lambda document: _read(list[Topic], document["topics"]))

    def topic_report(
        self,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        *,
        limit: int = 1000,
    ) -> Call[Topics]:
        check_count(limit, field="limit", least=1, most=MOST_READ)
        query = {
            "date_from": _moment(date_from, "date_from"),
            "date_to": _moment(date_to, "date_to"),
            "limit": limit,
        }
        return self._call("GET", "analytics", "topics", query=query, read=partial(_read, Topics))


def _moment(value: datetime | str | None, field: str) -> str | None:
    return None if value is None else parse_moment(value, field=field).isoformat()


def _read(kind: type[T], document: Any) -> T:
    try:
        return msgspec.convert(document, kind)
    except msgspec.MsgspecError as error:
        raise StoreForeign("the server sent invalid analytics") from error
