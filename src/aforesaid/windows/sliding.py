"""The sliding window of one conversation: evict the oldest messages, one at a time, until the rest fits.

The window contains keys, tokens and tags of messages, not their words: a copy of the words would have to be
erased too. Adding and evicting take amortized constant time.
"""

from collections import Counter, deque
from collections.abc import Iterator
from enum import IntEnum

from msgspec import Struct

from aforesaid.dialects import meaning_of
from aforesaid.model.messages import Message
from aforesaid.windows.groups import EPHEMERAL, IMPORTANT, tags_of


class Rank(IntEnum):
    """The order of eviction. Preserved system messages are never evicted for tokens."""

    EPHEMERAL = 0
    PLAIN = 1
    IMPORTANT = 2
    SYSTEM = 3


class SlidingLimits(Struct, frozen=True, kw_only=True):
    """The limits of a sliding window.

    - `max_tokens`: the budget of the messages; None keeps all messages.
    - `retention_ratio`: the share of the budget that remains in use after an eviction.
    - `reach`: messages further back than this are evicted, whatever their rank, except leading system
      messages; None for no such limit.
    """

    max_tokens: int | None
    preserve_system: bool = True
    retention_ratio: float = 1.0
    reach: int | None = None


class _Unit:
    """What is evicted together: one message, or a tool call with its results.

    A provider refuses a result without its call, and a call without its result.
    """

    __slots__ = ("calls", "first", "keys", "rank", "tags", "tokens")

    def __init__(self, number: int) -> None:
        self.first = number
        self.calls: list[str] = []
        self.keys: list[str] = []
        self.tokens = 0
        self.tags: list[str] = []
        self.rank = Rank.PLAIN


class Evicted(Struct, frozen=True, kw_only=True):
    """What one added message evicted."""

    messages: int
    tokens: int


def key_of(message: Message) -> str:
    """Return the key of a message in a window: its id, which every stored message of ours has."""
    return message.message_id or str(message.timestamp)


class ConversationWindow:
    """The messages of one conversation that fit, in numbers."""

    def __init__(self, limits: SlidingLimits) -> None:
        self.limits = limits
        self.tokens = 0
        # Tokens of preserved system messages.
        self.system_tokens = 0
        self.tags = Counter[str]()
        self._queues: dict[Rank, deque[_Unit]] = {rank: deque() for rank in Rank}
        self._unit_of: dict[str, _Unit] = {}
        self._callers: dict[str, _Unit] = {}
        self._added = 0
        self._is_leading = True
        # Whether system messages at the start of the conversation are preserved.
        self.has_leading = False
        self._newest: _Unit | None = None

    def __len__(self) -> int:
        return len(self._unit_of)

    def __contains__(self, message: Message) -> bool:
        return key_of(message) in self._unit_of

    def has_any(self, message: Message, tags: frozenset[str]) -> bool:
        """Return whether the message has any of these tags, or the call or result that it belongs to."""
        return not tags.isdisjoint(self._unit_of[key_of(message)].tags)

    @property
    def reaches_back(self) -> int:
        """The number of newest messages that contain this window, without leading system messages."""
        heads = [queue[0].first for rank in Rank if (queue := self._current(rank))]
        return self._added - min(heads) if heads else 0

    def add(self, message: Message, tokens: int) -> Evicted | None:
        """Add a message, and evict the oldest ones that no longer fit."""
        key = key_of(message)
        if key in self._unit_of:
            return None
        self._is_leading &= message.role == "system"
        unit = self._place(message)
        unit.keys.append(key)
        unit.tokens += tokens
        tags = tags_of(message)
        unit.tags += tags
        self._unit_of[key] = unit
        self._added += 1
        self.tokens += tokens
        self.tags.update(tags)
        self._rank(unit, message)
        if unit.rank is Rank.SYSTEM:
            self.system_tokens += tokens
        if message.role != "system" or self._newest is None:
            self._newest = unit
        return self._evict()

    # Placing

    def _place(self, message: Message) -> _Unit:
        """Return the unit of a message: that of the call that it answers, or a new one."""
        meaning = meaning_of(message)
        for result in meaning.results:
            caller = self._callers.get(result.call_id)
            if caller is not None and message.role != "assistant":
                return caller
        unit = _Unit(self._added)
        for call in meaning.calls:
            unit.calls.append(call.id)
            self._callers[call.id] = unit
        return unit

    def _rank(self, unit: _Unit, message: Message) -> None:
        """Put the unit in the queue of its rank. A tagged result can change the rank of its call."""
        rank = self._rank_of(unit, message)
        if len(unit.keys) > 1 and rank is unit.rank:
            return
        unit.rank = rank
        if self._is_leading and rank is Rank.SYSTEM:
            self.has_leading = True
            return
        queue = self._queues[rank]
        queue.append(unit)
        if len(queue) > 1 and queue[-2].first > unit.first:
            self._queues[rank] = deque(sorted(queue, key=lambda each: each.first))

    def _rank_of(self, unit: _Unit, message: Message) -> Rank:
        if self.limits.preserve_system and message.role == "system":
            return Rank.SYSTEM
        if IMPORTANT in unit.tags:
            return Rank.IMPORTANT
        return Rank.EPHEMERAL if EPHEMERAL in unit.tags else Rank.PLAIN

    def _current(self, rank: Rank) -> "deque[_Unit]":
        """Return the queue of a rank, without units in front that were evicted or have another rank."""
        queue = self._queues[rank]
        while queue and (queue[0].rank is not rank or not queue[0].keys):
            queue.popleft()
        return queue

    # Evicting

    def _evict(self) -> Evicted | None:
        messages, tokens = len(self), self.tokens
        for distant in self._out_of_reach():
            self._remove(distant)
        budget = self.limits.max_tokens
        if budget is not None and self.tokens > budget:
            low_mark = budget * self.limits.retention_ratio
            while (unit := self._oldest()) is not None:
                # The low mark is no reason to lose an important message.
                if self.tokens <= (budget if unit.rank is Rank.IMPORTANT else low_mark):
                    break
                self._remove(unit)
        gone = messages - len(self)
        return Evicted(messages=gone, tokens=tokens - self.tokens) if gone else None

    def _oldest(self) -> _Unit | None:
        """Return the next unit to evict. The newest is never evicted: a model needs a question."""
        for rank in (Rank.EPHEMERAL, Rank.PLAIN, Rank.IMPORTANT):
            queue = self._current(rank)
            if queue and queue[0] is self._newest:
                newest = queue.popleft()
                behind = next(iter(self._current(rank)), None)
                queue.appendleft(newest)
                if behind is not None:
                    return behind
            elif queue:
                return queue[0]
        return None

    def _out_of_reach(self) -> Iterator[_Unit]:
        reach = self.limits.reach
        if reach is None:
            return
        for rank in Rank:
            while (queue := self._current(rank)) and queue[0].first < self._added - reach:
                if queue[0] is self._newest:
                    break
                yield queue[0]

    def _remove(self, unit: _Unit) -> None:
        self.tokens -= unit.tokens
        if unit.rank is Rank.SYSTEM:
            self.system_tokens -= unit.tokens
        self.tags.subtract(unit.tags)
        for tag in unit.tags:
            if not self.tags[tag]:
                del self.tags[tag]
        for key in unit.keys:
            del self._unit_of[key]
        unit.keys.clear()
        for call_id in [call_id for call_id in unit.calls if self._callers.get(call_id) is unit]:
            del self._callers[call_id]
