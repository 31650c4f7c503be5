"""What changes, as it does: server-sent events for programs that keep a copy or a page up to date."""

import asyncio
from collections.abc import AsyncGenerator

from msgspec import Struct

from recollect.contracts import Change, ConversationStore, Watchable
from recollect.conversations import Query
from recollect.ids import parse_uuid
from recollect.protocol import to_json
from recollect.protocol.bodies import Uuid
from recollect.server.answers import Streamed
from recollect.server.calls import Call, NoBody
from recollect.server.endpoints import Media, Reply, Routes

routes = Routes("changes")

HEARTBEAT = 15.0
"""Seconds of silence after which a comment says that the line is still good."""
LOOKS_EVERY = 0.5
"""Seconds between two looks at a store that cannot tell of changes by itself."""
LOOKS_AT = 500
"""Conversations that such a look takes in: the most recently active ones."""


class Watched(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One conversation, or all of them."""

    conversation_id: Uuid | None = None


@routes.get(
    "/changes",
    answer=Media(
        type="text/event-stream",
        description="An event for each change: which conversation, and its revision; null when it is gone.",
    ),
)
async def watch_changes(call: Call[NoBody, Watched]) -> Reply:
    """Changes to one conversation, or to all, as server-sent events, until somebody hangs up.

    Several changes in quick succession may come as one. What changed is read from the conversation.
    """
    wanted = call.query.conversation_id
    conversation_id = None if wanted is None else parse_uuid(wanted, field="conversation_id")
    return Streamed(
        _told(call.manager.store, conversation_id, call.service.draining), media=b"text/event-stream"
    )


async def _told(
    store: ConversationStore, conversation_id: str | None, draining: asyncio.Event
) -> AsyncGenerator[bytes, None]:
    changes: asyncio.Queue[Change] = asyncio.Queue(maxsize=1000)
    begun = asyncio.Event()
    watching = asyncio.create_task(_watch(store, conversation_id, changes, begun))
    stopping = asyncio.create_task(draining.wait())
    try:
        await asyncio.wait({asyncio.create_task(begun.wait()), watching}, return_when="FIRST_COMPLETED")
        yield b": watching\n\n"
        while not stopping.done() and not watching.done():
            taking = asyncio.create_task(changes.get())
            await asyncio.wait({taking, stopping, watching}, timeout=HEARTBEAT, return_when="FIRST_COMPLETED")
            if taking.done():
                yield b"data: %b\n\n" % to_json(taking.result())
            else:
                taking.cancel()
                yield b": still here\n\n"
    finally:
        for task in (watching, stopping):
            task.cancel()
        await asyncio.gather(watching, stopping, return_exceptions=True)


async def _watch(
    store: ConversationStore,
    conversation_id: str | None,
    changes: "asyncio.Queue[Change]",
    begun: asyncio.Event,
) -> None:
    if isinstance(store, Watchable):
        async with store.watch(conversation_id) as told:
            begun.set()
            async for change in told:
                await changes.put(change)
        return
    known = await _revisions(store, conversation_id)
    begun.set()
    while True:
        await asyncio.sleep(LOOKS_EVERY)
        now = await _revisions(store, conversation_id)
        for each, revision in differences(known, now):
            await changes.put(Change(conversation_id=each, revision=revision))
        known = now


async def _revisions(store: ConversationStore, conversation_id: str | None) -> dict[str, int]:
    if conversation_id is not None:
        record = await store.get(conversation_id)
        return {} if record is None else {record.id: record.revision}
    page = await store.find(Query(limit=LOOKS_AT))
    return {record.id: record.revision for record in page.conversations}


def differences(before: dict[str, int], now: dict[str, int]) -> list[tuple[str, int | None]]:
    """What moved between two looks. One that is out of sight among many is not taken to be gone."""
    moved: list[tuple[str, int | None]] = [
        (each, revision) for each, revision in now.items() if before.get(each) != revision
    ]
    gone = [(each, None) for each in before if each not in now] if len(now) < LOOKS_AT else []
    return moved + gone
