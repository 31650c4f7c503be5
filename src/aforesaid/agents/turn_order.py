"""Running turns of this process: they are stored in the order of their arrival, and a conversation that was
created for turns that all failed is removed.

A turn registers before its conversation is looked up, so that no other turn removes the conversation in
between. A question that is delivered again waits for the turn that answers it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from aforesaid.errors import AforesaidError, ConversationNotFound, RevisionConflict
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.conversations import Conversation
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.agents")

Undo = Callable[[], Awaitable[None]]
"""Undoes the creation of a conversation."""


class Found(NamedTuple):
    """The conversation of a turn, and how to undo its creation if it was created for the turn."""

    conversation_id: str
    undo: Undo | None = None
    record: Conversation | None = None
    """The conversation as it was read now."""


Key = tuple[int, int, str, str]
"""An event loop, a memory, an owner, and a conversation or session."""

# Running turns per conversation.
_turns: Counter[str] = Counter()
# How to remove each conversation that was created for a turn, until a turn in it is stored.
_undo: dict[str, Undo] = {}
# The turns of each conversation that have not ended, in the order of their arrival.
_places: "dict[Key, list[Place]]" = {}
_looking_up: "dict[Key, _Lock]" = {}


class _Lock:
    """A lock that is removed with its last user."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class Place:
    """The place of a turn among the turns of its conversation."""

    def __init__(self, key: Key, question_id: str | None) -> None:
        self._key = key
        self.question_id = question_id
        self.is_durable = False
        """Whether the question is stored, so that others can read it."""
        self._over = asyncio.Event()
        self._before = list(_places.setdefault(key, []))
        _places[key].append(self)

    @property
    def is_repeat(self) -> bool:
        """Whether an earlier turn with the same question id runs."""
        return any(self._repeats())

    async def repeats_are_over(self) -> None:
        """Wait for earlier turns with the same question id."""
        for place in list(self._repeats()):
            await place._over.wait()

    def _repeats(self) -> "Iterator[Place]":
        return (
            place
            for place in self._before
            if place.question_id == self.question_id and not place._over.is_set()
        )

    async def is_first(self) -> None:
        """Wait until all earlier turns are stored or have failed."""
        for place in self._before:
            await place._over.wait()

    def leave(self) -> None:
        self._over.set()
        self._before.clear()
        places = _places[self._key]
        places.remove(self)
        if not places:
            del _places[self._key]


def place_of(manager: ManagerProtocol, conversation_id: str, question_id: str | None) -> Place:
    """Return the next place in a conversation. Call `leave` when the turn is over."""
    return Place(_key(manager, conversation_id), question_id)


def running_questions(
    manager: ManagerProtocol, conversation_id: str, *, only_durable: bool = False
) -> list[str]:
    """Return the ids of the questions that this process answers in a conversation now."""
    places = _places.get(_key(manager, conversation_id), ())
    return [
        place.question_id
        for place in places
        if place.question_id is not None and (place.is_durable or not only_durable)
    ]


def _key(manager: ManagerProtocol, name: str) -> Key:
    # The queue of unstored turns is one object per memory, shared by its managers.
    return id(asyncio.get_running_loop()), id(manager.unstored), manager.owner, name


@asynccontextmanager
async def running_turn(
    manager: ManagerProtocol, name: str, look_up: Callable[[], Awaitable[Found]]
) -> AsyncIterator[Found]:
    """Look the conversation of a turn up, or create it, and register the turn there.

    When several turns run in a new conversation, the last one removes it, and only if all of them failed.
    Lookups and removals under one name exclude each other.
    """
    async with _lookup(manager, name):
        found = await look_up()
        if found.undo is not None:
            _undo[found.conversation_id] = found.undo
        _turns[found.conversation_id] += 1
    try:
        yield found
        keep_conversation(found.conversation_id)
    finally:
        _turns[found.conversation_id] -= 1
        if not _turns[found.conversation_id]:
            del _turns[found.conversation_id]
            if found.conversation_id in _undo:
                await _remove(manager, name, found.conversation_id)


async def _remove(manager: ManagerProtocol, name: str, conversation_id: str) -> None:
    async with _lookup(manager, name):
        # A turn may have registered while this one waited.
        undo = None if _turns[conversation_id] else _undo.pop(conversation_id, None)
        if undo is not None:
            await undo()


def keep_conversation(conversation_id: str) -> None:
    """Keep a conversation that was created for a turn: it has words now."""
    _undo.pop(conversation_id, None)


@asynccontextmanager
async def _lookup(manager: ManagerProtocol, name: str) -> AsyncIterator[None]:
    key = _key(manager, name)
    shared = _looking_up.setdefault(key, _Lock())
    shared.users += 1
    try:
        async with shared.lock:
            yield
    finally:
        shared.users -= 1
        if not shared.users:
            del _looking_up[key]


async def remove_if_unchanged(manager: ManagerProtocol, record: Conversation) -> None:
    """Delete a conversation that was created for a failed turn, unless it has changed since."""
    try:
        # The revision refuses the deletion if any message arrived in the meantime.
        await manager.delete_conversation(record.id, expected_revision=record.revision)
    except (RevisionConflict, ConversationNotFound):
        return
    except AforesaidError as error:
        log.warning("an empty conversation could not be removed: %s", describe(error))
