"""The document: everybody's shelves as one JSON text that a person can read, and back.

    {
      "format": "aforesaid.conversations",
      "version": 1,
      "owners": {
        "erin": {
          "sessions": {"kitchen": "01952f3e-…"},
          "conversations": [
            {
              "record": {"id": "01952f3e-…", "channel": "voice", …},
              "next_sequence": 3,
              "messages": [
                {"sequence":1,"revision":1,"stored_at":"…","message":{"role":"user","content":"…",…}},
                {"sequence":2,"revision":1,"stored_at":"…","message":{"role":"assistant",…}}
              ]
            }
          ],
          "documents": [
            {"kind":"note","key":"coffee","data":"YmxhY2s=","version":1,"updated_at":"…"}
          ]
        }
      }
    }

A record has a line for each field; a message has a line of its own, in reading order; so has a
document, whose data are in base64. The messages
are the truth: what a record says of them (how many, when and by whom the last) is derived from them
on reading, so that a message can be taken out by hand. Keys that are not known are passed over.
Pure: text in, shelves out; the file is the business of `files`.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import asdict, replace

from aforesaid.contracts import Document, Place, Position, parse_place
from aforesaid.errors import InvalidInput, InvalidMessage, StoreDamaged, StoreForeign, shown
from aforesaid.model.clock import from_micros, parse_moment, to_micros
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message, Role
from aforesaid.model.wire import encode_message
from aforesaid.stores.owner_data import Log, OwnerData, Slot

FORMAT = "aforesaid.conversations"
VERSION = 1

Shelves = Mapping[str, OwnerData]
Pieces = Iterator[bytes]

_encoder = msgspec.json.Encoder()
_warnings = logging.getLogger("aforesaid.stores.json_file")


class _Line(Struct, frozen=True):
    """A message as the document keeps it, on its way out."""

    sequence: int
    revision: int
    stored_at: datetime
    message: Raw


class _KeptMessage(Struct, frozen=True):
    sequence: Annotated[int, Meta(ge=1)]
    revision: Annotated[int, Meta(ge=0)]
    stored_at: Annotated[datetime, Meta(tz=True)]
    message: Any
    """Read one by one, for one that cannot be read must not keep the others from being read."""


class _KeptDocument(Struct, frozen=True):
    kind: str
    key: str
    data: bytes
    version: Annotated[int, Meta(ge=1)]
    updated_at: Annotated[datetime, Meta(tz=True)]


class _KeptConversation(Struct, frozen=True):
    record: Conversation
    messages: list[_KeptMessage] = []
    next_sequence: Annotated[int, Meta(ge=1)] = 1
    documents: list[_KeptDocument] = []
    head: str | None = None


class _KeptOwner(Struct, frozen=True):
    sessions: dict[str, str] = {}
    conversations: list[_KeptConversation] = []
    documents: list[_KeptDocument] = []


class _Document(Struct, frozen=True):
    owners: dict[str, _KeptOwner] = {}


# Out


def write_document(shelves: Shelves) -> bytes:
    """The document of these shelves."""
    return b"".join(_document(shelves))


# The text is handed on in pieces and joined once: at some megabytes, every copy between costs milliseconds.


def _document(shelves: Shelves) -> Pieces:
    yield b'{\n  "format": "%b",\n  "version": %d,\n  "owners": ' % (FORMAT.encode(), VERSION)
    owners = (
        (b"    %b: " % _encoder.encode(owner), *_owner(owner_data))
        for owner, owner_data in sorted(shelves.items())
    )
    yield from _block(owners, b"{}", closing=b"  ")
    yield b"\n}\n"


def _owner(owner_data: OwnerData) -> Pieces:
    yield b'{\n      "sessions": '
    yield from _fields(owner_data.sessions, closing=b"      ")
    yield b',\n      "conversations": '
    conversations = ((b"        ", *_conversation(log)) for log in owner_data.logs.values())
    yield from _block(conversations, b"[]", closing=b"      ")
    yield from _documents(owner_data.documents, closing=b"      ")
    yield b"\n    }"


def _conversation(log: Log) -> Pieces:
    record = {field: value for field, value in asdict(log.record).items() if field != "messages"}
    yield b'{\n          "record": '
    yield from _fields(record, closing=b"          ")
    if log.head is not None:
        yield b',\n          "head": %b' % _encoder.encode(log.head)
    yield b',\n          "next_sequence": %d,\n          "messages": ' % log.next_sequence
    messages = [(b"            ", _messages(log.slots))] if log.slots else []
    yield from _block(messages, b"[]", closing=b"          ")
    yield from _documents(log.documents, closing=b"          ")
    yield b"\n        }"


def _documents(documents: Mapping[Place, Document], *, closing: bytes) -> Pieces:
    """The documents, sorted by their places, each on a line of its own; nothing where there are none."""
    if not documents:
        return
    yield b',\n%b"documents": ' % closing
    lines = ((closing, b"  ", _encoder.encode(_kept(one))) for _, one in sorted(documents.items()))
    yield from _block(lines, b"[]", closing=closing)


def _kept(document: Document) -> _KeptDocument:
    return _KeptDocument(document.kind, document.key, document.data, document.version, document.updated_at)


def _messages(slots: Sequence[Slot]) -> bytes:
    lines = [_Line(slot.position.sequence, slot.revision, slot.stored_at, Raw(slot.body)) for slot in slots]
    # No body has a line break in it, so the breaks between the lines are all there are.
    return _encoder.encode_lines(lines).removesuffix(b"\n").replace(b"\n", b",\n            ")


def _fields(values: Mapping[str, object], *, closing: bytes) -> Pieces:
    lines = (
        (b"%b  %b: %b" % (closing, _encoder.encode(key), _encoder.encode(value)),)
        for key, value in values.items()
    )
    return _block(lines, b"{}", closing=closing)


def _block(items: Iterable[Iterable[bytes]], brackets: bytes, *, closing: bytes) -> Pieces:
    """The items between brackets, each beginning on a line of its own; or the brackets alone."""
    before = brackets[:1] + b"\n"
    for item in items:
        yield before
        yield from item
        before = b",\n"
    yield brackets if before[:1] == brackets[:1] else b"\n" + closing + brackets[1:]


# In


def read_document(text: bytes, *, where: str) -> dict[str, OwnerData]:
    """The shelves of this document. Errors begin with `where`."""
    try:
        tree = _parse(text)
    except (ValueError, RecursionError) as error:
        raise StoreDamaged(f"{where} is damaged: it is not JSON ({error})") from error
    _check_ours(tree, where)
    try:
        owners = msgspec.convert(tree, _Document).owners
        return {parse_name(owner, field="owner"): _shelf(kept) for owner, kept in owners.items()}
    except (msgspec.ValidationError, InvalidInput, RecursionError) as error:
        raise StoreDamaged(f"{where} is damaged: {error}") from error


def _parse(text: bytes) -> Any:
    # The standard parser: it alone reads back the half of a surrogate pair and numbers of any size.
    # Some editors put a mark at the beginning of a file; `utf-8-sig` takes it off.
    return json.loads(text.decode("utf-8-sig"), parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _check_ours(tree: Any, where: str) -> None:
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise StoreForeign(f"{where} is JSON of another program (it does not say {FORMAT!r})")
    version = tree.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise StoreDamaged(f"{where} is damaged: its version is {shown(version)}")
    if version > VERSION:
        raise StoreForeign(f"{where} was written by a newer release of Aforesaid (version {version})")


def _shelf(kept: _KeptOwner) -> OwnerData:
    owner_data = OwnerData(sessions=kept.sessions, documents=_held(kept.documents))
    for conversation in kept.conversations:
        log = _log(conversation)
        if log.record.id in owner_data.logs:
            raise InvalidInput(f"the conversation {log.record.id} is there twice")
        owner_data.logs[log.record.id] = log
    return owner_data


class _Read(NamedTuple):
    """What a line says of its message; where it cannot be read, only that it stays as it is."""

    slot: Slot
    message_id: str | None
    role: Role | None


def _held(kept: Sequence[_KeptDocument], conversation_id: str | None = None) -> dict[Place, Document]:
    held: dict[Place, Document] = {}
    for one in kept:
        place = parse_place(one.kind, one.key, conversation_id)
        moment = parse_moment(one.updated_at, field="updated_at")
        document = place.document(one.data, version=one.version, updated_at=moment)
        if held.setdefault(place, document) is not document:
            raise InvalidInput(f"the document {shown(one.key)} of kind {shown(one.kind)} is there twice")
    return held


def _log(kept: _KeptConversation) -> Log:
    documents = _held(kept.documents, kept.record.id)
    log = Log(record=kept.record, next_sequence=kept.next_sequence, documents=documents, head=kept.head)
    taken = set[int]()
    lines = [_read(line) for line in kept.messages]
    for slot, message_id, _ in lines:
        sequence = slot.position.sequence
        if sequence in taken:
            raise InvalidInput(f"conversation {kept.record.id} has the sequence {sequence} twice")
        taken.add(sequence)
        log.slots.append(slot)
        if message_id is not None and log.by_id.setdefault(message_id, slot) is not slot:
            raise InvalidInput(f"conversation {kept.record.id} has the message {shown(message_id)} twice")
    log.slots.sort(key=lambda slot: slot.position)
    log.next_sequence = max(log.next_sequence, max(taken, default=0) + 1)
    log.record = _derived(kept, lines)
    return log


def _read(line: _KeptMessage) -> _Read:
    try:
        message = msgspec.convert(line.message, Message)
    except msgspec.ValidationError as error:
        return _left_as_it_is(line, error)
    if message.timestamp is None:
        message = message.with_(timestamp=line.stored_at)  # a line that was added by hand
    return _Read(_slot(line, message.timestamp, encode_message(message)), message.message_id, message.role)


def _left_as_it_is(line: _KeptMessage, error: msgspec.ValidationError) -> _Read:
    _warnings.warning("message %d cannot be read and is set aside: %s", line.sequence, error)
    said = line.message if isinstance(line.message, dict) else {}
    try:
        moment = parse_moment(said.get("timestamp") or "", field="timestamp")
    except InvalidInput:
        moment = line.stored_at
    message_id = said.get("message_id")
    slot = _slot(line, moment, json.dumps(line.message).encode())
    return _Read(slot, message_id if isinstance(message_id, str) and message_id else None, None)


def _slot(line: _KeptMessage, moment: datetime | None, body: bytes) -> Slot:
    assert moment is not None
    return Slot(Position(to_micros(moment), line.sequence), line.revision, line.stored_at, body)


def _derived(kept: _KeptConversation, lines: Sequence[_Read]) -> Conversation:
    """The record, with what it says of the messages taken from the messages."""
    for field in ("created_at", "updated_at", "expires_at"):
        value = getattr(kept.record, field)
        if value is not None:
            parse_moment(value, field=field)
    last = max(lines, key=lambda line: line.slot.position, default=None)
    return replace(
        kept.record,
        message_count=len(lines),
        last_message_at=from_micros(last.slot.position.micros) if last else None,
        last_message_from=last.role if last else None,
        messages=(),
    )


# What can be written but not read back

_FEW_BRACKETS = 100
_ROOM = 100
"""Levels kept free for the document around a message and for the calls that read it."""


def check_depth(bodies: Iterable[bytes]) -> None:
    """Refuse a message that is nested so deep that the document could be written but not read."""
    for body in bodies:
        if body.count(b"[") + body.count(b"{") > _FEW_BRACKETS:
            _check_readable(body)


def _check_readable(body: bytes) -> None:
    try:
        _parse(b"[" * _ROOM + body + b"]" * _ROOM)
    except RecursionError:
        raise InvalidMessage("content is nested too deep to be stored", field="content") from None
