"""An event, the line that it becomes, and the head of the trail. Pure.

    {"n":7,"at":"2026-03-01T09:30:00Z","actor":"support","source":"10.0.0.7","action":"read","owner":"erin",
     "conversation":"01952f3e-…","outcome":"done","count":20,"error":"","prev":"9f…","hash":"3c…"}

`n` counts from 1 over all files. `hash` is the SHA-256, or with a key the HMAC-SHA-256, of the line up to
and without `hash`; `prev` is the `hash` of the line before, and of nothing for the first. So no line can
be changed, left out, put in or moved without every later hash becoming wrong, and with a key nobody
without it can make them right again. The head, in a file of its own, says how many there are and what
the last hash is: so the end cannot be cut off either.
"""

import hmac
from datetime import datetime
from hashlib import sha256
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from aforesaid.errors import StoreDamaged

Outcome = Literal["done", "denied", "failed"]
"""Done; denied: what was asked for is not there or not theirs; failed: the store refused or broke."""
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

HEAD_BYTES = 512
"""The head is written in place, and so has always the same length."""

NOTHING = "0" * 64
"""What stands before the first line."""

_encode = msgspec.json.Encoder().encode


class Event(Struct, frozen=True, kw_only=True):
    """Something that was done or attempted."""

    at: datetime
    actor: str
    source: str
    action: str
    owner: str = ""
    """Whose data; empty for what concerns everybody."""
    conversation: str = ""
    outcome: Outcome = "done"
    count: int = 0
    """How many messages, records or documents were read, written or removed."""
    error: str = ""
    """The kind of the error, where it failed: never its words, which may repeat what was said."""


class Line(Struct, frozen=True, kw_only=True):
    """An event in its place."""

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
    """Where the trail ends: what is there, and what is being written right now."""

    aforesaid: str = "audit"
    version: int = 1
    count: int = 0
    hash: str = NOTHING
    next_count: int = 0
    next_hash: str = NOTHING
    proof: str = ""
    """Over all the rest, as for a line."""


class Chain:
    """Makes and proves hashes, with a key or without."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key

    def digest(self, data: bytes) -> str:
        if self._key is None:
            return sha256(data).hexdigest()
        return hmac.digest(self._key, data, "sha256").hex()

    def owner(self, owner: str) -> str:
        """What stands for an owner whose name is not to be kept."""
        return f"hidden:{self.digest(b'owner ' + owner.encode())[:32]}" if owner else ""

    def line(self, event: Event, *, n: int, prev: str) -> tuple[bytes, str]:
        """The line of an event, and its hash."""
        values = {name: getattr(event, name) for name in Event.__struct_fields__}
        unsigned = _encode({"n": n, **values, "prev": prev})
        digest = self.digest(unsigned)
        return b'%b,"hash":"%b"}\n' % (unsigned[:-1], digest.encode()), digest

    def is_signed(self, line: bytes) -> bool:
        """Whether the hash of this line is that of what stands before it."""
        unsigned, found, _ = line.rpartition(b',"hash":"')
        signed = b'%b,"hash":"%b"}\n' % (unsigned, self.digest(unsigned + b"}").encode())
        return bool(found) and hmac.compare_digest(signed, line)

    def head(self, head: Head) -> bytes:
        """The head with its proof."""
        bare = msgspec.structs.replace(head, proof="")
        text = _encode(msgspec.structs.replace(head, proof=self.digest(_encode(bare))))
        return text.ljust(HEAD_BYTES - 1) + b"\n"

    def read_head(self, text: bytes) -> Head:
        """The head that was written. Raises `StoreDamaged`."""
        try:
            head = msgspec.json.decode(text, type=Head)
        except msgspec.MsgspecError as error:
            raise StoreDamaged(f"the head of the audit trail cannot be read: {error}") from error
        if self.head(head) != text:
            raise StoreDamaged("the head of the audit trail was altered, or belongs to another key")
        return head


def read_line(line: bytes) -> Line:
    """A line. Raises `ValueError` with what is wrong with it."""
    if not line.endswith(b"\n"):
        raise ValueError("is cut off")
    try:
        return msgspec.json.decode(line, type=Line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"cannot be read ({error})") from error
