"""The lines of an export, as documented in `docs/reference/json-lines.md`. Pure encoding and decoding."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from aforesaid.contracts import JOURNAL, Document, Entry, check_restorable, check_restorable_documents
from aforesaid.errors import InvalidId, InvalidInput, StoreForeign, shown
from aforesaid.model.conversations import Conversation, decode_record
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message
from aforesaid.model.wire import WIRE_VERSION, encode_message

VERSION = 1

T = TypeVar("T")
_encoder = msgspec.json.Encoder()


class Damaged(ValueError):
    """A line is invalid. The reader of the file adds its number."""


class Header(Struct, frozen=True, kw_only=True):
    """The first line."""

    aforesaid: str
    version: int
    wire: int = WIRE_VERSION
    exported_at: datetime | None = None


class Trailer(Struct, frozen=True, kw_only=True):
    """The last line: the counts, and the SHA-256 of all bytes before this line."""

    aforesaid: str
    conversations: int
    entries: int
    documents: int
    sha256: str


class ConversationLine(Struct, frozen=True, kw_only=True):
    """The first line of a conversation: its record, its owner and its sessions."""

    owner: str
    conversation: Conversation
    sessions: tuple[str, ...] = ()


class OwnedLine(Struct, frozen=True, kw_only=True):
    """A document of an owner."""

    owner: str
    document: Document


class _DocumentFields(Struct, frozen=True, kw_only=True):
    kind: str
    key: str
    version: Annotated[int, Meta(ge=1)]
    updated_at: Annotated[datetime, Meta(tz=True)]
    data: bytes


class _EntryFields(Struct, frozen=True, kw_only=True):
    sequence: Annotated[int, Meta(ge=1)]
    revision: Annotated[int, Meta(ge=0)]
    stored_at: Annotated[datetime, Meta(tz=True)]
    message: Message
    unreadable: str | None = None


class _Line(Struct, frozen=True, kw_only=True):
    """Any line except the first."""

    aforesaid: str | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    conversation: Conversation | UnsetType = UNSET
    sessions: tuple[str, ...] = ()
    entry: _EntryFields | UnsetType = UNSET
    document: _DocumentFields | UnsetType = UNSET
    conversations: int = 0
    entries: int = 0
    documents: int = 0
    sha256: str = ""


ReadLine: TypeAlias = ConversationLine | OwnedLine | Entry | Document | Trailer

# Encoding


def header_line(exported_at: datetime) -> bytes:
    return _encoder.encode(Header(aforesaid="export", version=VERSION, exported_at=exported_at)) + b"\n"


def conversation_line(owner: str, record: Conversation, sessions: Sequence[str]) -> bytes:
    fields = {name: value for name, value in record.typed().items() if name != "messages"}
    return _encoder.encode({"owner": owner, "conversation": fields, "sessions": sessions}) + b"\n"


def entry_line(entry: Entry) -> bytes:
    # The message is inserted as encoded JSON, which never contains a line break.
    unreadable = b"" if entry.unreadable is None else b',"unreadable":%b' % _encoder.encode(entry.unreadable)
    return b'{"entry":{"sequence":%d,"revision":%d,"stored_at":%b,"message":%b%b}}\n' % (
        entry.sequence,
        entry.revision,
        _encoder.encode(entry.stored_at),
        encode_message(entry.message),
        unreadable,
    )


def document_line(document: Document, owner: str | None = None) -> bytes:
    """Encode a document of the preceding conversation, or of this owner."""
    fields = _DocumentFields(
        kind=document.kind,
        key=document.key,
        version=document.version,
        updated_at=document.updated_at,
        data=document.data,
    )
    labels = {} if owner is None else {"owner": owner}
    return _encoder.encode(labels | {"document": fields}) + b"\n"


def trailer_line(*, conversations: int, entries: int, documents: int, sha256: str) -> bytes:
    trailer = Trailer(
        aforesaid="end", conversations=conversations, entries=entries, documents=documents, sha256=sha256
    )
    return _encoder.encode(trailer) + b"\n"


# Decoding


def read_header(line: bytes) -> Header:
    """Decode the first line. Raise `StoreForeign` for another program's file or an unsupported version."""
    try:
        header = _decode(line, Header)
    except Damaged:
        header = None
    if header is None or header.aforesaid != "export":
        raise StoreForeign("line 1 is not the header of an Aforesaid export")
    if header.version != VERSION or header.wire != WIRE_VERSION:
        raise StoreForeign(
            f"line 1 says version {header.version} (messages {header.wire}); this release reads version "
            f"{VERSION} (messages {WIRE_VERSION})"
        )
    return header


def read_line(line: bytes, conversation: Conversation | None) -> ReadLine:
    """Decode a line after the first. A line without an owner belongs to the preceding conversation."""
    read = _decode(line, _Line)
    if read.aforesaid == "end":
        return Trailer(
            aforesaid="end",
            conversations=read.conversations,
            entries=read.entries,
            documents=read.documents,
            sha256=read.sha256,
        )
    if read.document is not UNSET:
        return _document_from(read.document, read.owner, conversation)
    if read.conversation is not UNSET and read.owner is not UNSET:
        return _conversation_from(read.owner, read.conversation, read.sessions)
    if read.entry is UNSET:
        raise Damaged(f"is neither a conversation nor an entry nor a document: {shown(line)}")
    if conversation is None:
        raise Damaged("is an entry without a conversation before it")
    return _entry_from(conversation, read.entry)


def _conversation_from(owner: str, record: Conversation, sessions: tuple[str, ...]) -> ConversationLine:
    try:
        _parse_owner(owner)
        for session_id in sessions:
            parse_name(session_id, field="session_id")
        record, _ = check_restorable(record, ())
    except InvalidInput as error:
        raise Damaged(f"cannot be used: {error}") from error
    return ConversationLine(owner=owner, conversation=record, sessions=sessions)


def _parse_owner(owner: str) -> str:
    # The journal contains pending erasures and API keys: a file must not write there.
    if owner == JOURNAL:
        raise InvalidId(f"owner must not be {JOURNAL!r}: the name is taken", field="owner", value=owner)
    return parse_name(owner, field="owner")


def _document_from(
    fields: _DocumentFields, owner: str | UnsetType, conversation: Conversation | None
) -> OwnedLine | Document:
    if owner is UNSET and conversation is None:
        raise Damaged("is a document without an owner, and without a conversation before it")
    document = Document(
        kind=fields.kind,
        key=fields.key,
        data=fields.data,
        version=fields.version,
        updated_at=fields.updated_at,
        conversation_id=conversation.id if owner is UNSET and conversation else None,
    )
    try:
        check_restorable_documents([document])
        return document if owner is UNSET else OwnedLine(owner=_parse_owner(owner), document=document)
    except InvalidInput as error:
        raise Damaged(f"cannot be used: {error}") from error


def _entry_from(conversation: Conversation, fields: _EntryFields) -> Entry:
    entry = Entry(
        conversation_id=conversation.id,
        sequence=fields.sequence,
        revision=fields.revision,
        stored_at=fields.stored_at,
        message=fields.message,
    )
    try:
        check_restorable(conversation, (entry,))
    except InvalidInput as error:
        raise Damaged(f"cannot be used: {error}") from error
    return entry if fields.unreadable is None else replace(entry, unreadable=fields.unreadable)


def _decode(line: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(line, type=kind, dec_hook=decode_record)
    except (msgspec.MsgspecError, RecursionError):
        return _decode_with_escapes(line, kind)


def _decode_with_escapes(line: bytes, kind: type[T]) -> T:
    # Only the standard parser accepts lone surrogates.
    try:
        return msgspec.convert(
            json.loads(line, parse_constant=_refuse_constant), kind, dec_hook=decode_record
        )
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise Damaged(f"cannot be read ({error}): {shown(line)}") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
