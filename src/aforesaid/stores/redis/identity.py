"""The identity of a server's data: notice that the data is gone, instead of showing an empty memory.

Opening the store writes a random identity next to the data. A server that was flushed, or restarted without
its files, has lost it. Every empty answer is checked against the identity, so it costs a command only where
nothing was found.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from hashlib import sha256
from itertools import count
from typing import Any, TypeAlias

from redis.crc import key_slot

from aforesaid.errors import StoreReplaced

Call: TypeAlias = Callable[..., Awaitable[Any]]
"""Sends a command; returns its reply."""

# One identity for each run of this many slots of a cluster, so that each node has its own.
_SLOTS = 16384
_SLOTS_EACH = 256

# Replies of scripts begin with one of these; the rest is the answer.
_STATES = (b"done", b"missing")


def is_empty(reply: Any) -> bool:
    """Whether the reply of a command or script contains nothing that was stored before."""
    if not isinstance(reply, list):
        return not reply
    return not any(reply[1:] if reply and reply[0] in _STATES else reply)


class DataIdentity:
    """The identity of the data under one prefix, as it was when the store was opened."""

    def __init__(self, prefix: str, *, clustered: bool) -> None:
        tags = [f":{{{tag}}}" for tag in _cluster_tags()] if clustered else [""]
        self._keys = [f"{prefix}:identity{tag}" for tag in tags]
        self._found: dict[str, bytes] = {}

    async def open(self, call: Call) -> None:
        """Read the identity; write one to data that has none yet."""
        fresh = secrets.token_hex(16)
        await asyncio.gather(*(call("SET", key, fresh, "NX") for key in self._keys))
        found = await asyncio.gather(*(call("GET", key) for key in self._keys))
        self._found = dict(zip(self._keys, found, strict=True))

    @property
    def text(self) -> str:
        """The identity, for comparison with the one of an earlier process."""
        return sha256(b" ".join(self._found[key] for key in self._keys)).hexdigest()

    async def check(self, call: Call, keys: Sequence[str], *, name: str) -> None:
        """Raise `StoreReplaced` if a server of these keys has lost its data since it was opened."""
        for near in {self._near(key) for key in keys}:
            if await call("GET", near) != self._found[near]:
                raise StoreReplaced(
                    f"{name} has lost its data since it was opened: it was flushed, or restarted without "
                    "its files. Restore the data; until then nothing is read from it or stored in it"
                )

    def _near(self, key: str) -> str:
        """Return the key of the identity on the server of this key."""
        return self._keys[0 if len(self._keys) == 1 else key_slot(key.encode()) // _SLOTS_EACH]


@cache
def _cluster_tags() -> Sequence[str]:
    """Return hash tags, one for each run of slots."""
    found: dict[int, str] = {}
    for number in count():
        found.setdefault(key_slot(str(number).encode()) // _SLOTS_EACH, str(number))
        if len(found) == _SLOTS // _SLOTS_EACH:
            break
    return [found[part] for part in sorted(found)]
