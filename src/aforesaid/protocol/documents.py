"""Convert values and errors to JSON documents and back, and documents to bytes."""

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from inspect import signature
from typing import Any, NoReturn

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from aforesaid import errors
from aforesaid.contracts import Appended, Entry, unreadable_reason
from aforesaid.errors import AforesaidError, InvalidInput, Malformed, shown
from aforesaid.model.contexts import Context, Report
from aforesaid.model.conversations import Conversation, Page
from aforesaid.model.lifetimes import Applied, Lifetime, RetentionRules
from aforesaid.model.lineages import Ancestor
from aforesaid.model.messages import Message, OpenTurn
from aforesaid.model.participants import Participant

# Convert errors to RFC 9457 problems and back to the same errors.
#
#     {"type": "urn:aforesaid:problem:revision-conflict", "title": "The conversation has changed since it was
#      read.", "status": 409, "detail": "…", "conversation_id": "…", "expected": 3, "actual": 4}
#
# `type` names the error's class; further members hold its data. A failure inside the server (store, file,
# provider) has a general `detail`, because messages with paths and hosts belong in the server's log.


PROBLEM_JSON = "application/problem+json"
PREFIX = "urn:aforesaid:problem:"

# Error class → status. The first matching row applies.
STATUSES: tuple[tuple[type[AforesaidError], int], ...] = (
    (errors.Malformed, 400),
    (errors.TooLarge, 413),
    (errors.InvalidInput, 422),
    (errors.NotFound, 404),
    (errors.KeyReused, 422),
    (errors.Conflict, 409),
    (errors.NotAuthenticated, 401),
    (errors.TooManyRequests, 429),
    (errors.AccessError, 403),
    (errors.StoreUnavailable, 503),
    (errors.StoreClosed, 503),
    (errors.KeyUnavailable, 503),
    (errors.WindowError, 422),
    (errors.AgentUnavailable, 503),
    (errors.AgentError, 502),
    (errors.NotUnderstood, 422),
    (errors.TranscriberUnavailable, 503),
    (errors.TranscriberError, 502),
    (errors.MissingExtra, 501),
    (AforesaidError, 500),
)

# Attributes of errors whose names are problem members already.
_RENAMED_MEMBERS = {"status": "provider_status"}
# Constructor parameters that only form the message.
_MESSAGE_PARAMETERS = frozenset(("message", "what"))
_MEMBERS = frozenset(("type", "title", "status", "detail", "instance"))
_LONGEST_VALUE = 200


def status_of(error: AforesaidError) -> int:
    """Return the HTTP status of an error."""
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def problem_of(error: AforesaidError, *, status: int | None = None) -> dict[str, Any]:
    """Return the problem of an error. Only errors caused by the caller keep their own message."""
    code = status_of(error) if status is None else status
    data = {
        _RENAMED_MEMBERS.get(name, name): _jsonable(value)
        for name, value in vars(error).items()
        if not name.startswith("_")
    }
    return {
        "type": PREFIX + _kebab(type(error).__name__),
        "title": _title(type(error)),
        "status": code,
        "detail": _title(type(error)) if _is_internal(error) and code >= 500 else str(error),
        **{name: value for name, value in data.items() if name not in _MEMBERS},
    }


def error_of(problem: Mapping[str, Any], *, status: int = 500) -> AforesaidError:
    """Return the error of a problem. The status selects the class if the type is unknown."""
    kind = _BY_TYPE.get(str(problem.get("type", ""))) or _class_for_status(status)
    # Without `__init__`: constructors build the message from data that a problem may lack.
    error = kind.__new__(kind)
    Exception.__init__(error, str(problem.get("detail") or problem.get("title") or _title(kind)))
    given = {name: value for name, value in problem.items() if name not in _MEMBERS and name[:1] != "_"}
    for ours, theirs in _RENAMED_MEMBERS.items():
        if theirs in given:
            given[ours] = given.pop(theirs)
    vars(error).update({**dict.fromkeys(_data_of(kind)), **given})
    return error


def _data_of(kind: type[AforesaidError]) -> list[str]:
    """Return the attribute names of an error class, so that every attribute exists on a decoded error."""
    return [name for name in signature(kind).parameters if name not in _MESSAGE_PARAMETERS]


def _is_internal(error: AforesaidError) -> bool:
    """Return whether the message is for the server's operator only."""
    return isinstance(
        error, (errors.StoreError, errors.EncoderFailed, errors.AgentError, errors.TranscriberError)
    )


def _title(kind: type[AforesaidError]) -> str:
    return (kind.__doc__ or "").strip()


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def _jsonable(value: object) -> object:
    """Return the value if JSON clients can use it, else its short text form."""
    if value is None or isinstance(value, bool | float):
        return value
    # JavaScript clients read JSON numbers as doubles.
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    if isinstance(value, str) and len(value) <= _LONGEST_VALUE and not _has_surrogates(value):
        return value
    return errors.shown(value)


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _class_for_status(status: int) -> type[AforesaidError]:
    """Return the error class for a response that is not one of our problems, such as a proxy's."""
    return _BY_STATUS.get(status) or (errors.StoreUnavailable if status in (502, 504) else AforesaidError)


def _subclasses(kind: type[AforesaidError]) -> list[type[AforesaidError]]:
    return [kind, *(each for below in kind.__subclasses__() for each in _subclasses(below))]


# Problem type → error class.
_BY_TYPE = {
    PREFIX + _kebab(kind.__name__): kind
    for kind in _subclasses(AforesaidError)
    if kind.__module__ == errors.__name__
}

_BY_STATUS: dict[int, type[AforesaidError]] = {
    400: errors.Malformed,
    401: errors.NotAuthenticated,
    403: errors.NotAllowed,
    404: errors.NotFound,
    409: errors.Conflict,
    412: errors.Conflict,
    413: errors.TooLarge,
    422: errors.InvalidInput,
    429: errors.TooManyRequests,
    503: errors.StoreUnavailable,
}


# Convert values to JSON documents and back, and documents to bytes.
#
# `x_document` and `x_of` are inverse: the value that one side renders equals the value that the other
# reads.


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
    document["participants"] = [one.to_dict() for one in record.participants]
    document["lineage"] = [one.fields() for one in record.lineage]
    return document


def conversation_of(document: Mapping[str, Any]) -> Conversation:
    """Return a record; fields that only a newer server knows, and the mark `degraded`, are ignored."""
    return Conversation.of_known(conversation_fields(document))


def conversation_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the typed fields of a record in a document, and its other fields unchanged."""
    fields = dict(document)
    for name in ("created_at", "updated_at", "last_message_at", "expires_at"):
        fields[name] = _datetime(fields.get(name))
    fields["ttl"] = seconds(fields.get("ttl"), field="ttl")
    fields["tags"] = tuple(fields.get("tags", ()))
    fields["lineage"] = tuple(Ancestor(**one) for one in fields.get("lineage", ()))
    fields["participants"] = tuple(map(Participant.from_dict, fields.get("participants", ())))
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


def write_entry(entry: Entry) -> bytes:
    """Encode an entry once for all watchers."""
    why = unreadable_reason(entry)
    if why is not None:
        placeholder = Message(role="system", content="", timestamp=entry.message.timestamp)
        entry = replace(entry, message=placeholder, unreadable=why)
    return to_json(entry_document(entry))
