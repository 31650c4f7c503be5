"""Read, append, clear and redact messages; open turns."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Annotated, Any

from msgspec import Meta, Struct

from aforesaid._internal.freshness import noting_freshness
from aforesaid.contracts import Appended, ConversationStore, Position
from aforesaid.dialects import read
from aforesaid.dialects.tombstones import MARK
from aforesaid.errors import DocumentConflict, InvalidInput, KeyReused, NotFound, shown
from aforesaid.model.messages import Message
from aforesaid.protocol import (
    appended_document,
    conversation_document,
    entry_document,
    from_json,
    message_document,
    open_turn_document,
)
from aforesaid.protocol.bodies import (
    AppendedBody,
    ConversationBody,
    Count,
    EntriesPage,
    InterruptionBody,
    Limit,
    MessageBody,
    Name,
    RedactionBody,
    RequestModel,
    ResponseModel,
    SessionTurnBody,
    TurnBody,
    Uuid,
)
from aforesaid.server.endpoints import (
    Call,
    Media,
    NoBody,
    NoQuery,
    Reply,
    Routes,
    convert,
    parse_message,
    parse_turn,
)
from aforesaid.server.responses import Response, json_response, revision_response
from aforesaid.server.routes.conversations import link_to_next, with_idle_time

# `Idempotency-Key`: execute a repeated write once and return the same response.
#
# Messages without an id get one derived from owner, key and index, so that every process recognises a
# repeat, even after a restart. The store keeps a digest of key and body for a day, to refuse the same key
# with another body.


KIND = "idempotency"
KEY_LIFETIME = timedelta(days=1)
LONGEST_KEY = 255
BYTES = "application/octet-stream"
_DIGEST = 32
# Keys to check for expiry in one cleanup.
_CLEANUP_BATCH = 50

Append = Callable[[Sequence[Message]], Awaitable[Appended]]


def has_idempotency_key(call: Call[Any, Any]) -> bool:
    """Return whether the request has an `Idempotency-Key`."""
    return b"idempotency-key" in call.headers


async def append_once(
    call: Call[Any, Any], messages: Sequence[Message], append: Append, *, conversation_id: str | None = None
) -> Appended:
    """Append, or return the result of an earlier request with the same key.

    The key's document stores the conversation if the request does not name it.
    """
    header = call.headers.get(b"idempotency-key")
    if header is None:
        return await append(messages)
    manager, key = call.manager, _fingerprint(call.manager.owner, header)
    # The path is included: the same key on another route is another request.
    digest = sha256(header + b"\0" + call.request.scope["raw_path"] + b"\0" + call.raw).digest()
    identified = with_ids(messages, key)
    earlier = await _claim(manager.store, key, digest)
    if earlier:
        return _as_first_response(await manager.append(earlier, identified))
    stored = await append(identified)
    if conversation_id is not None:
        # An earlier attempt may have stored the messages without a key.
        return _as_first_response(stored)
    await manager.store.put_document(KIND, key, digest + stored.conversation.id.encode())
    return stored if earlier is None else _as_first_response(stored)


def with_ids(messages: Sequence[Message], key: str) -> list[Message]:
    """Return the messages, with derived ids for messages without one."""
    return [
        message if message.message_id is not None else message.with_(message_id=f"once~{key}~{at}")
        for at, message in enumerate(messages)
    ]


def _as_first_response(stored: Appended) -> Appended:
    """Report known entries as new, so that a repeat gets the first response."""
    entries = sorted((*stored.known, *stored.new), key=lambda entry: entry.sequence)
    return Appended(conversation=stored.conversation, new=tuple(entries))


def _fingerprint(owner: str, header: bytes) -> str:
    if not 1 <= len(header) <= LONGEST_KEY:
        raise InvalidInput(
            f"Idempotency-Key must have 1 to {LONGEST_KEY} characters", field="Idempotency-Key"
        )
    # The length separates owner and key, so that different pairs never give the same bytes.
    return sha256(b"%d:%b%b" % (len(owner.encode()), owner.encode(), header)).hexdigest()[:40]


async def _claim(store: ConversationStore, key: str, digest: bytes) -> str | None:
    """Claim a key. Return None if it is new, else the conversation of the first request, empty if unknown.

    Raises `KeyReused` for another body.
    """
    try:
        await store.put_document(KIND, key, digest, expected_version=0)
    except DocumentConflict:
        found = await store.get_document(KIND, key)
        if found is not None and found.data[:_DIGEST] != digest:
            raise KeyReused from None
        return "" if found is None else found.data[_DIGEST:].decode()
    if key.startswith("0"):  # clean up on one of sixteen requests
        await _delete_expired(store, key)
    return None


async def _delete_expired(store: ConversationStore, key: str) -> None:
    """Delete some expired keys. Keys are random, so every key is checked eventually."""
    for document in await store.documents(KIND, after=key, limit=_CLEANUP_BATCH):
        if document.updated_at < store.now() - KEY_LIFETIME:
            await store.delete_document(KIND, document.key)


# Open turns: words of a user that have no answer yet.


open_turns = Routes("open turns")


class OpenTurnBody(ResponseModel, frozen=True, kw_only=True):
    """The words of a turn without an answer."""

    id: Name
    conversation_id: Uuid
    messages: list[MessageBody]
    opened_at: datetime


class OpenTurnsBody(ResponseModel, frozen=True, kw_only=True):
    """Open turns, oldest first."""

    open_turns: list[OpenTurnBody]


class DiscardBody(RequestModel, frozen=True, kw_only=True):
    """The open turn to remove."""

    turn_id: Name


class DiscardedBody(ResponseModel, frozen=True, kw_only=True):
    """Whether there was such an open turn."""

    discarded: bool


@open_turns.post("/conversations/{conversation_id}/open-turns", response=OpenTurnBody, status=201, raw=True)
async def open_turn(call: Call[TurnBody, NoQuery]) -> Reply:
    """Store the words of a turn before its answer exists. They are durable, and in no context.

    A repeat with the same first message id changes nothing. To answer, store the whole turn with `turns`,
    then discard the open turn.
    """
    messages, _ = parse_turn(call.raw)
    turn = await call.manager.open_turn(call.conversation_id, messages)
    return json_response(open_turn_document(turn), status=201)


@open_turns.get("/conversations/{conversation_id}/open-turns", response=OpenTurnsBody)
async def list_open_turns(call: Call[NoBody, NoQuery]) -> Reply:
    """List the turns without an answer, oldest first."""
    turns = await call.manager.unanswered(call.conversation_id)
    return json_response({"open_turns": [open_turn_document(turn) for turn in turns]})


@open_turns.post("/conversations/{conversation_id}/open-turns/discard", response=DiscardedBody)
async def discard_open_turn(call: Call[DiscardBody, NoQuery]) -> Reply:
    """Remove an open turn with its words. The log does not change."""
    discarded = await call.manager.discard_turn(call.conversation_id, call.body.turn_id)
    return json_response({"discarded": discarded})


# Read, append, clear and redact messages.


routes = Routes("messages")


class LogPage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of the log: from the oldest message by `offset`, or from the newest by `before`."""

    limit: Limit = 50
    offset: Count | None = None
    before: Annotated[str, Meta(description="`latest`, or the `next` of an earlier page.")] | None = None


@routes.get("/conversations/{conversation_id}/messages", response=EntriesPage)
async def list_messages(call: Call[NoBody, LogPage]) -> Reply:
    """Return part of the log, oldest message first.

    By default these are the newest messages; `next` is then the value of `before` for the messages before
    them, and stays valid when messages are added. `offset` counts from the oldest message.
    """
    query = call.query
    if query.offset is None:
        return await _page_from_newest(call, query.before or "latest")
    if query.before is not None:
        raise InvalidInput("offset and before are mutually exclusive", field="before")
    return await _page_from_oldest(call, query.offset)


async def _page_from_oldest(call: Call[NoBody, LogPage], offset: int) -> Reply:
    limit = call.query.limit
    # One more than the page: its presence shows that there is a next page.
    found = await call.manager.store.page(call.conversation_id, limit=limit + 1, offset=offset)
    following = offset + limit if len(found) > limit else None
    document = {
        "entries": [entry_document(entry) for entry in found[:limit]],
        "next": None if following is None else str(following),
    }
    return json_response(document, headers=link_to_next(call, "offset", following))


async def _page_from_newest(call: Call[NoBody, LogPage], before: str) -> Reply:
    limit = call.query.limit
    found = await call.manager.store.tail(call.conversation_id, limit=limit + 1, before=_position(before))
    entries = found[-limit:]
    cursor = f"{entries[0].position.micros}:{entries[0].position.sequence}" if len(found) > limit else None
    document = {"entries": [entry_document(entry) for entry in entries], "next": cursor}
    return json_response(document, headers=link_to_next(call, "before", cursor))


def _position(cursor: str) -> Position | None:
    if cursor == "latest":
        return None
    micros, _, sequence = cursor.partition(":")
    try:
        return Position(int(micros), int(sequence))
    except ValueError:
        raise InvalidInput(
            f"before must be `latest` or the `next` of an earlier page; got {shown(cursor)}", field="before"
        ) from None


@routes.post(
    "/conversations/{conversation_id}/messages",
    response=AppendedBody,
    status=201,
    raw=True,
    revised=True,
    idempotent=True,
)
async def add_message(call: Call[MessageBody, NoQuery]) -> Reply:
    """Store one message. A repeat with the same id or `Idempotency-Key` is stored once.

    The record has its latest messages.
    """
    manager = call.manager
    with noting_freshness() as freshness:
        stored = await _append(call, [parse_message(call.raw)], None)
    limit, assumed = manager.config.context_window_size, freshness.degraded
    record = await manager.latest.record_after(manager.store, stored, limit, assumed=assumed)
    return _reply(Appended(conversation=record, new=stored.new, known=stored.known))


@routes.post(
    "/conversations/{conversation_id}/turns",
    response=AppendedBody,
    status=201,
    raw=True,
    revised=True,
    idempotent=True,
)
async def add_turn(call: Call[TurnBody, NoQuery]) -> Reply:
    """Store a turn. Either all of its messages are stored or none.

    Messages are `MessageBody` objects or have the format of a provider. A message with a stored id is not
    stored again. An `Idempotency-Key` does the same for messages without ids. With `If-Match` or
    `expected_revision`, the revision must be unchanged.
    """
    messages, expected = parse_turn(call.raw)
    return _reply(await _append(call, messages, expected))


@routes.post("/sessions/turns", response=AppendedBody, status=201, raw=True, idempotent=True, errors=(404,))
async def add_session_turn(call: Call[SessionTurnBody, NoQuery]) -> Reply:
    """Store a turn in the conversation of a session. Create the conversation if there is none."""
    body = convert(from_json(call.raw), SessionTurnBody)
    messages = read(list(body.messages), dialect=body.dialect)
    manager = with_idle_time(call.manager, body.idle_after)

    async def append(given: Sequence[Message]) -> Appended:
        return await manager.append_to_session(
            body.session_id, given, channel=body.channel, tags=tuple(body.tags)
        )

    return _reply(await append_once(call, messages, append))


async def _append(call: Call[Any, NoQuery], messages: Sequence[Message], expected: int | None) -> Appended:
    revision, conversation_id = call.expected_revision, call.conversation_id
    append: Append = partial(
        call.manager.append,
        conversation_id,
        expected_revision=expected if revision is None else revision,
    )
    if has_idempotency_key(call):
        return await append_once(call, messages, append, conversation_id=conversation_id)
    return await append(messages)


def _reply(stored: Appended) -> Reply:
    return revision_response(appended_document(stored), stored.conversation.revision, status=201)


@routes.put("/conversations/{conversation_id}/messages", response=ConversationBody, raw=True, revised=True)
async def rewrite_history(call: Call[TurnBody, NoQuery]) -> Reply:
    """Replace all messages of a conversation in one step. Ids that stay the same keep their messages."""
    messages, expected = parse_turn(call.raw)
    revision = call.expected_revision
    record = await call.manager.rewrite_history(
        call.conversation_id, messages, expected_revision=expected if revision is None else revision
    )
    return revision_response(conversation_document(record), record.revision)


@routes.delete(
    "/conversations/{conversation_id}/messages", response=ConversationBody, status=200, revised=True
)
async def clear_history(call: Call[NoBody, NoQuery]) -> Reply:
    """Remove all messages of a conversation and keep its record."""
    record = await call.manager.clear_history(call.conversation_id, expected_revision=call.expected_revision)
    return revision_response(conversation_document(record), record.revision)


@routes.post("/conversations/{conversation_id}/interruptions", response=MessageBody)
async def note_interruption(call: Call[InterruptionBody, NoQuery]) -> Reply:
    """Record that the user interrupted a spoken answer, and the part that was heard.

    The stored answer does not change; contexts contain the heard part.
    """
    body = call.body
    message = await call.manager.interrupted(
        call.conversation_id, body.message_id, heard=body.heard, spoken=body.spoken
    )
    return json_response(message_document(message))


@routes.post("/conversations/{conversation_id}/redactions", response=MessageBody)
async def redact_message(call: Call[RedactionBody, NoQuery]) -> Reply:
    """Redact a message. A mark replaces its text; references to tool calls stay."""
    message = await call.manager.redact(
        call.conversation_id,
        call.body.message_id,
        mark=MARK if call.body.mark is None else call.body.mark,
        scrub=call.body.scrub,
    )
    return json_response(message_document(message))


@routes.get(
    "/conversations/{conversation_id}/images/{sha256}",
    response=Media(type=BYTES, description="The bytes. The reference in the message has their media type."),
    errors=(404,),
)
async def read_image(call: Call[NoBody, NoQuery]) -> Reply:
    """Return an image that a message refers to by its SHA-256 (`aforesaid_blob`)."""
    record = await call.manager.get_conversation(call.conversation_id)
    found = await call.manager.images.read(record, call.path["sha256"])
    if found is None:
        raise NotFound("the server does not have this image")
    return Response(found, media=BYTES.encode())
