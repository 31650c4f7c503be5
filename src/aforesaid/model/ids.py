"""Ids: creation and validation.

New ids are UUIDs of version 7: unique without coordination, and ordered by time, so that an index grows at
one end.
"""

import os
import random
import re
import time
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID, uuid5

from aforesaid.errors import InvalidId, shown

IdSource = Callable[[], str]

# The prefix of ids that a layer assigns to messages without one.
MARK = "aforesaid~"

# The most characters in an owner, a conversation name, a session id or a message id.
LONGEST_NAME = 1024

_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII).fullmatch


# Our own generator: seeding the global one, as tests do, must not repeat ids; nor must a fork.
_random = random.Random(os.urandom(32))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _random.seed(os.urandom(32)))


def new_id() -> str:
    """Return a new UUID of version 7: 48 bits of milliseconds, then random bits."""
    milliseconds = time.time_ns() // 1_000_000
    number = milliseconds << 80 | _VERSION_AND_VARIANT | _random.getrandbits(76) & _RANDOM_BITS
    digits = number.to_bytes(16, "big").hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


_VERSION_AND_VARIANT = 0x7000_8000_0000_0000_0000
_RANDOM_BITS = 0x0FFF_3FFF_FFFF_FFFF_FFFF


def following_id(message_id: str, number: int) -> str:
    """Return the id of a later message in a turn: deterministic, so that a retry gives the same ids."""
    name = f"{message_id}/{number}"
    return name if len(name) <= LONGEST_NAME else f"{sha256(message_id.encode()).hexdigest()}/{number}"


def is_uuid(name: str) -> bool:
    """Whether a name is a UUID in its canonical form."""
    return _CANONICAL(name) is not None


def parse_uuid(value: object, *, field: str) -> str:
    """Return the canonical form of a UUID. Raise `InvalidId`."""
    if type(value) is str and _CANONICAL(value):  # nearly always
        return value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, str):
        try:  # `UUID` also accepts braces, capitals and a URN
            return str(UUID(value))
        except ValueError:
            pass
    raise InvalidId(f"{field} must be a UUID; got {shown(value)}", field=field, value=value)


class ConversationKey(NamedTuple):
    """The id of a conversation, and the caller's name for it; None where the caller gave the id."""

    id: str
    name: str | None = None


# The namespace of ids that are derived from names. A change would lose every named conversation.
_NAMESPACE = UUID("8c3c2c5e-52f0-5d0b-9f43-6a1c7f0d2b9e")


def conversation_key(value: object, *, owner: str, field: str = "conversation_id") -> ConversationKey:
    """Return the id of a conversation: the given UUID, or the UUID of this owner's conversation with this
    name. Raise `InvalidId`.
    """
    if type(value) is str and _CANONICAL(value):  # nearly always
        return ConversationKey(value)
    given = parse_conversation(value, field=field)
    if _CANONICAL(given):
        return ConversationKey(given)
    # The length separates owner and name, so that different pairs never give the same text.
    return ConversationKey(str(uuid5(_NAMESPACE, f"{len(owner)}:{owner}{given}")), given)


def parse_conversation(value: object, *, field: str = "conversation_id") -> str:
    """Return the canonical form of a UUID, or a name: any other text. Raise `InvalidId`."""
    try:
        return parse_uuid(value, field=field)
    except InvalidId:
        return parse_name(value, field=field)


def parse_name(value: object, *, field: str) -> str:
    """Return an owner, a conversation name or the id of a session or message: any text that stores keep
    unchanged.
    """
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
    """Whether every store keeps this text unchanged: no NUL, no lone surrogate."""
    if value.isascii():  # the usual case, without surrogates
        return "\0" not in value
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
