"""The lineage of a branch: the conversations that its log continues, and how far.

A branch stores only what was said in it. Its lineage names the earlier parts of its log, the nearest
conversation first. A part is the messages of one conversation up to a position *and* up to a sequence: a
message that arrives later with an earlier time has a greater sequence, so it never changes a branch's past.
"""

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from aforesaid.errors import InvalidInput, shown
from aforesaid.model.clock import to_micros
from aforesaid.model.ids import parse_uuid
from aforesaid.model.mappings import ReadableAsDict

# The most conversations in a lineage. Each one that a window needs costs a read.
MOST_ANCESTORS = 32

# The version in the UUID of a branch. RFC 9562 leaves version 8 to the application, so the id alone shows
# that a conversation may have a lineage, and every other conversation costs nothing more than before.
_VERSION_AT, _BRANCH = 14, "8"


class Ancestor(ReadableAsDict, Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a branch's log that another conversation stores."""

    conversation_id: str
    micros: int
    """The time of the last message of the part, in microseconds since 1970."""
    place: int
    """The sequence of that message, which orders messages of the same time."""
    sequence: int
    """The last sequence that the conversation had assigned when the branch was made."""
    messages: int
    """The number of messages of the part."""
    version: int = 0
    """Increases when a message of the part is replaced, so that cached copies are read again."""
    proof: str | None = None
    """The encrypting layer's seal of the lineage; only the first ancestor of a stored record has one."""

    def to_dict(self) -> dict[str, Any]:
        return {"conversation_id": self.conversation_id, "messages": self.messages}

    def fields(self) -> dict[str, Any]:
        """Return all fields, as a server sends them."""
        names = ("conversation_id", "micros", "place", "sequence", "messages", "version")
        return {name: getattr(self, name) for name in names}

    __eq__ = Struct.__eq__
    __hash__ = None  # type: ignore[assignment]

    def contains(self, micros: int, sequence: int) -> bool:
        """Return whether the part contains the message at this time with this sequence."""
        return (micros, sequence) <= (self.micros, self.place) and sequence <= self.sequence


Lineage = tuple[Ancestor, ...]

# Before every message, in microseconds since 1970.
BEGINNING = to_micros(datetime.min.replace(tzinfo=UTC))


def no_messages_of(conversation_id: str, sequence: int) -> Ancestor:
    """Return a part without messages: it only names the root of the family."""
    return Ancestor(conversation_id=conversation_id, micros=BEGINNING, place=0, sequence=sequence, messages=0)


_decode = msgspec.json.Decoder(Lineage).decode


def encode_lineage(lineage: Sequence[Ancestor]) -> str | None:
    """Return the lineage as JSON for a store; None for a conversation that is no branch."""
    return msgspec.json.encode(lineage).decode() if lineage else None


def decode_lineage(text: str | bytes | None) -> Lineage:
    """Return the lineage that a store has. Raise `msgspec.MsgspecError`."""
    return _decode(text) if text else ()


def check_lineage(lineage: object) -> Lineage:
    """Return a valid lineage. Raise `InvalidInput`."""
    if not isinstance(lineage, tuple | list) or not all(isinstance(one, Ancestor) for one in lineage):
        raise InvalidInput(f"lineage must be a tuple of Ancestor; got {shown(lineage)}", field="lineage")
    if len(lineage) > MOST_ANCESTORS:
        raise InvalidInput(
            f"a branch continues at most {MOST_ANCESTORS} conversations; got {len(lineage)}", field="lineage"
        )
    for one in lineage:
        parse_uuid(one.conversation_id, field="lineage")
    return tuple(lineage)


def shared_messages(lineage: Sequence[Ancestor]) -> int:
    """Return the number of messages that ancestors store."""
    return sum(one.messages for one in lineage)


def root_of(conversation_id: str, lineage: Sequence[Ancestor]) -> str:
    """Return the conversation that the family of branches began with."""
    return lineage[-1].conversation_id if lineage else conversation_id


def first_sequence(lineage: Sequence[Ancestor]) -> int:
    """Return the sequence of a branch's first own message. It continues the parent's numbers, so that no two
    messages of a branch's log have the same one."""
    return lineage[0].sequence + 1 if lineage else 1


def may_be_branch(conversation_id: str) -> bool:
    """Return whether the conversation may have a lineage, judging by its id alone."""
    return conversation_id[_VERSION_AT : _VERSION_AT + 1] == _BRANCH


def new_branch_id() -> str:
    """Return a new id for a branch: ordered by time like the other ids."""
    return _branch_uuid((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10))


def branch_id_for(parent_id: str, request: str) -> str:
    """Return the id of the branch that this request makes. A repeated request makes the same branch."""
    return _branch_uuid(sha256(f"{parent_id}/{request}".encode()).digest()[:16])


def _branch_uuid(octets: bytes) -> str:
    digits = bytearray(octets)
    digits[6] = digits[6] & 0x0F | 0x80
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
