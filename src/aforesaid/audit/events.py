"""Audit events, their lines in the hash chain, and the head of the trail. Pure.

    {"n":7,"at":"2026-03-01T09:30:00Z","actor":"support","source":"10.0.0.7","action":"read","owner":"erin",
     "conversation":"01952f3e-…","outcome":"done","count":20,"error":"","prev":"9f…","hash":"3c…"}

`n` counts from 1 over all files. `hash` is the SHA-256, or with a key the HMAC-SHA-256, of the line without
`hash`; `prev` is the `hash` of the previous line. So a line cannot be changed, omitted, inserted or moved
without invalidating every later hash, and with a key the hashes cannot be recomputed without it. The head, in
a separate file, contains the number of lines and the last hash, so the end cannot be truncated either.
"""

import hmac
from datetime import datetime
from hashlib import sha256
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from aforesaid.errors import StoreDamaged

Outcome = Literal["done", "denied", "failed"]
"""`denied`: missing or not permitted; `failed`: the store refused or failed."""
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

HEAD_BYTES = 512
"""The head is overwritten in place, so it has a fixed length."""

NOTHING = "0" * 64
"""The `prev` of the first line."""

_encode = msgspec.json.Encoder().encode


class Event(Struct, frozen=True, kw_only=True):
    """An action that was done or attempted."""

    at: datetime
    actor: str
    source: str
    action: str
    owner: str = ""
    """The owner of the data; empty for actions on all owners."""
    conversation: str = ""
    outcome: Outcome = "done"
    count: int = 0
    """How many messages, records or documents were read, written or removed."""
    error: str = ""
    """The class of an error, never its text, which may contain content."""


class Line(Struct, frozen=True, kw_only=True):
    """An event with its place in the chain."""

    n: int
    at: datetime
    actor: str
    source: str
    action: str
    owner: str
    conversation: str
    outcome: Outcome
    count: int
    error: str
    prev: str
    hash: str = ""

    @property
    def event(self) -> Event:
        return Event(**{name: getattr(self, name) for name in Event.__struct_fields__})


class Head(Struct, frozen=True, kw_only=True):
    """The end of the trail: what is written, and what is being written."""

    aforesaid: str = "audit"
    version: int = 1
    count: int = 0
    hash: str = NOTHING
    next_count: int = 0
    next_hash: str = NOTHING
    proof: str = ""
    """A hash over the rest, as for a line."""


class Chain:
    """Computes and verifies hashes, with or without a key."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key

    def digest(self, data: bytes) -> str:
        if self._key is None:
            return sha256(data).hexdigest()
        return hmac.digest(self._key, data, "sha256").hex()

    def owner(self, owner: str) -> str:
        """Return a pseudonym for an owner's name."""
        return f"hidden:{self.digest(b'owner ' + owner.encode())[:32]}" if owner else ""

    def line(self, event: Event, *, n: int, prev: str) -> tuple[bytes, str]:
        """Return the line of an event, and its hash."""
        unsigned = _encode({"n": n, **msgspec.structs.asdict(event), "prev": prev})
        digest = self.digest(unsigned)
        return b'%b,"hash":"%b"}\n' % (unsigned[:-1], digest.encode()), digest

    def is_signed(self, line: bytes) -> bool:
        """Whether the hash of this line is valid."""
        unsigned, found, _ = line.rpartition(b',"hash":"')
        signed = b'%b,"hash":"%b"}\n' % (unsigned, self.digest(unsigned + b"}").encode())
        return bool(found) and hmac.compare_digest(signed, line)

    def head(self, head: Head) -> bytes:
        """Return the head with its proof."""
        bare = msgspec.structs.replace(head, proof="")
        text = _encode(msgspec.structs.replace(head, proof=self.digest(_encode(bare))))
        return text.ljust(HEAD_BYTES - 1) + b"\n"

    def read_head(self, text: bytes) -> Head:
        """Return the stored head. Raise `StoreDamaged`."""
        try:
            head = msgspec.json.decode(text, type=Head)
        except msgspec.MsgspecError as error:
            raise StoreDamaged(f"the head of the audit trail cannot be read: {error}") from error
        if self.head(head) != text:
            raise StoreDamaged("the head of the audit trail was altered, or belongs to another key")
        return head


def read_line(line: bytes) -> Line:
    """Return a parsed line. Raise `ValueError` with the reason."""
    if not line.endswith(b"\n"):
        raise ValueError("is cut off")
    try:
        return msgspec.json.decode(line, type=Line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"cannot be read ({error})") from error
