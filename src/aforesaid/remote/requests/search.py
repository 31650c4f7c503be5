"""Calls for searches. The signatures are the manager's."""

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs
from msgspec.structs import replace

from aforesaid._internal.arguments import zone_named
from aforesaid.model.conversations import Channel, Status
from aforesaid.model.messages import Role
from aforesaid.protocol.documents import conversation_fields
from aforesaid.remote.calls import Call
from aforesaid.remote.requests.base import Calls, conversation

if TYPE_CHECKING:
    from aforesaid.search.conversations import FoundConversation
    from aforesaid.search.queries import SearchQuery
    from aforesaid.search.searcher import Findings


class SearchCalls(Calls):
    """Calls for searches."""

    def search_history(
        self,
        query: str = "",
        max_results: int = 5,
        *,
        role: Role | None = None,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        tag: str | None = None,
        channel: Channel | None = None,
        max_tokens: int | None = None,
        explain: bool = False,
        timezone: tzinfo | None = None,
    ) -> Call[list[str]]:
        from aforesaid.search.queries import parse_query

        asked = parse_query(
            query,
            max_results,
            role=role,
            date_from=date_from,
            date_to=date_to,
            tag=tag,
            channel=channel,
            max_tokens=max_tokens,
            explain=explain,
            timezone=timezone,
        )
        return self._search(asked).map(lambda found: found.render())

    def search(
        self,
        query: str = "",
        max_results: int = 5,
        *,
        role: Role | None = None,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        tag: str | None = None,
        channel: Channel | None = None,
        max_tokens: int | None = None,
        explain: bool = False,
        timezone: tzinfo | None = None,
    ) -> "Call[Findings]":
        from aforesaid.search.queries import parse_query

        asked = parse_query(
            query,
            max_results,
            role=role,
            date_from=date_from,
            date_to=date_to,
            tag=tag,
            channel=channel,
            max_tokens=max_tokens,
            explain=explain,
            timezone=timezone,
        )
        return self._search(asked)

    def _search(self, query: "SearchQuery") -> "Call[Findings]":
        from aforesaid.search.queries import local_zone

        zone = local_zone(query.timezone)
        body = {
            "query": query.question,
            "max_results": query.max_results,
            **structs.asdict(query.filters),
            "max_tokens": query.max_tokens,
            "explain": query.explain,
            "timezone": zone_name(zone),
        }
        return self._call("POST", "search", body=body, read=lambda found: _findings(found, zone))

    def search_conversations(
        self,
        query: str | None = None,
        client_id: str | None = None,
        status: Status | None = None,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        limit: int | None = None,
        *,
        tags: Sequence[str] | None = None,
        timezone: tzinfo | None = None,
    ) -> "Call[list[FoundConversation]]":
        from aforesaid.search.queries import local_zone, parse_conversation_filters, parse_question

        if timezone is None and self.config.timezone:
            timezone = zone_named(self.config.timezone)
        zone = local_zone(timezone)
        filters = parse_conversation_filters(
            client_id=client_id,
            status=status,
            tags=tags,
            date_from=date_from,
            date_to=date_to,
            limit=self.config.search_limit if limit is None else limit,
            zone=zone,
        )
        body = {
            "query": parse_question(query),
            "client_id": filters.client_id,
            "status": filters.status,
            "tags": filters.tags,
            "date_from": filters.date_from,
            "date_to": filters.date_to,
            "limit": filters.limit,
            "timezone": zone_name(zone),
        }
        return self._call("POST", "search", "conversations", body=body, read=_found)

    def similar(self, conversation_id: str, limit: int = 5) -> "Call[list[FoundConversation]]":
        from aforesaid.search.queries import parse_limit

        query = {"limit": parse_limit(limit, field="limit")}
        return self._call(
            "GET", "conversations", conversation(conversation_id), "similar", query=query, read=_found
        )


def zone_name(zone: tzinfo) -> str:
    """Return the zone's name, or its current offset from UTC."""
    name = getattr(zone, "key", None)
    if isinstance(name, str):
        return name
    minutes = round((datetime.now(zone).utcoffset() or _NONE).total_seconds() / 60)
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


_NONE = datetime.max - datetime.max


def _findings(document: Any, zone: tzinfo) -> "Findings":
    """Parse findings and convert their times to the caller's zone; JSON has only an offset."""
    from aforesaid.search.searcher import Findings

    found = msgspec.convert(document, Findings)
    passages = [replace(each, said_at=each.said_at.astimezone(zone)) for each in found.passages]
    return replace(found, passages=tuple(passages))


def _found(document: Any) -> "list[FoundConversation]":
    from aforesaid.search.conversations import Excerpt, FoundConversation

    return [
        FoundConversation(
            **conversation_fields(each) | {"excerpts": msgspec.convert(each["excerpts"], tuple[Excerpt, ...])}
        )
        for each in document["conversations"]
    ]
