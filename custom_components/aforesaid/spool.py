"""Turns that the store has not taken yet: a queue in a file, so that an outage and a restart lose nothing.

The file is rewritten as a whole; it is empty most of the time. Message ids make a repeated attempt harmless.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from aforesaid.errors import AccessError, AforesaidError, Conflict, InvalidInput, StoreError, TooManyRequests
from aforesaid.model.messages import Message

log = logging.getLogger(__name__)

MOST_BYTES = 32 * 1024 * 1024
"""The most bytes in the queue: weeks of a household. A newer turn is refused then, and logged."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn with its owner and the name of its conversation."""

    owner: str
    name: str
    channel: str
    messages: tuple[dict[str, object], ...]

    @classmethod
    def of(cls, owner: str, name: str, channel: str, messages: Sequence[Message]) -> "Turn":
        return cls(
            owner=owner, name=name, channel=channel, messages=tuple(each.to_dict() for each in messages)
        )

    def contents(self) -> list[Message]:
        """Return the messages."""
        return [Message.from_dict(each) for each in self.messages]


Store = Callable[[Turn], Awaitable[object]]


class Spool:
    """The queue of one entry."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turns: list[Turn] = []
        self._bytes = 0
        self._replaying = asyncio.Lock()
        self._writing = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._turns)

    async def load(self) -> None:
        """Read what an earlier run has left."""
        self._turns = await asyncio.to_thread(_read, self._path)
        self._bytes = sum(len(msgspec.json.encode(turn)) for turn in self._turns)

    def messages(self, owner: str, name: str) -> list[Message]:
        """Return the queued messages of a conversation, in order."""
        return [
            message
            for turn in self._turns
            if (turn.owner, turn.name) == (owner, name)
            for message in turn.contents()
        ]

    def has(self, owner: str, name: str) -> bool:
        """Return whether turns of this conversation are waiting: a newer one must not overtake them."""
        return any((turn.owner, turn.name) == (owner, name) for turn in self._turns)

    async def add(self, turn: Turn) -> bool:
        """Queue a turn; return whether it fits."""
        size = len(msgspec.json.encode(turn))
        if self._bytes + size > MOST_BYTES:
            log.error("a turn is lost: the memory is not available and the queue is full")
            return False
        self._turns.append(turn)
        self._bytes += size
        await self._write()
        return True

    async def replay(self, store: Store) -> None:
        """Store the queued turns in order, until the store fails."""
        async with self._replaying:
            stored = 0
            try:
                while self._turns:
                    await _store_or_drop(self._turns[0], store)
                    turn = self._turns.pop(0)
                    self._bytes -= len(msgspec.json.encode(turn))
                    stored += 1
            except (StoreError, AccessError) as error:
                log.debug("%d turns are still waiting: %s", len(self._turns), error)
            finally:
                if stored:
                    await self._write()

    async def forget(self, owner: str, name: str | None = None) -> int:
        """Remove the queued turns of a conversation, or of an owner; return their number."""
        async with self._replaying:
            kept = [turn for turn in self._turns if turn.owner != owner or name not in (None, turn.name)]
            removed = len(self._turns) - len(kept)
            if removed:
                self._turns = kept
                self._bytes = sum(len(msgspec.json.encode(turn)) for turn in kept)
                await self._write()
            return removed

    async def _write(self) -> None:
        """Write the queue. Without room on the disk it stays in memory."""
        async with self._writing:
            lines = b"".join(msgspec.json.encode(turn) + b"\n" for turn in self._turns)
            try:
                await asyncio.to_thread(_replace, self._path, lines)
            except OSError as error:
                log.warning("the queue of turns cannot be written: %s", error)


async def _store_or_drop(turn: Turn, store: Store) -> None:
    """Store a turn. Drop one that no store can take, because it would block those behind it."""
    try:
        await store(turn)
    except (TooManyRequests, StoreError, AccessError):
        raise
    except (Conflict, InvalidInput, AforesaidError) as error:
        log.error("a queued turn cannot be stored and is dropped: %s", error)  # noqa: TRY400


def _read(path: Path) -> list[Turn]:
    """Read the file; skip damaged lines. Blocks."""
    turns = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            turns.append(msgspec.json.decode(line, type=Turn))
        except msgspec.MsgspecError as error:
            log.warning("a queued turn is damaged and skipped: %s", error)
    return turns


def _replace(path: Path, content: bytes) -> None:
    """Replace the file in one step; remove an empty one. Blocks."""
    if not content:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
