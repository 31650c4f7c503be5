"""Counts and owners."""

from collections import Counter
from datetime import datetime
from typing import Any

from aforesaid.contracts.listing import every_record
from aforesaid.memory.manager import ConversationManager
from aforesaid.protocol.bodies import OwnersBody, StatsBody
from aforesaid.server.calls import Call, NoBody, NoQuery
from aforesaid.server.endpoints import Reply, Routes
from aforesaid.server.responses import json_response

routes = Routes("overview")


@routes.get("/stats", response=StatsBody, route_class="search")
async def get_stats(call: Call[NoBody, NoQuery]) -> Reply:
    """Count conversations and messages of the owner.

    Counts every acknowledged turn. Answers 503 while the store is unavailable or still replays the spool.
    """
    return json_response(await _count(call.manager))


async def _count(manager: ConversationManager) -> dict[str, Any]:
    totals: Counter[str] = Counter()
    by: dict[str, Counter[str]] = {"status": Counter(), "channel": Counter()}
    last: datetime | None = None
    async for record in every_record(manager.store):
        totals.update(conversations=1, messages=record.message_count, unread=record.unread_count)
        by["status"][record.status] += 1
        by["channel"][record.channel] += 1
        last = max(last or record.last_activity, record.last_activity)
    names = ("conversations", "messages", "unread")
    return {**{name: totals[name] for name in names}, **by, "last_activity": last}


@routes.get("/owners", response=OwnersBody, needs_owner=False)
async def list_owners(call: Call[NoBody, NoQuery]) -> Reply:
    """List the owners with data that the key has access to."""
    allowed = call.caller.owners
    found = [owner async for owner in call.service.memory.owners() if allowed is None or owner in allowed]
    return json_response({"owners": sorted(found)})
