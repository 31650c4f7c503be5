"""The lines of an export: `docs/reference/json-lines.md` as code. Values in, lines out, and back. Pure."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from aforesaid.contracts import JOURNAL, Document, Entry, check_restorable, check_restorable_documents
from aforesaid.errors import InvalidId, InvalidInput, StoreForeign, shown
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message
from aforesaid.model.wire import WIRE_VERSION, encode_message

VERSION = 1

T = TypeVar("T")
_encoder = msgspec.json.Encoder()


class Damaged(ValueError):
    """A line that is not what it should be. Whoever reads the file says which line it is."""


class Header(Struct, frozen=True, kw_only=True):
    """The first line."""

    aforesaid: str
    version: int
    wire: int = WIRE_VERSION
    exported_at: datetime | None = None


class Trailer(Struct, frozen=True, kw_only=True):
    """The last line: how much there is, and the SHA-256 of all bytes before this line."""

    aforesaid: str
    conversations: int
    entries: int
    documents: int
    sha256: str


class ConversationLine(Struct, frozen=True, kw_only=True):
    """A conversation begins: its record, whose it is, and the sessions that are bound to it."""

    owner: str
    conversation: Conversation
    sessions: tuple[str, ...] = ()


class OwnedLine(Struct, frozen=True, kw_only=True):
    """A document of an owner."""

    owner: str
    document: Document


class _KeptDocument(Struct, frozen=True, kw_only=True):
    kind: str
    key: str
    version: Annotated[int, Meta(ge=1)]
    updated_at: Annotated[datetime, Meta(tz=True)]
    data: bytes


class _Kept(Struct, frozen=True, kw_only=True):
    sequence: Annotated[int, Meta(ge=1)]
    revision: Annotated[int, Meta(ge=0)]
    stored_at: Annotated[datetime, Meta(tz=True)]
    message: Message
    unreadable: str | None = None


class _Line(Struct, frozen=True, kw_only=True):
    """Any line but the first."""

    aforesaid: str | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    conversation: Conversation | UnsetType = UNSET
    sessions: tuple[str, ...] = ()
    entry: _Kept | UnsetType = UNSET
    document: _KeptDocument | UnsetType = UNSET
    conversations: int = 0
    entries: int = 0
    documents: int = 0
    sha256: str = ""


ReadLine: TypeAlias = ConversationLine | OwnedLine | Entry | Document | Trailer

# Out


def header_line(exported_at: datetime) -> bytes:
    return _encoder.encode(Header(aforesaid="export", version=VERSION, exported_at=exported_at)) + b"\n"


def conversation_line(owner: str, record: Conversation, sessions: Sequence[str]) -> bytes:
    fields = {name: value for name, value in asdict(record).items() if name != "messages"}
    return _encoder.encode({"owner": owner, "conversation": fields, "sessions": sessions}) + b"\n"


def entry_line(entry: Entry) -> bytes:
    # The body goes in as the one encoder wrote it: it has no line break, whatever the message says.
    unreadable = b"" if entry.unreadable is None else b',"unreadable":%b' % _encoder.encode(entry.unreadable)
    return b'{"entry":{"sequence":%d,"revision":%d,"stored_at":%b,"message":%b%b}}\n' % (
        entry.sequence,
        entry.revision,
        _encoder.encode(entry.stored_at),
        encode_message(entry.message),
        unreadable,
    )


def document_line(document: Document, owner: str | None = None) -> bytes:
    """A document of the conversation that the line follows, or of this owner."""
    kept = _KeptDocument(
        kind=document.kind,
        key=document.key,
        version=document.version,
        updated_at=document.updated_at,
        data=document.data,
    )
    whose = {} if owner is None else {"owner": owner}
    return _encoder.encode(whose | {"document": kept}) + b"\n"


def trailer_line(*, conversations: int, entries: int, documents: int, sha256: str) -> bytes:
    trailer = Trailer(
        aforesaid="end", conversations=conversations, entries=entries, documents=documents, sha256=sha256
    )
    return _encoder.encode(trailer) + b"\n"


# In


def read_header(line: bytes) -> Header:
    """The first line. Raises `StoreForeign` for another program's file, or for a version yet to come."""
    try:
        header = _decoded(line, Header)
    except Damaged:
        header = None
    if header is None or header.aforesaid != "export":
        raise StoreForeign("it is no export of Aforesaid: line 1 does not say so")
    if header.version != VERSION or header.wire != WIRE_VERSION:
        raise StoreForeign(
            f"line 1 says version {header.version} (messages {header.wire}); this release reads version "
            f"{VERSION} (messages {WIRE_VERSION})"
        )
    return header


def read_line(line: bytes, conversation: Conversation | None) -> ReadLine:
    """A line after the first. Without an owner it belongs to the conversation that was read before it."""
    read = _decoded(line, _Line)
    if read.aforesaid == "end":
        return Trailer(
            aforesaid="end",
            conversations=read.conversations,
            entries=read.entries,
            documents=read.documents,
            sha256=read.sha256,
        )
    if read.document is not UNSET:
        return _checked_document(read.document, read.owner, conversation)
    if read.conversation is not UNSET and read.owner is not UNSET:
        return _checked_conversation(read.owner, read.conversation, read.sessions)
    if read.entry is UNSET:
        raise Damaged(f"is neither a conversation nor an entry nor a document: {shown(line)}")
    if conversation is None:
        raise Damaged("is an entry without a conversation before it")
    return _checked_entry(conversation, read.entry)


def _checked_conversation(owner: str, record: Conversation, sessions: tuple[str, ...]) -> ConversationLine:
    try:
        _parse_owner(owner)
        for session_id in sessions:
            parse_name(session_id, field="session_id")
        record, _ = check_restorable(record, ())
    except InvalidInput as error:
        raise Damaged(f"cannot be used: {error}") from error
    return ConversationLine(owner=owner, conversation=record, sessions=sessions)


def _parse_owner(owner: str) -> str:
    # What a memory has yet to erase, and whom its server lets in, is not for a file to say.
    if owner == JOURNAL:
        raise InvalidId(f"owner must not be {JOURNAL!r}: the name is taken", field="owner", value=owner)
    return parse_name(owner, field="owner")


def _checked_document(
    kept: _KeptDocument, owner: str | UnsetType, conversation: Conversation | None
) -> OwnedLine | Document:
    if owner is UNSET and conversation is None:
        raise Damaged("is a document without an owner, and without a conversation before it")
    document = Document(
        kind=kept.kind,
        key=kept.key,
        data=kept.data,
        version=kept.version,
        updated_at=kept.updated_at,
        conversation_id=conversation.id if owner is UNSET and conversation else None,
    )
    try:
        check_restorable_documents([document])
        return document if owner is UNSET else OwnedLine(owner=_parse_owner(owner), document=document)
    except InvalidInput as error:
        raise Damaged(f"cannot be used: {error}") from error


def _checked_entry(conversation: Conversation, kept: _Kept) -> Entry:
    entry = Entry(
        conversation_id=conversation.id,
        sequence=kept.sequence,
        revision=kept.revision,
        stored_at=kept.stored_at,
        message=kept.message,
    )
    try:
        check_restorable(conversation, (entry,))
    except InvalidInput as error:
        raise Damaged(f"cannot be used: {error}") from error
    return entry if kept.unreadable is None else replace(entry, unreadable=kept.unreadable)


def _decoded(line: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, RecursionError):
        return _decoded_with_escapes(line, kind)


def _decoded_with_escapes(line: bytes, kind: type[T]) -> T:
    # The standard parser alone reads back half of a surrogate pair.
    try:
        return msgspec.convert(json.loads(line, parse_constant=_refuse_constant), kind)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise Damaged(f"cannot be read ({error}): {shown(line)}") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
