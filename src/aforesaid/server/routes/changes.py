"""What changes, as it does: server-sent events for programs that keep a copy or a page up to date."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial

from msgspec import Struct

from aforesaid._internal.deadlines import ended
from aforesaid.contracts import Change
from aforesaid.errors import AccessError, AforesaidError
from aforesaid.protocol import HEARTBEAT, to_json
from aforesaid.protocol.bodies import Uuid
from aforesaid.server.auth.gate import REMEMBERED
from aforesaid.server.calls import Call, NoBody, source_of
from aforesaid.server.endpoints import Media, Reply, Routes
from aforesaid.server.responses import Streamed
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.server")

routes = Routes("changes")

RECHECKED = REMEMBERED
"""Seconds after which the key is looked at again: what the gate remembers is no news before."""


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
    """Changes to one conversation, or to all, as server-sent events, until somebody hangs up or the key ends.

    Several changes in quick succession may come as one. What changed is read from the conversation.
    """
    watching = call.manager.watch(call.query.conversation_id)
    openings, name = call.service.openings, call.caller.name
    openings.begin(name)
    return Streamed(_told(watching, call), media=b"text/event-stream", closing=partial(openings.end, name))


async def _told(
    watching: AbstractAsyncContextManager[AsyncIterator[Change]], call: Call[NoBody, Watched]
) -> AsyncGenerator[bytes, None]:
    stopping = asyncio.create_task(_over(call))
    try:
        async with watching as changes:
            yield b": watching\n\n"
            async for change in _until(stopping, changes):
                yield b": still here\n\n" if change is None else b"data: %b\n\n" % to_json(change)
    finally:
        await ended(stopping)


async def _over(call: Call[NoBody, Watched]) -> None:
    """Until the server is about to stop, or whoever listens may no longer."""
    draining = call.service.draining
    while not draining.is_set() and await _may_listen(call):
        with suppress(TimeoutError):
            await asyncio.wait_for(draining.wait(), RECHECKED)


async def _may_listen(call: Call[NoBody, Watched]) -> bool:
    """Whether the key still holds. A key that cannot be verified does not."""
    try:
        caller = await call.service.gate.admit(call.headers)
        caller.owner_for(call.manager.owner)
    except AccessError as error:
        await call.service.note_refusal("GET /changes", error, source=source_of(call.request))
        return False
    except AforesaidError as error:
        log.warning("a key cannot be looked at again: %s", describe(error))
        return False
    return True


async def _until(
    stopping: "asyncio.Task[None]", changes: AsyncIterator[Change]
) -> AsyncGenerator[Change | None, None]:
    """Changes as they come, None after some silence, and an end when it is over."""
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
