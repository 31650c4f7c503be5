"""The rows of an owner: keys and values.

The parts of a key have NUL between them, which no name contains:

    owner c conversation              the record, the next sequence and the head of the log
    owner m conversation position     a message
    owner i conversation message-id   the position of the message with this id
    owner s session                   the conversation of the session
    owner d conversation kind key     a document; the conversation is empty for the owner's documents
"""

from bisect import bisect_left
from collections import defaultdict
from typing import TypeAlias

from msgspec import MsgspecError, Struct, json, msgpack

from aforesaid.contracts import Document, Place, Position
from aforesaid.errors import StoreDamaged
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.model.conversations import Conversation, decode_record
from aforesaid.stores.encoded_logs import EncodedEntry, Log, entry_position
from aforesaid.stores.owner_data import OwnerData

Rows: TypeAlias = dict[str, bytes]
"""Values by key."""

_BIAS = 10**17  # makes times before 1970 positive, so that their digits sort


class OwnerRows:
    """Keys and codec of one owner's rows."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def key(self, *parts: str) -> str:
        return "\0".join((self._owner, *parts))

    def decode(self, rows: Rows) -> OwnerData:
        """Return the data in these rows. Rows that were not read are missing from it, and stay unchanged."""
        data = OwnerData()
        kinds: dict[str, list[tuple[list[str], bytes]]] = defaultdict(list)
        for key, row in rows.items():
            kind, *rest = key[len(self._owner) + 1 :].split("\0")
            kinds[kind].append((rest, row))
        try:
            for (one,), row in kinds["c"]:
                data.logs[one] = _decode_log(row)
            for (one, text), row in sorted(kinds["m"]):
                data.logs[one].entries.append(decode_row(text, row))
            for (one, message_id), row in kinds["i"]:
                log, at = data.logs[one], _parse_position(row.decode())
                log.by_id[message_id] = log.entries[bisect_left(log.entries, at, key=entry_position)]
            for (holder, kind, key), row in kinds["d"]:
                place = Place(kind, key, holder or None)
                documents = data.logs[holder].documents if holder else data.documents
                documents[place] = _decode_document(place, row)
        except (MsgspecError, LookupError, ValueError) as error:
            raise StoreDamaged(f"a stored row is damaged: {error}") from error
        data.sessions = {name: row.decode() for (name,), row in kinds["s"]}
        return data

    def encode(self, data: OwnerData) -> Rows:
        rows = {self.key("s", name): bound.encode() for name, bound in data.sessions.items()}
        documents = list(data.documents.items())
        for one, log in data.logs.items():
            documents += log.documents.items()
            rows[self.key("c", one)] = json.encode(_Record(log.record, log.next_sequence, log.head))
            for encoded in log.entries:
                rows[self.key("m", one, position_text(encoded.position))] = msgpack.encode(
                    (encoded.revision, to_micros(encoded.stored_at), encoded.body)
                )
            for message_id, encoded in log.by_id.items():
                rows[self.key("i", one, message_id)] = position_text(encoded.position).encode()
        for place, document in documents:
            row = document.version, to_micros(document.updated_at), document.data
            rows[self.key("d", place.conversation_id or "", place.kind, place.key)] = msgpack.encode(row)
        return rows


class _Record(Struct):
    conversation: Conversation
    next_sequence: int
    head: str | None


_Row = tuple[int, int, bytes]


def _decode_log(row: bytes) -> Log:
    found = json.decode(row, type=_Record, dec_hook=decode_record)
    return Log(record=found.conversation, next_sequence=found.next_sequence, head=found.head)


def decode_row(position: str, row: bytes) -> EncodedEntry:
    revision, stored_at, body = msgpack.decode(row, type=_Row)
    return EncodedEntry(_parse_position(position), revision, from_micros(stored_at), body)


def _decode_document(place: Place, row: bytes) -> Document:
    version, updated_at, data = msgpack.decode(row, type=_Row)
    return place.document(data, version=version, updated_at=from_micros(updated_at))


def position_text(position: Position) -> str:
    """Return a position as digits that sort in reading order; clamp one outside the storable range."""
    micros = min(max(position.micros + _BIAS, 0), 10**20 - 1)
    return f"{micros:020d}{min(position.sequence, 10**16 - 1):016d}"


def _parse_position(text: str) -> Position:
    return Position(int(text[:20]) - _BIAS, int(text[20:]))
