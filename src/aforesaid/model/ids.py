"""Ids: how they are made and what counts as one. Below: the standard library.

Ids that we make are UUIDs of version 7: unique without asking anybody, and ordered by time, so
that an index over them grows at one end.
"""

import os
import random
import re
import time
from collections.abc import Callable
from hashlib import sha256
from uuid import UUID

from aforesaid.errors import InvalidId, shown

IdSource = Callable[[], str]

MARK = "aforesaid~"
"""What an id begins with that a layer gave to a message which came without one."""

LONGEST_NAME = 1024
"""Characters in an owner, a session id or a message id: room for any key, too few for an attack."""

_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII).fullmatch


# Our own generator: seeding the global one, as tests do, must not repeat ids; nor must a fork.
_random = random.Random(os.urandom(32))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _random.seed(os.urandom(32)))


def new_id() -> str:
    """A fresh UUID of version 7: 48 bits of milliseconds, then randomness."""
    milliseconds = time.time_ns() // 1_000_000
    number = milliseconds << 80 | _VERSION_AND_VARIANT | _random.getrandbits(76) & _RANDOM_BITS
    digits = number.to_bytes(16, "big").hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


_VERSION_AND_VARIANT = 0x7000_8000_0000_0000_0000
_RANDOM_BITS = 0x0FFF_3FFF_FFFF_FFFF_FFFF


def following_id(message_id: str, number: int) -> str:
    """The id of a message that follows another in its turn: the same for the same question."""
    name = f"{message_id}/{number}"
    return name if len(name) <= LONGEST_NAME else f"{sha256(message_id.encode()).hexdigest()}/{number}"


def is_uuid(name: str) -> bool:
    """Whether a name is a UUID in its canonical form."""
    return _CANONICAL(name) is not None


def parse_uuid(value: object, *, field: str) -> str:
    """The canonical form of a UUID, or an error that names the field."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, str):
        if _CANONICAL(value):
            return value
        try:
            return str(UUID(value))
        except ValueError:
            pass
    raise InvalidId(f"{field} must be a UUID; got {shown(value)}", field=field, value=value)


def parse_name(value: object, *, field: str) -> str:
    """An owner, session or message id: any text that every store can keep as it is."""
    if not isinstance(value, str):
        raise InvalidId(f"{field} must be text; got {shown(value)}", field=field, value=value)
    if not value:
        raise InvalidId(f"{field} must not be empty", field=field, value=value)
    if len(value) > LONGEST_NAME:
        raise InvalidId(
            f"{field} must have at most {LONGEST_NAME} characters; got {len(value)}", field=field, value=value
        )
    if not storable_text(value):
        raise InvalidId(
            f"{field} must be valid Unicode without NUL; got {shown(value)}", field=field, value=value
        )
    return value


def storable_text(value: str) -> bool:
    """Whether every store keeps this text as it is: no NUL, no half of a surrogate pair."""
    if value.isascii():
        return "\0" not in value
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
