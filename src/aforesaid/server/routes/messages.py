"""Read, append, clear and redact messages."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from aforesaid.contracts import Appended, Position
from aforesaid.dialects import read
from aforesaid.dialects.tombstones import MARK
from aforesaid.errors import InvalidInput, shown
from aforesaid.model.messages import Message
from aforesaid.protocol import (
    appended_document,
    conversation_document,
    entry_document,
    from_json,
    message_document,
)
from aforesaid.protocol.bodies import (
    AppendedBody,
    ConversationBody,
    Count,
    EntriesPage,
    InterruptionBody,
    Limit,
    MessageBody,
    RedactionBody,
    SessionTurnBody,
    TurnBody,
)
from aforesaid.server.decoding import convert, parse_message, parse_turn
from aforesaid.server.endpoints import Call, NoBody, NoQuery, Reply, Routes
from aforesaid.server.idempotency import Append, append_once, has_idempotency_key
from aforesaid.server.responses import json_response, revision_response
from aforesaid.server.routes.conversations import link_to_next, with_idle_time

routes = Routes("messages")


class LogPage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of the log: from the oldest message by `offset`, or from the newest by `before`."""

    limit: Limit = 50
    offset: Count | None = None
    before: Annotated[str, Meta(description="`latest`, or the `next` of an earlier page.")] | None = None


@routes.get("/conversations/{conversation_id}/messages", response=EntriesPage)
async def list_messages(call: Call[NoBody, LogPage]) -> Reply:
    """Return part of the log, oldest message first.

    `offset` counts from the oldest message and is 0 by default. `before=latest` returns the newest messages;
    `next` is then the cursor of the messages before them and stays valid when messages are added.
    """
    query = call.query
    if query.before is None:
        return await _page_from_oldest(call, query.offset or 0)
    if query.offset is not None:
        raise InvalidInput("offset and before are mutually exclusive", field="before")
    return await _page_from_newest(call, query.before)


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
    """Store one message. A repeat with the same id or `Idempotency-Key` is stored once."""
    return await _append(call, [parse_message(call.raw)], None)


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
    return await _append(call, messages, expected)


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

    stored = await append_once(call, messages, append)
    return revision_response(appended_document(stored), stored.conversation.revision, status=201)


async def _append(call: Call[Any, NoQuery], messages: Sequence[Message], expected: int | None) -> Reply:
    revision, conversation_id = call.expected_revision, call.conversation_id
    append: Append = partial(
        call.manager.append,
        conversation_id,
        expected_revision=expected if revision is None else revision,
    )
    if has_idempotency_key(call):
        stored = await append_once(call, messages, append, conversation_id=conversation_id)
    else:
        stored = await append(messages)
    return revision_response(appended_document(stored), stored.conversation.revision, status=201)


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
