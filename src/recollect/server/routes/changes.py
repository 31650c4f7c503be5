"""What changes, as it does: server-sent events for programs that keep a copy or a page up to date."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager

from msgspec import Struct

from recollect.contracts import Change
from recollect.deadlines import ended
from recollect.protocol import to_json
from recollect.protocol.bodies import Uuid
from recollect.server.answers import Streamed
from recollect.server.calls import Call, NoBody
from recollect.server.endpoints import Media, Reply, Routes

routes = Routes("changes")

HEARTBEAT = 15.0
"""Seconds of silence after which a comment says that the line is still good."""


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
    watching = call.manager.watch(call.query.conversation_id)
    return Streamed(_told(watching, call.service.draining), media=b"text/event-stream")


async def _told(
    watching: AbstractAsyncContextManager[AsyncIterator[Change]], draining: asyncio.Event
) -> AsyncGenerator[bytes, None]:
    stopping = asyncio.create_task(draining.wait())
    try:
        async with watching as changes:
            yield b": watching\n\n"
            async for change in _until(stopping, changes):
                yield b": still here\n\n" if change is None else b"data: %b\n\n" % to_json(change)
    finally:
        await ended(stopping)


async def _until(
    stopping: "asyncio.Task[bool]", changes: AsyncIterator[Change]
) -> AsyncGenerator[Change | None, None]:
    """Changes as they come, None after some silence, and an end when the server is about to stop."""
    coming: asyncio.Task[Change] | None = None
    try:
        while not stopping.done():
            coming = coming or asyncio.ensure_future(_next(changes))
            await asyncio.wait({coming, stopping}, timeout=HEARTBEAT, return_when="FIRST_COMPLETED")
            if coming.done():
                done, coming = coming, None
                yield done.result()
            elif not stopping.done():
                yield None
    finally:
        if coming is not None:
            await ended(coming)


async def _next(changes: AsyncIterator[Change]) -> Change:
    return await anext(changes)
