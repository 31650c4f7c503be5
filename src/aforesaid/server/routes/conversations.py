"""List, open, read, change, remove, link and count conversations; their changes as server-sent events."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from msgspec import UNSET, Meta, Struct
from msgspec.structs import replace

from aforesaid._internal.tasks import ended
from aforesaid.contracts import Change, unreadable_reason
from aforesaid.contracts.listing import every_record
from aforesaid.errors import AccessError, AforesaidError
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Conversation, Page, Priority, Status
from aforesaid.protocol import HEARTBEAT, conversation_document, lifetime_document, page_document, to_json
from aforesaid.protocol.bodies import (
    ChangesBody,
    Channel,
    ClientLink,
    ConversationBody,
    ConversationId,
    ConversationsPage,
    LifetimeBody,
    Limit,
    Moment,
    OpenBody,
    OwnersBody,
    StatsBody,
    Uuid,
)
from aforesaid.protocol.documents import seconds
from aforesaid.server.auth.authenticator import CACHE_SECONDS
from aforesaid.server.endpoints import Call, Media, NoBody, NoQuery, Reply, Routes
from aforesaid.server.responses import (
    NO_CONTENT,
    Header,
    StreamingResponse,
    json_response,
    not_modified,
    revision_response,
)
from aforesaid.server.routes.openings import openings_of
from aforesaid.server.service import source_of
from aforesaid.telemetry import describe

# Changes as server-sent events.


log = logging.getLogger("aforesaid.server")

changes = Routes("changes")

# Seconds between two checks of the key; the authenticator caches keys for as long.
RECHECK_SECONDS = CACHE_SECONDS


class ChangesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conversation to watch. Default: all."""

    conversation_id: ConversationId | None = None


@changes.get(
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
    stopping = call.service.stopping
    while not stopping.is_set() and await _has_access(call):
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), RECHECK_SECONDS)


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


# List, open, read, change, remove, link and count conversations.


routes = Routes("conversations")
overview = Routes("overview")

Cursor = Annotated[str, Meta(description="The `next` of an earlier page.")]


class Listing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of a listing. All given filters apply."""

    client_id: Uuid | None = None
    channel: Channel | None = None
    status: Status | None = None
    priority: Priority | None = None
    assigned_to: str | None = None
    tag: list[str] = []
    date_from: Moment | None = None
    date_to: Moment | None = None
    limit: Limit | None = None
    after: Cursor | None = None
    latest: Annotated[int, Meta(ge=0, le=10, description="Latest messages in each record.")] = 0
    openings: Annotated[bool, Meta(description="Also return the first words of each conversation.")] = False


@routes.get("/conversations", response=ConversationsPage)
async def list_conversations(call: Call[NoBody, Listing]) -> Reply:
    """List conversations, most recently active first.

    All given filters apply. `tag` may be repeated; one matching tag is enough. `next` is the cursor of the
    next page, and the `Link` header has its URL.
    """
    query = call.query
    page = await call.manager.list(
        client_id=query.client_id,
        channel=query.channel,
        status=query.status,
        priority=query.priority,
        assigned_to=query.assigned_to,
        tags=query.tag,
        date_from=query.date_from,
        date_to=query.date_to,
        limit=query.limit,
        after=query.after,
    )
    if query.latest:
        page = replace(page, conversations=await _with_latest(call.manager, page, query.latest))
    document = page_document(page)
    if query.openings:
        document["openings"] = await openings_of(call.manager, page.conversations)
    return json_response(document, headers=link_to_next(call, "after", page.next))


async def _with_latest(manager: ConversationManager, page: Page, latest: int) -> tuple[Conversation, ...]:
    """Return the records with their latest messages, without unreadable ones."""

    async def read(record: Conversation) -> Conversation:
        found = await manager.store.tail(record.id, limit=latest) if record.message_count else []
        messages = tuple(entry.message for entry in found if unreadable_reason(entry) is None)
        return record.with_(messages=messages)

    return tuple(await asyncio.gather(*map(read, page.conversations)))


@routes.post("/conversations", response=ConversationBody, revised=True, errors=(404,))
async def open_conversation(call: Call[OpenBody, NoQuery]) -> Reply:
    """Return the conversation of a session with its latest messages. Create it if there is none."""
    body = call.body
    manager = with_idle_time(call.manager, body.idle_after)
    record = await manager.get_or_create_conversation(body.session_id, body.client_id, body.channel)
    return revision_response(conversation_document(record), record.revision)


@routes.get("/conversations/{conversation_id}", response=ConversationBody, revised=True)
async def get_conversation(call: Call[NoBody, NoQuery]) -> Reply:
    """Return the record of a conversation without messages. The ETag is the revision."""
    record = await call.manager.get_conversation(call.conversation_id)
    # A new summary does not change the revision.
    if call.has_revision(record.revision) and record.summary is None:
        return not_modified(record.revision)
    return revision_response(conversation_document(record), record.revision)


@routes.patch("/conversations/{conversation_id}", response=ConversationBody, revised=True)
async def update_conversation(call: Call[ChangesBody, NoQuery]) -> Reply:
    """Change a record.

    Omitted fields do not change; null clears a field. With `If-Match`, the revision must be unchanged.
    """
    changes, clear = _changes(call.body)
    record = await call.manager.update_metadata(
        call.conversation_id, **changes, clear=clear, expected_revision=call.expected_revision
    )
    return revision_response(conversation_document(record), record.revision)


def _changes(body: ChangesBody) -> tuple[dict[str, Any], list[str]]:
    given = {name: getattr(body, name) for name in body.__struct_fields__}
    clear = [name for name, value in given.items() if value is None]
    changes = {name: value for name, value in given.items() if value is not UNSET and value is not None}
    if "ttl" in changes:
        changes["ttl"] = seconds(changes["ttl"], field="ttl")
    return changes, clear


@routes.delete("/conversations/{conversation_id}", revised=True)
async def delete_conversation(call: Call[NoBody, NoQuery]) -> Reply:
    """Delete a conversation. A conversation that does not exist is not an error."""
    await call.manager.delete_conversation(call.conversation_id, expected_revision=call.expected_revision)
    return NO_CONTENT


@routes.post("/conversations/{conversation_id}/read", response=ConversationBody)
async def mark_read(call: Call[NoBody, NoQuery]) -> Reply:
    """Set the unread count to 0."""
    record = await call.manager.mark_read(call.conversation_id)
    return revision_response(conversation_document(record), record.revision)


@routes.put("/conversations/{conversation_id}/client", response=ConversationBody)
async def link_client(call: Call[ClientLink, NoQuery]) -> Reply:
    """Link the conversation to a client."""
    record = await call.manager.associate_client(
        call.conversation_id, call.body.client_id, call.body.client_name
    )
    return revision_response(conversation_document(record), record.revision)


@routes.delete("/conversations/{conversation_id}/client", response=ConversationBody, status=200)
async def unlink_client(call: Call[NoBody, NoQuery]) -> Reply:
    """Remove the client. Later messages do not link the conversation automatically."""
    record = await call.manager.association.unlink_conversation(call.conversation_id)
    return revision_response(conversation_document(record), record.revision)


@routes.get("/conversations/{conversation_id}/lifetime", response=LifetimeBody)
async def get_lifetime(call: Call[NoBody, NoQuery]) -> Reply:
    """Return the lifetime of a conversation and the rule it follows from."""
    return json_response(lifetime_document(await call.manager.lifetime(call.conversation_id)))


# Overview


@overview.get("/stats", response=StatsBody, route_class="search")
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
    average = totals["messages"] / totals["conversations"] if totals["conversations"] else 0.0
    counts = {name: totals[name] for name in names}
    return {**counts, "messages_per_conversation": average, **by, "last_activity": last}


@overview.get("/owners", response=OwnersBody, needs_owner=False)
async def list_owners(call: Call[NoBody, NoQuery]) -> Reply:
    """List the owners with data that the key has access to."""
    allowed = call.caller.owners
    found = [owner async for owner in call.service.memory.owners() if allowed is None or owner in allowed]
    return json_response({"owners": sorted(found)})


# Shared with other routes


def with_idle_time(manager: ConversationManager, idle_after: float | None) -> ConversationManager:
    """Return a manager with this idle time; None selects the server's."""
    span = seconds(idle_after, field="idle_after")
    return manager if span is None else manager.idling_after(span)


def link_to_next(call: Call[Any, Any], name: str, cursor: object) -> tuple[Header, ...]:
    """Return a `Link` header to the next page: this request with another cursor."""
    if cursor is None:
        return ()
    scope = call.request.scope
    given = [pair for pair in call.request.query_params.multi_items() if pair[0] != name]
    query = urlencode([*given, (name, str(cursor))])
    path = quote(scope["raw_path"], safe="/%~")
    return ((b"link", f'<{path}?{query}>; rel="next"'.encode("ascii")),)
