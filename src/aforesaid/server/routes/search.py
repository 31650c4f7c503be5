"""Finding what was said before."""

import asyncio
import re
from datetime import timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct
from msgspec.structs import asdict

from aforesaid.errors import InvalidInput, shown
from aforesaid.protocol.bodies import ConversationsQuery, HistoryQuery, Limit, ResponseModel
from aforesaid.search.conversations import FoundConversation
from aforesaid.search.searcher import Findings
from aforesaid.server.calls import Call, NoBody, NoQuery
from aforesaid.server.endpoints import Reply, Routes
from aforesaid.server.responses import as_json

routes = Routes("search")

_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII).fullmatch


class Found(ResponseModel, frozen=True, kw_only=True):
    """The conversations that match, the best first."""

    conversations: list[FoundConversation]


class VectorMatch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many are wanted."""

    limit: Limit = 5


@routes.get("/search", answer=Findings, route_class="search")
async def find_history(call: Call[NoBody, HistoryQuery]) -> Reply:
    """What was said about something: quotations, the best first. An empty query gives the latest."""
    return await _history(call, call.query)


@routes.post("/search", answer=Findings, reach="read", route_class="search")
async def search_history(call: Call[HistoryQuery, NoQuery]) -> Reply:
    """The same, with the question in the body: it appears in no log of a proxy."""
    return await _history(call, call.body)


async def _history(call: Call[Any, Any], asked: HistoryQuery) -> Reply:
    fields = asdict(asked)
    wants_snippets = fields.pop("snippets")
    zone = await parse_zone(fields.pop("timezone"))
    findings = await call.manager.search(**fields, timezone=zone)
    document = asdict(findings)
    return as_json(document | {"snippets": findings.render()} if wants_snippets else document)


@routes.get("/search/conversations", answer=Found, route_class="search")
async def find_conversations(call: Call[NoBody, ConversationsQuery]) -> Reply:
    """Conversations by client name, subject or content; every filter given applies."""
    return await _conversations(call, call.query)


@routes.post("/search/conversations", answer=Found, reach="read", route_class="search")
async def search_conversations(call: Call[ConversationsQuery, NoQuery]) -> Reply:
    """The same, with the question in the body."""
    return await _conversations(call, call.body)


async def _conversations(call: Call[Any, Any], asked: ConversationsQuery) -> Reply:
    fields = asdict(asked)
    zone = await parse_zone(fields.pop("timezone"))
    found = await call.manager.search_conversations(**fields, timezone=zone)
    return as_json({"conversations": found})


@routes.get("/conversations/{conversation_id}/similar", answer=Found, route_class="search")
async def find_similar(call: Call[NoBody, VectorMatch]) -> Reply:
    """Other conversations about the same things, the most alike first."""
    found = await call.manager.similar(call.conversation_id, limit=call.query.limit)
    return as_json({"conversations": found})


async def parse_zone(name: str | None) -> tzinfo | None:
    """The zone that times are shown in: by its name, or as hours from UTC; None is the server's."""
    if name is None:
        return None
    if found := _OFFSET(name):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return _fixed(-offset if found[1] == "-" else offset, name)
    try:
        return await asyncio.to_thread(ZoneInfo, name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise _no_zone(name) from None


def _fixed(offset: timedelta, name: str) -> tzinfo:
    try:
        return timezone(offset)
    except ValueError:
        raise _no_zone(name) from None


def _no_zone(name: str) -> InvalidInput:
    return InvalidInput(
        f"timezone must be a name such as Europe/Berlin, or as in +02:00; got {shown(name)}",
        field="timezone",
        value=name,
    )
