"""Convert values to JSON documents and back, and documents to bytes.

`x_document` and `x_of` are inverse: the value that one side renders equals the value that the other reads.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NoReturn

import msgspec
from msgspec import UNSET

from aforesaid.contracts import Appended, Entry
from aforesaid.errors import InvalidInput, Malformed, shown
from aforesaid.model.contexts import Context, Report
from aforesaid.model.conversations import Conversation, Page
from aforesaid.model.lifetimes import Applied, Lifetime, RetentionRules
from aforesaid.model.messages import Message, OpenTurn

# JSON, including lone surrogates, which stores accept but UTF-8 cannot represent


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def to_json(document: Any) -> bytes:
    """Encode a document."""
    try:
        return _encode(document)
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but JSON can escape it.
        return json.dumps(msgspec.to_builtins(document), ensure_ascii=True).encode()


def from_json(body: bytes) -> Any:
    """Decode JSON to plain values. Raises `Malformed`."""
    try:
        return _decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return _decode_with_surrogates(body, error)


def _decode_with_surrogates(body: bytes, error: Exception) -> Any:
    try:
        return json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Malformed(f"the body is not valid JSON: {error}", field="body") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


# Values


Document = dict[str, Any]


def message_document(message: Message) -> Document:
    """Return the message as a document; `Message.from_dict` is the inverse."""
    return message.to_dict()


def conversation_document(record: Conversation) -> Document:
    """Return the record as a document."""
    # Every turn renders one. The JSON encoder formats datetimes faster than `isoformat`.
    document = record.typed()
    document["ttl"] = _in_seconds(record.ttl)
    document["messages"] = [message.to_dict() for message in record.messages]
    return document


def conversation_of(document: Mapping[str, Any]) -> Conversation:
    return Conversation(**conversation_fields(document))


def conversation_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the typed fields of a record in a document, and its other fields unchanged."""
    fields = dict(document)
    for name in ("created_at", "updated_at", "last_message_at", "expires_at"):
        fields[name] = _datetime(fields.get(name))
    fields["ttl"] = seconds(fields.get("ttl"), field="ttl")
    fields["tags"] = tuple(fields.get("tags", ()))
    fields["messages"] = tuple(Message.from_dict(message) for message in fields.get("messages", ()))
    return fields


def page_document(page: Page) -> Document:
    return {"conversations": [conversation_document(each) for each in page.conversations], "next": page.next}


def page_of(document: Mapping[str, Any]) -> Page:
    return Page(
        conversations=tuple(conversation_of(each) for each in document["conversations"]),
        next=document["next"],
        degraded=document.get("degraded", False),
    )


def entry_document(entry: Entry) -> Document:
    """Return the entry as a document. `unreadable` has the reason why a message cannot be read."""
    return {
        "conversation_id": entry.conversation_id,
        "sequence": entry.sequence,
        "revision": entry.revision,
        "stored_at": entry.stored_at,
        "message": entry.message.to_dict(),
        "tokens": entry.message.tokens,
        "unreadable": entry.unreadable,
    }


def entry_of(document: Mapping[str, Any]) -> Entry:
    stored_at = _datetime(document["stored_at"])
    assert stored_at is not None
    return Entry(
        conversation_id=document["conversation_id"],
        sequence=document["sequence"],
        revision=document["revision"],
        stored_at=stored_at,
        message=Message.from_dict(document["message"]).with_(tokens=document.get("tokens", {})),
        unreadable=document.get("unreadable"),
    )


def open_turn_document(turn: OpenTurn) -> Document:
    """Return the open turn as a document."""
    return {
        "id": turn.id,
        "conversation_id": turn.conversation_id,
        "messages": [message.to_dict() for message in turn.messages],
        "opened_at": turn.opened_at,
    }


def open_turn_of(document: Mapping[str, Any]) -> OpenTurn:
    opened_at = _datetime(document["opened_at"])
    assert opened_at is not None
    return OpenTurn(
        id=document["id"],
        conversation_id=document["conversation_id"],
        messages=tuple(Message.from_dict(message) for message in document["messages"]),
        opened_at=opened_at,
    )


def appended_document(appended: Appended) -> Document:
    return {
        "conversation": conversation_document(appended.conversation),
        "new": [entry_document(entry) for entry in appended.new],
        "known": [entry_document(entry) for entry in appended.known],
    }


def appended_of(document: Mapping[str, Any]) -> Appended:
    return Appended(
        conversation=conversation_of(document["conversation"]),
        new=tuple(entry_of(entry) for entry in document["new"]),
        known=tuple(entry_of(entry) for entry in document["known"]),
    )


def context_document(context: Context) -> Document:
    return {"messages": [message.to_dict() for message in context.messages], "report": context.report}


def context_of(document: Mapping[str, Any]) -> Context:
    return Context(
        messages=tuple(Message.from_dict(message) for message in document["messages"]),
        report=msgspec.convert(document["report"], Report),
    )


# Lifetimes in seconds; null means forever


def lifetime_document(applied: Applied) -> Document:
    return {"ttl": _in_seconds(applied.ttl), "step": applied.step, "name": applied.name, "why": applied.why}


def rules_document(rules: RetentionRules) -> Document:
    """Return the rules as a document, with `owner` only if the owner has a default lifetime."""
    given = {} if rules.owner is UNSET else {"owner": _in_seconds(rules.owner)}
    named = {
        field: {name: _in_seconds(ttl) for name, ttl in getattr(rules, field).items()}
        for field in ("channels", "tags", "conversations")
    }
    return {**given, **named}


def rules_of(document: Mapping[str, Any]) -> RetentionRules:
    return RetentionRules(
        owner=seconds(document["owner"], field="owner") if "owner" in document else UNSET,
        channels=_lifetimes(document, "channels"),
        tags=_lifetimes(document, "tags"),
        conversations=_lifetimes(document, "conversations"),
    )


def _lifetimes(document: Mapping[str, Any], field: str) -> dict[str, Lifetime]:
    return {name: seconds(ttl, field=field) for name, ttl in document.get(field, {}).items()}


def _in_seconds(span: Lifetime) -> float | None:
    return None if span is None else span.total_seconds()


def seconds(value: float | None, *, field: str) -> timedelta | None:
    """Convert seconds to a timedelta; None stays None."""
    try:
        return None if value is None else timedelta(seconds=value)
    except (OverflowError, TypeError, ValueError):
        raise InvalidInput(
            f"{field} must be a number of seconds; got {shown(value)}", field=field, value=value
        ) from None


def _datetime(value: Any) -> datetime | None:
    return msgspec.convert(value, datetime | None)
