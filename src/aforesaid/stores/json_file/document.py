"""Convert all owners' data to one human-readable JSON document, and back.

    {
      "format": "aforesaid.conversations",
      "version": 2,
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

Each field of a record, each message (in reading order) and each document (data in base64) has its own line.
Counters and the last message of a record are derived from the messages on reading, so that messages can be
removed by hand. Unknown keys are ignored. These functions are pure; `files` accesses the disk.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct

from aforesaid.contracts import Document, Place, Position, parse_place
from aforesaid.errors import InvalidInput, InvalidMessage, StoreDamaged, StoreForeign, shown
from aforesaid.model.clock import from_micros, parse_moment, to_micros
from aforesaid.model.conversations import Conversation, decode_record
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message, Role
from aforesaid.model.wire import encode_message
from aforesaid.stores.encoded_logs import EncodedEntry, Log
from aforesaid.stores.owner_data import OwnerData

FORMAT = "aforesaid.conversations"
# 2: branches and participants. A document of version 1 has neither, and reads as it is; a release that knows
# only version 1 refuses version 2, because it would show a branch without the messages of its ancestors.
VERSION = 2
_HEADER = b'{\n  "format": "%b",\n  "version": %d,\n  "owners": ' % (FORMAT.encode(), VERSION)

OwnersData = Mapping[str, OwnerData]
Pieces = Iterator[bytes]

_encoder = msgspec.json.Encoder()
_warnings = logging.getLogger("aforesaid.stores.json_file")


class _Line(Struct, frozen=True):
    """A message as one line of the document, for writing."""

    sequence: int
    revision: int
    stored_at: datetime
    message: Raw


class _StoredMessage(Struct, frozen=True):
    sequence: Annotated[int, Meta(ge=1)]
    revision: Annotated[int, Meta(ge=0)]
    stored_at: Annotated[datetime, Meta(tz=True)]
    message: Any
    """Validated separately, so that one invalid message does not make the whole document invalid."""


class _StoredDocument(Struct, frozen=True):
    kind: str
    key: str
    data: bytes
    version: Annotated[int, Meta(ge=1)]
    updated_at: Annotated[datetime, Meta(tz=True)]


class _StoredConversation(Struct, frozen=True):
    record: Conversation
    messages: list[_StoredMessage] = []
    next_sequence: Annotated[int, Meta(ge=1)] = 1
    documents: list[_StoredDocument] = []
    head: str | None = None


class _StoredOwner(Struct, frozen=True):
    sessions: dict[str, str] = {}
    conversations: list[_StoredConversation] = []
    documents: list[_StoredDocument] = []


class _Document(Struct, frozen=True):
    owners: dict[str, _StoredOwner] = {}


# Writing


def write_document(owners_data: OwnersData) -> bytes:
    """Encode the document."""
    return b"".join(_document(owners_data))


# Generate the text in pieces and join them once: at several megabytes, each copy takes milliseconds.


def _document(owners_data: OwnersData) -> Pieces:
    yield _HEADER
    owners = (
        (b"    %b: " % _encoder.encode(owner), *_owner(owner_data))
        for owner, owner_data in sorted(owners_data.items())
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
    stored_elsewhere = ("messages", "summary")
    record = {field: value for field, value in log.record.typed().items() if field not in stored_elsewhere}
    yield b'{\n          "record": '
    yield from _fields(record, closing=b"          ")
    if log.head is not None:
        yield b',\n          "head": %b' % _encoder.encode(log.head)
    yield b',\n          "next_sequence": %d,\n          "messages": ' % log.next_sequence
    messages = [(b"            ", _messages(log.entries))] if log.entries else []
    yield from _block(messages, b"[]", closing=b"          ")
    yield from _documents(log.documents, closing=b"          ")
    yield b"\n        }"


def _documents(documents: Mapping[Place, Document], *, closing: bytes) -> Pieces:
    """Generate the documents, sorted by place, one per line; nothing if there are none."""
    if not documents:
        return
    yield b',\n%b"documents": ' % closing
    lines = ((closing, b"  ", _encoder.encode(_stored_document(one))) for _, one in sorted(documents.items()))
    yield from _block(lines, b"[]", closing=closing)


def _stored_document(document: Document) -> _StoredDocument:
    return _StoredDocument(document.kind, document.key, document.data, document.version, document.updated_at)


def _messages(encoded_entries: Sequence[EncodedEntry]) -> bytes:
    lines = [
        _Line(encoded.position.sequence, encoded.revision, encoded.stored_at, Raw(encoded.body))
        for encoded in encoded_entries
    ]
    # JSON bodies contain no line breaks, so every break separates two lines.
    return _encoder.encode_lines(lines).removesuffix(b"\n").replace(b"\n", b",\n            ")


def _fields(values: Mapping[str, object], *, closing: bytes) -> Pieces:
    lines = (
        (b"%b  %b: %b" % (closing, _encoder.encode(key), _encoder.encode(value)),)
        for key, value in values.items()
    )
    return _block(lines, b"{}", closing=closing)


def _block(items: Iterable[Iterable[bytes]], brackets: bytes, *, closing: bytes) -> Pieces:
    """Generate the items between brackets, one per line; or empty brackets."""
    before = brackets[:1] + b"\n"
    for item in items:
        yield before
        yield from item
        before = b",\n"
    yield brackets if before[:1] == brackets[:1] else b"\n" + closing + brackets[1:]


# Reading


def read_document(text: bytes, *, where: str) -> dict[str, OwnerData]:
    """Parse a document. Raise `StoreDamaged` or `StoreForeign`, with `where` at the start of the message."""
    tree = _tree(text, where)
    _check_ours(tree, where)
    try:
        owners = msgspec.convert(tree, _Document, dec_hook=decode_record).owners
        return {parse_name(owner, field="owner"): _owner_data(stored) for owner, stored in owners.items()}
    except (msgspec.ValidationError, InvalidInput, RecursionError) as error:
        raise StoreDamaged(f"{where} is damaged: {error}") from error


def _parse(text: bytes) -> Any:
    # Only the standard parser accepts lone surrogates and integers of any size. `utf-8-sig` removes the byte
    # order mark that some editors write.
    return json.loads(text.decode("utf-8-sig"), parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def document_version(text: bytes, *, where: str) -> int:
    """Return the version of a document, also that of a newer release."""
    # The documents that we wrote begin like this; parsing a large one takes long.
    return VERSION if text.startswith(_HEADER) else _version(_tree(text, where), where)


def _tree(text: bytes, where: str) -> Any:
    try:
        return _parse(text)
    except (ValueError, RecursionError) as error:
        raise StoreDamaged(f"{where} is damaged: it is not JSON ({error})") from error


def _check_ours(tree: Any, where: str) -> None:
    version = _version(tree, where)
    if version > VERSION:
        raise StoreForeign(f"{where} was written by a newer release of Aforesaid (version {version})")


def _version(tree: Any, where: str) -> int:
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise StoreForeign(f"{where} is JSON of another program (it does not say {FORMAT!r})")
    version = tree.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise StoreDamaged(f"{where} is damaged: its version is {shown(version)}")
    return version


def _owner_data(stored: _StoredOwner) -> OwnerData:
    owner_data = OwnerData(sessions=stored.sessions, documents=_read_documents(stored.documents))
    for conversation in stored.conversations:
        log = _log(conversation)
        if log.record.id in owner_data.logs:
            raise InvalidInput(f"the conversation {log.record.id} occurs twice")
        owner_data.logs[log.record.id] = log
    return owner_data


class _Read(NamedTuple):
    """A message of the document. An unreadable message has no id and role, and its body is stored
    unchanged."""

    encoded: EncodedEntry
    message_id: str | None
    role: Role | None


def _read_documents(
    stored: Sequence[_StoredDocument], conversation_id: str | None = None
) -> dict[Place, Document]:
    documents: dict[Place, Document] = {}
    for one in stored:
        place = parse_place(one.kind, one.key, conversation_id)
        moment = parse_moment(one.updated_at, field="updated_at")
        document = place.document(one.data, version=one.version, updated_at=moment)
        if documents.setdefault(place, document) is not document:
            raise InvalidInput(f"the document {shown(one.key)} of kind {shown(one.kind)} occurs twice")
    return documents


def _log(stored: _StoredConversation) -> Log:
    documents = _read_documents(stored.documents, stored.record.id)
    log = Log(record=stored.record, next_sequence=stored.next_sequence, documents=documents, head=stored.head)
    taken = set[int]()
    lines = [_read(line) for line in stored.messages]
    for encoded, message_id, _ in lines:
        sequence = encoded.position.sequence
        if sequence in taken:
            raise InvalidInput(f"conversation {stored.record.id} has the sequence {sequence} twice")
        taken.add(sequence)
        log.entries.append(encoded)
        if message_id is not None and log.by_id.setdefault(message_id, encoded) is not encoded:
            raise InvalidInput(f"conversation {stored.record.id} has the message {shown(message_id)} twice")
    log.entries.sort(key=lambda encoded: encoded.position)
    log.next_sequence = max(log.next_sequence, max(taken, default=0) + 1)
    log.record = _record_from_messages(stored, lines)
    return log


def _read(line: _StoredMessage) -> _Read:
    try:
        message = msgspec.convert(line.message, Message)
    except msgspec.ValidationError as error:
        return _unreadable(line, error)
    if message.timestamp is None:
        message = message.with_(timestamp=line.stored_at)  # a line added by hand
    return _Read(_encoded(line, message.timestamp, encode_message(message)), message.message_id, message.role)


def _unreadable(line: _StoredMessage, error: msgspec.ValidationError) -> _Read:
    _warnings.warning("message %d is unreadable: %s", line.sequence, error)
    fields = line.message if isinstance(line.message, dict) else {}
    try:
        moment = parse_moment(fields.get("timestamp") or "", field="timestamp")
    except InvalidInput:
        moment = line.stored_at
    message_id = fields.get("message_id")
    encoded = _encoded(line, moment, json.dumps(line.message).encode())
    return _Read(encoded, message_id if isinstance(message_id, str) and message_id else None, None)


def _encoded(line: _StoredMessage, moment: datetime | None, body: bytes) -> EncodedEntry:
    assert moment is not None
    return EncodedEntry(Position(to_micros(moment), line.sequence), line.revision, line.stored_at, body)


def _record_from_messages(stored: _StoredConversation, lines: Sequence[_Read]) -> Conversation:
    """Return the record with counters and last message derived from the messages."""
    for field in ("created_at", "updated_at", "expires_at"):
        value = getattr(stored.record, field)
        if value is not None:
            parse_moment(value, field=field)
    last = max(lines, key=lambda line: line.encoded.position, default=None)
    if last is None and stored.record.lineage:
        return stored.record.with_(message_count=0, messages=())  # the last message is an ancestor's
    return stored.record.with_(
        message_count=len(lines),
        last_message_at=from_micros(last.encoded.position.micros) if last else None,
        last_message_from=last.role if last else None,
        messages=(),
    )


# Nesting depth

_SAFE_BRACKETS = 100
# Levels reserved for the document around a message and for the calls of the parser.
_RESERVED_DEPTH = 100


def check_depth(bodies: Iterable[bytes]) -> None:
    """Raise `InvalidMessage` for a message nested too deep to be parsed again."""
    for body in bodies:
        if body.count(b"[") + body.count(b"{") > _SAFE_BRACKETS:
            _check_readable(body)


def _check_readable(body: bytes) -> None:
    try:
        _parse(b"[" * _RESERVED_DEPTH + body + b"]" * _RESERVED_DEPTH)
    except RecursionError:
        raise InvalidMessage("content is nested too deep to be stored", field="content") from None
