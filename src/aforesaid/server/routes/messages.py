"""Messages and turns: read, add, clear, redact. Below: the manager."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from aforesaid.contracts import Appended, Position
from aforesaid.dialects import read
from aforesaid.dialects.blanks import MARK
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
from aforesaid.server.calls import Call, NoBody, NoQuery, converted
from aforesaid.server.decoding import given_message, given_turn
from aforesaid.server.endpoints import Reply, Routes
from aforesaid.server.idempotency import Append, may_be_repeated, once
from aforesaid.server.responses import as_json, at_revision
from aforesaid.server.routes.conversations import idling, link_to_next

routes = Routes("messages")


class LogPage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of the log: from the oldest by `offset`, or from the newest by `before`."""

    limit: Limit = 50
    offset: Count | None = None
    before: Annotated[str, Meta(description="`latest`, or the `next` of an earlier page.")] | None = None


@routes.get("/conversations/{conversation_id}/messages", answer=EntriesPage)
async def list_messages(call: Call[NoBody, LogPage]) -> Reply:
    """A part of the log, oldest message first.

    With `offset`, or with neither, counted from the oldest message. With `before=latest` the newest
    messages; `next` then leads to those before them, whatever is said meanwhile.
    """
    query = call.query
    if query.before is None:
        return await _from_the_oldest(call, query.offset or 0)
    if query.offset is not None:
        raise InvalidInput("offset and before exclude each other", field="before")
    return await _from_the_newest(call, query.before)


async def _from_the_oldest(call: Call[NoBody, LogPage], offset: int) -> Reply:
    limit = call.query.limit
    found = await call.manager.store.page(call.conversation_id, limit=limit + 1, offset=offset)
    following = offset + limit if len(found) > limit else None
    document = {
        "entries": [entry_document(entry) for entry in found[:limit]],
        "next": None if following is None else str(following),
    }
    return as_json(document, headers=link_to_next(call, "offset", following))


async def _from_the_newest(call: Call[NoBody, LogPage], cursor: str) -> Reply:
    limit = call.query.limit
    found = await call.manager.store.tail(call.conversation_id, limit=limit + 1, before=_position(cursor))
    entries = found[-limit:]
    more = f"{entries[0].position.micros}:{entries[0].position.sequence}" if len(found) > limit else None
    document = {"entries": [entry_document(entry) for entry in entries], "next": more}
    return as_json(document, headers=link_to_next(call, "before", more))


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
    answer=AppendedBody,
    status=201,
    raw=True,
    revised=True,
    idempotent=True,
)
async def add_message(call: Call[MessageBody, NoQuery]) -> Reply:
    """Store one message. Sent twice with one id, or one `Idempotency-Key`, it is stored once."""
    return await _stored(call, [given_message(call.raw)], None)


@routes.post(
    "/conversations/{conversation_id}/turns",
    answer=AppendedBody,
    status=201,
    raw=True,
    revised=True,
    idempotent=True,
)
async def add_turn(call: Call[TurnBody, NoQuery]) -> Reply:
    """Store a turn, all of it or nothing.

    Messages are in the documented form, or as a provider writes them. A message whose id is known is not
    stored again; with an `Idempotency-Key` messages without ids are known again, too. With `If-Match`, or
    `expected_revision`, only if nobody wrote since.
    """
    messages, expected = given_turn(call.raw)
    return await _stored(call, messages, expected)


@routes.post("/sessions/turns", answer=AppendedBody, status=201, raw=True, idempotent=True, errors=(404,))
async def add_session_turn(call: Call[SessionTurnBody, NoQuery]) -> Reply:
    """Store a turn in the conversation of a session, which is made when there is none."""
    body = converted(from_json(call.raw), SessionTurnBody)
    messages = read(list(body.messages), dialect=body.dialect)
    manager = idling(call.manager, body.idle_after)

    async def append(given: Sequence[Message]) -> Appended:
        return await manager.append_to_session(
            body.session_id, given, channel=body.channel, tags=tuple(body.tags)
        )

    stored = await once(call, messages, append)
    return at_revision(appended_document(stored), stored.conversation.revision, status=201)


async def _stored(call: Call[Any, NoQuery], messages: Sequence[Message], expected: int | None) -> Reply:
    revision, conversation_id = call.expected_revision, call.conversation_id
    append: Append = partial(
        call.manager.append,
        conversation_id,
        expected_revision=expected if revision is None else revision,
    )
    if may_be_repeated(call):
        stored = await once(call, messages, append, conversation_id=conversation_id)
    else:
        stored = await append(messages)
    return at_revision(appended_document(stored), stored.conversation.revision, status=201)


@routes.delete("/conversations/{conversation_id}/messages", answer=ConversationBody, status=200, revised=True)
async def clear_history(call: Call[NoBody, NoQuery]) -> Reply:
    """Remove the messages; the conversation itself stays."""
    record = await call.manager.clear_history(call.conversation_id, expected_revision=call.expected_revision)
    return at_revision(conversation_document(record), record.revision)


@routes.post("/conversations/{conversation_id}/interruptions", answer=MessageBody)
async def note_interruption(call: Call[InterruptionBody, NoQuery]) -> Reply:
    """Somebody cut in while an answer was spoken: note how much of it was heard.

    The answer stays as it was generated; a model sees what was heard.
    """
    body = call.body
    message = await call.manager.interrupted(
        call.conversation_id, body.message_id, heard=body.heard, spoken=body.spoken
    )
    return as_json(message_document(message))


@routes.post("/conversations/{conversation_id}/redactions", answer=MessageBody)
async def redact_message(call: Call[RedactionBody, NoQuery]) -> Reply:
    """Take the words out of a message; a mark stays in its place, and what ties it to tool calls."""
    message = await call.manager.redact(
        call.conversation_id,
        call.body.message_id,
        mark=MARK if call.body.mark is None else call.body.mark,
        scrub=call.body.scrub,
    )
    return as_json(message_document(message))
