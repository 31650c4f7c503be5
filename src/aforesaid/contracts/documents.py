"""Documents: data next to the log, stored under a kind and a key."""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

import msgspec
from msgspec import Struct

from aforesaid.errors import DocumentConflict, InvalidInput, StoreDamaged, shown
from aforesaid.model.clock import parse_moment
from aforesaid.model.conversations import check_count
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message, OpenTurn
from aforesaid.model.wire import decode_message, encode_message


class Document(Struct, frozen=True, kw_only=True):
    """A note, a setting, a wrapped key, a summary or vectors.

    It belongs to the owner or is derived from one conversation. Versions start at 1 and increase by 1.
    """

    kind: str
    key: str
    data: bytes
    version: int
    updated_at: datetime
    conversation_id: str | None = None


# The kind of a conversation's open turns: words that have no answer yet, and so are not in the log. Unlike
# other documents of a conversation they are not derived from the log, and `ConversationStore.replace`
# leaves them.
OPEN_TURNS = "open_turns"

# The prefix of the kinds of an application's documents.
APPLICATION = "app/"
# The prefix of kinds that are not derived from the log: `ConversationStore.replace` leaves them. The stores
# have it in their queries.
STATE = "app/state/"


def is_derived(kind: str) -> bool:
    """Return whether documents of a conversation of this kind are removed when a message's words change."""
    return kind != OPEN_TURNS and not kind.startswith(STATE)


# The most bytes of data in one document.
LARGEST_DOCUMENT = 16 * 1024 * 1024
LONGEST_KIND = 200
# The most bytes (UTF-8) of a kind and of a key. An owner and both fit into one index entry.
LONGEST_KEY = 1024


def turn_id_of(words: Sequence[Message]) -> str:
    """Return the id of a turn: that of its first message."""
    assert words[0].message_id is not None, "the intake gives every message an id"
    return words[0].message_id


def turn_key(turn_id: str) -> str:
    """Return the key of an open turn's document. A message id may be longer than a key."""
    return turn_id if len(turn_id.encode()) <= LONGEST_KEY else sha256(turn_id.encode()).hexdigest()


def encode_turn(words: Sequence[Message]) -> bytes:
    """Return the content of an open turn's document."""
    return msgspec.json.encode([msgspec.Raw(encode_message(message)) for message in words])


def decode_turn(document: Document) -> OpenTurn:
    """Return the open turn in a document. Raise `StoreDamaged`."""
    assert document.conversation_id is not None
    try:
        bodies = msgspec.json.decode(document.data, type=list[msgspec.Raw])
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"an open turn cannot be read: {error}") from error
    messages = tuple(decode_message(bytes(body)) for body in bodies)
    return OpenTurn(
        id=turn_id_of(messages),
        conversation_id=document.conversation_id,
        messages=messages,
        opened_at=document.updated_at,
    )


class Place(NamedTuple):
    """A document's address: kind, key and, for derived documents, the conversation. Validated."""

    kind: str
    key: str
    conversation_id: str | None = None

    def check_version(self, actual: int, expected: int | None) -> None:
        """Raise `DocumentConflict` unless the document has the expected version. Version 0 means no
        document.
        """
        if expected is not None and actual != expected:
            raise DocumentConflict(self.kind, self.key, expected=expected, actual=actual)

    def document(self, data: bytes, *, version: int, updated_at: datetime) -> Document:
        return Document(
            kind=self.kind,
            key=self.key,
            data=data,
            version=version,
            updated_at=updated_at,
            conversation_id=self.conversation_id,
        )


def parse_place(kind: object, key: object, conversation_id: object = None) -> Place:
    """Return the place with these names. Raise `InvalidInput` for a name that cannot be used."""
    return Place(
        parse_kind(kind),
        _parse_short(key, field="key", longest=LONGEST_KEY),
        parse_holder(conversation_id),
    )


def parse_kind(kind: object) -> str:
    return _parse_short(kind, field="kind", longest=LONGEST_KIND)


def parse_holder(conversation_id: object) -> str | None:
    """Return the id of the conversation that documents belong to; None means the owner."""
    return None if conversation_id is None else parse_uuid(conversation_id, field="conversation_id")


def _parse_short(value: object, *, field: str, longest: int) -> str:
    name = parse_name(value, field=field)
    if len(name.encode()) > longest:
        raise InvalidInput(
            f"{field} must have at most {longest} bytes in UTF-8; got {len(name.encode())}",
            field=field,
            value=value,
        )
    return name


def check_data(data: object) -> bytes:
    """Return a document's data. Raise `InvalidInput` unless it is bytes of at most the allowed size."""
    if not isinstance(data, bytes):
        raise InvalidInput(f"data must be bytes; got {shown(data)}", field="data", value=data)
    if len(data) > LARGEST_DOCUMENT:
        raise InvalidInput(
            f"data must have at most {LARGEST_DOCUMENT:,} bytes; got {len(data):,}", field="data", value=data
        )
    return data


def check_expected(expected_version: int | None, *, least: int) -> int | None:
    """Return the version that a caller expects, or None."""
    if expected_version is not None:
        check_count(expected_version, field="expected_version", least=least)
    return expected_version


def check_restorable_documents(documents: Sequence[Document]) -> dict[Place, Document]:
    """Validate the input of `restore_documents`: return each document by its place, all of one conversation
    or owner.
    """
    by_place: dict[Place, Document] = {}
    for document in documents:
        place = parse_place(document.kind, document.key, document.conversation_id)
        check_data(document.data)
        check_count(document.version, field="version", least=1)
        parse_moment(document.updated_at, field="updated_at")
        by_place[place] = document
    # One step is one transaction, and those of several conversations may be on different servers.
    holders = {place.conversation_id for place in by_place}
    if len(holders) > 1:
        raise InvalidInput(
            "documents of several conversations cannot be restored in one step",
            field="conversation_id",
            value=holders,
        )
    return by_place


class Listing(NamedTuple):
    """A validated query for documents. No key is empty, so every key comes after the empty text."""

    kind: str
    conversation_id: str | None
    after: str
    limit: int


def parse_listing(kind: str, conversation_id: str | None, after: str | None, limit: int) -> Listing:
    return Listing(
        parse_kind(kind),
        parse_holder(conversation_id),
        "" if after is None else parse_name(after, field="after"),
        check_count(limit, field="limit", least=0),
    )
