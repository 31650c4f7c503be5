"""Search over messages and conversations."""

import asyncio
import re
from datetime import timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct
from msgspec.structs import asdict

from aforesaid.errors import InvalidInput, shown
from aforesaid.protocol.bodies import (
    ConversationsQuery,
    FoundConversation,
    HistoryQuery,
    Limit,
    ResponseModel,
)
from aforesaid.protocol.documents import conversation_document
from aforesaid.search.searcher import Findings
from aforesaid.server.endpoints import Call, NoBody, NoQuery, Reply, Routes
from aforesaid.server.responses import json_response

routes = Routes("search")

_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII).fullmatch


class FoundConversations(ResponseModel, frozen=True, kw_only=True):
    """Matching conversations, best match first."""

    conversations: list[FoundConversation]


class SimilarQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of results."""

    limit: Limit = 5


@routes.get("/search", response=Findings, route_class="search")
async def find_history(call: Call[NoBody, HistoryQuery]) -> Reply:
    """Search messages. Returns passages, best match first; without a query, the latest."""
    return await _history(call, call.query)


@routes.post("/search", response=Findings, scope="read", route_class="search")
async def search_history(call: Call[HistoryQuery, NoQuery]) -> Reply:
    """Search messages with the query in the body, which keeps it out of proxy logs."""
    return await _history(call, call.body)


async def _history(call: Call[Any, Any], query: HistoryQuery) -> Reply:
    fields = asdict(query)
    wants_snippets = fields.pop("snippets")
    zone = await parse_zone(fields.pop("timezone"))
    findings = await call.manager.search(**fields, timezone=zone)
    document = asdict(findings)
    return json_response(document | {"snippets": findings.render()} if wants_snippets else document)


@routes.get("/search/conversations", response=FoundConversations, route_class="search")
async def find_conversations(call: Call[NoBody, ConversationsQuery]) -> Reply:
    """Search conversations by client name, subject or content. All given filters apply."""
    return await _conversations(call, call.query)


@routes.post("/search/conversations", response=FoundConversations, scope="read", route_class="search")
async def search_conversations(call: Call[ConversationsQuery, NoQuery]) -> Reply:
    """Search conversations with the query in the body."""
    return await _conversations(call, call.body)


async def _conversations(call: Call[Any, Any], query: ConversationsQuery) -> Reply:
    fields = asdict(query)
    zone = await parse_zone(fields.pop("timezone"))
    found = await call.manager.search_conversations(**fields, timezone=zone)
    return json_response({"conversations": [conversation_document(each) for each in found]})


@routes.get("/conversations/{conversation_id}/similar", response=FoundConversations, route_class="search")
async def find_similar(call: Call[NoBody, SimilarQuery]) -> Reply:
    """Find similar conversations, most similar first."""
    found = await call.manager.similar(call.conversation_id, limit=call.query.limit)
    return json_response({"conversations": [conversation_document(each) for each in found]})


async def parse_zone(name: str | None) -> tzinfo | None:
    """Return the time zone of a name or UTC offset; None selects the server's zone."""
    if name is None:
        return None
    if found := _OFFSET(name):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return _fixed_offset(-offset if found[1] == "-" else offset, name)
    try:
        return await asyncio.to_thread(ZoneInfo, name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise _invalid_zone(name) from None


def _fixed_offset(offset: timedelta, name: str) -> tzinfo:
    try:
        return timezone(offset)
    except ValueError:
        raise _invalid_zone(name) from None


def _invalid_zone(name: str) -> InvalidInput:
    return InvalidInput(
        f"timezone must be a name such as Europe/Berlin or an offset such as +02:00; got {shown(name)}",
        field="timezone",
        value=name,
    )
