"""What is kept beside the log, and where. Below: values. Above: the stores."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from aforesaid.errors import DocumentConflict, InvalidInput, shown
from aforesaid.model.clock import parse_moment
from aforesaid.model.conversations import check_count
from aforesaid.model.ids import parse_name, parse_uuid


class Document(Struct, frozen=True, kw_only=True):
    """Something that is kept beside the log: a note, a setting, a wrapped key, a summary, vectors.

    Its owner's, or derived from one conversation. Versions start at 1 and rise by 1 with every change.
    """

    kind: str
    key: str
    data: bytes
    version: int
    updated_at: datetime
    conversation_id: str | None = None


LARGEST_DOCUMENT = 16 * 1024 * 1024
"""Bytes of data in one document."""
LONGEST_KIND = 200
LONGEST_KEY = 1024
"""Bytes, in UTF-8, of a document's kind and of its key: an owner and both fit into one index entry."""


class Place(NamedTuple):
    """Where a document is: its kind and key, and whose it is; checked."""

    kind: str
    key: str
    conversation_id: str | None = None

    def check_version(self, actual: int, expected: int | None) -> None:
        """Refuse a write that insists on a version which is not there. 0 is a document that is not there."""
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
    """The place that these names mean, or an error that says which of them cannot be used."""
    return Place(
        parse_kind(kind),
        _parse_short(key, field="key", longest=LONGEST_KEY),
        parse_holder(conversation_id),
    )


def parse_kind(kind: object) -> str:
    return _parse_short(kind, field="kind", longest=LONGEST_KIND)


def parse_holder(conversation_id: object) -> str | None:
    """The conversation that documents belong to; None is their owner."""
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
    """A document's data, or an error."""
    if not isinstance(data, bytes):
        raise InvalidInput(f"data must be bytes; got {shown(data)}", field="data", value=data)
    if len(data) > LARGEST_DOCUMENT:
        raise InvalidInput(
            f"data must have at most {LARGEST_DOCUMENT:,} bytes; got {len(data):,}", field="data", value=data
        )
    return data


def check_expected(expected_version: int | None, *, least: int) -> int | None:
    """A version that a caller insists on, or None."""
    if expected_version is not None:
        check_count(expected_version, field="expected_version", least=least)
    return expected_version


def restorable_documents(documents: Sequence[Document]) -> dict[Place, Document]:
    """What `restore_documents` was given, checked: each by its place, all of one holder."""
    given: dict[Place, Document] = {}
    for document in documents:
        place = parse_place(document.kind, document.key, document.conversation_id)
        check_data(document.data)
        check_count(document.version, field="version", least=1)
        parse_moment(document.updated_at, field="updated_at")
        given[place] = document
    holders = {place.conversation_id for place in given}
    if len(holders) > 1:
        raise InvalidInput(
            "documents of several conversations cannot be restored in one step",
            field="conversation_id",
            value=holders,
        )
    return given


class Listing(NamedTuple):
    """Which documents are asked for, checked. No key is empty, so all keys come after the empty text."""

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
