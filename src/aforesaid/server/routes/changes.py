"""Changes as server-sent events."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial

from msgspec import Struct

from aforesaid._internal.tasks import ended
from aforesaid.contracts import Change
from aforesaid.errors import AccessError, AforesaidError
from aforesaid.protocol import HEARTBEAT, to_json
from aforesaid.protocol.bodies import ConversationId
from aforesaid.server.auth.authenticator import CACHE_SECONDS
from aforesaid.server.endpoints import Call, Media, NoBody, Reply, Routes
from aforesaid.server.responses import StreamingResponse
from aforesaid.server.service import source_of
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.server")

routes = Routes("changes")

RECHECK_SECONDS = CACHE_SECONDS
"""Seconds between two checks of the key; the authenticator caches keys for as long."""


class ChangesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conversation to watch. Default: all."""

    conversation_id: ConversationId | None = None


@routes.get(
    "/changes",
    response=Media(
        type="text/event-stream",
        description="One event per change: the conversation and its revision, or null if it was deleted.",
    ),
)
async def watch_changes(call: Call[NoBody, ChangesQuery]) -> Reply:
    """Stream changes of one conversation or all as server-sent events.

    The stream ends when the client disconnects, the key expires or the server stops. Several changes in
    quick succession may be one event. Read the conversation to see what changed.
    """
    watching = call.manager.watch(call.query.conversation_id)
    concurrency, name = call.service.concurrency, call.caller.name
    concurrency.acquire(name)
    return StreamingResponse(
        _event_stream(watching, call), media=b"text/event-stream", closing=partial(concurrency.release, name)
    )


async def _event_stream(
    watching: AbstractAsyncContextManager[AsyncIterator[Change]], call: Call[NoBody, ChangesQuery]
) -> AsyncGenerator[bytes, None]:
    stopping = asyncio.create_task(_wait_for_end(call))
    try:
        async with watching as changes:
            yield b": watching\n\n"
            async for change in _changes_until(stopping, changes):
                yield b": still here\n\n" if change is None else b"data: %b\n\n" % to_json(change)
    finally:
        await ended(stopping)


async def _wait_for_end(call: Call[NoBody, ChangesQuery]) -> None:
    """Return when the server stops or the caller loses access."""
    draining = call.service.draining
    while not draining.is_set() and await _has_access(call):
        with suppress(TimeoutError):
            await asyncio.wait_for(draining.wait(), RECHECK_SECONDS)


async def _has_access(call: Call[NoBody, ChangesQuery]) -> bool:
    """Return whether the key is still valid. A key that cannot be verified is not."""
    try:
        caller = await call.service.authenticator.authenticate(call.headers)
        caller.owner_for(call.manager.owner)
    except AccessError as error:
        await call.service.note_refusal("GET /changes", error, source=source_of(call.request))
        return False
    except AforesaidError as error:
        log.warning("a key cannot be verified again: %s", describe(error))
        return False
    return True


async def _changes_until(
    stopping: "asyncio.Task[None]", changes: AsyncIterator[Change]
) -> AsyncGenerator[Change | None, None]:
    """Yield changes until `stopping` is done, and None as a heartbeat."""
    upcoming: asyncio.Task[Change] | None = None
    try:
        while not stopping.done():
            # The pending read survives a heartbeat: cancelling it could lose a change.
            upcoming = upcoming or asyncio.ensure_future(_next(changes))
            await asyncio.wait({upcoming, stopping}, timeout=HEARTBEAT, return_when="FIRST_COMPLETED")
            if upcoming.done():
                done, upcoming = upcoming, None
                yield done.result()
            elif not stopping.done():
                yield None
    finally:
        if upcoming is not None:
            await ended(upcoming)


async def _next(changes: AsyncIterator[Change]) -> Change:
    return await anext(changes)
