"""Read the earlier parts of a branch's log, and cache their end.

A part changes only when a message of it is replaced, and the lineage then has another version. So a cached
prefix is valid as long as the lineage is the same.
"""

import logging
from asyncio import gather
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime
from heapq import merge
from operator import attrgetter
from typing import NamedTuple, NoReturn

from msgspec.structs import replace

from aforesaid._internal.bounded import BoundedDict
from aforesaid.contracts import ConversationStore, Entry, Position
from aforesaid.errors import ConversationNotFound
from aforesaid.model.lineages import Ancestor, Lineage, shared_messages

log = logging.getLogger("aforesaid.branched")

# Branches whose prefix is cached, and how many messages of each.
MAX_CACHED = 256
MOST_CACHED_ENTRIES = 512
# Messages read at least, so that the next window finds them in the cache.
LEAST_READ = 64
# Messages of one read while a whole part is read.
CHUNK = 500

_position = attrgetter("position")


class CachedPrefix(NamedTuple):
    """The last messages of a prefix, in reading order."""

    lineage: Lineage
    entries: Sequence[Entry]
    is_whole: bool
    front: Sequence[Entry] = ()


class PrefixCache:
    """The prefixes that this process has read, by owner and branch."""

    def __init__(self) -> None:
        self._prefixes: BoundedDict[tuple[str, str], CachedPrefix] = BoundedDict(MAX_CACHED)

    def get(self, owner: str, branch_id: str, lineage: Lineage) -> CachedPrefix | None:
        cached = self._prefixes.use((owner, branch_id))
        return cached if cached is not None and cached.lineage == lineage else None

    def put(self, owner: str, branch_id: str, prefix: CachedPrefix) -> None:
        self._prefixes[owner, branch_id] = prefix

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Drop the copies; see `contracts.CopyHolder`."""
        gone = [
            key
            for key, prefix in self._prefixes.items()
            if key[0] == owner
            and (
                conversation_id in (None, key[1])
                or any(one.conversation_id == conversation_id for one in prefix.lineage)
            )
        ]
        for key in gone:
            del self._prefixes[key]
        return {"cached_copies": len(gone)} if gone else {}


class Prefix:
    """The earlier parts of one branch, read from a store in which nothing has expired."""

    def __init__(
        self, store: ConversationStore, branch_id: str, lineage: Lineage, cache: PrefixCache, *, recent: bool
    ) -> None:
        self._store = store
        self._branch_id = branch_id
        self._lineage = lineage
        # Late messages can give a nearer part an earlier end.
        self._parts = sorted(lineage, key=lambda one: (one.micros, one.place), reverse=True)
        self._cache = cache
        self._recent = recent

    @property
    def end(self) -> Position:
        """The position of the last message."""
        return Position(self._parts[0].micros, self._parts[0].place)

    @property
    def messages(self) -> int:
        """The number of messages."""
        return shared_messages(self._lineage)

    async def tail(self, limit: int, before: Position | None = None) -> list[Entry]:
        """Return the last messages, or the last before a position, in reading order."""
        if limit <= 0:
            return []
        cached = self._cache.get(self._store.owner, self._branch_id, self._lineage)
        if cached is not None:
            found = cached.entries
            end = len(found) if before is None else bisect_left(found, before, key=_position)
            if end >= limit or cached.is_whole:
                return list(found[max(0, end - limit) : end])
        if before is not None and before <= self.end:
            return await self._read_tail(limit, before)
        wanted = max(limit, LEAST_READ)
        entries = await self._read_tail(wanted, None)
        if wanted <= MOST_CACHED_ENTRIES:
            front = () if cached is None else cached.front
            prefix = CachedPrefix(self._lineage, tuple(entries), len(entries) < wanted, front)
            self._cache.put(self._store.owner, self._branch_id, prefix)
        return entries[-limit:]

    async def front(self, limit: int) -> list[Entry]:
        """Return the first messages."""
        cached = self._cache.get(self._store.owner, self._branch_id, self._lineage)
        if cached is not None and cached.is_whole:
            return list(cached.entries[:limit])
        if cached is not None and len(cached.front) >= limit:
            return list(cached.front[:limit])
        entries = await self._numbered(limit, 0)
        if cached is not None:
            self._cache.put(self._store.owner, self._branch_id, cached._replace(front=tuple(entries)))
        return entries

    async def page(self, limit: int, offset: int) -> list[Entry]:
        """Return messages in reading order, counted from the oldest."""
        if offset == 0 and limit <= LEAST_READ:
            return await self.front(limit)
        cached = self._cache.get(self._store.owner, self._branch_id, self._lineage)
        if cached is not None and cached.is_whole:
            return list(cached.entries[offset : offset + limit])
        return await self._numbered(limit, offset)

    async def _numbered(self, limit: int, offset: int) -> list[Entry]:
        """Read messages by number: only these, unless messages arrived late."""
        parts = [part for part in reversed(self._parts) if part.messages]
        if not await self._are_consecutive(parts):
            return (await self.whole())[offset : offset + limit]
        found: list[Entry] = []
        for part in parts:
            wanted = min(limit - len(found), part.messages - offset)
            if wanted > 0:
                found += await self._page(part, limit=wanted, offset=offset)
            offset = max(0, offset - part.messages)
        return found

    async def whole(self) -> list[Entry]:
        """Return all messages."""
        return await self._read_tail(max(1, self.messages), None)

    async def entry(self, message_id: str) -> tuple[Ancestor, Entry] | None:
        """Return the message with this id, and the ancestor that stores it."""
        for ancestor in self._lineage:
            try:
                found = await self._store.entry(ancestor.conversation_id, message_id)
            except ConversationNotFound:
                self._report_missing(ancestor)
            if found is not None and ancestor.contains(*found.position):
                return ancestor, found
        return None

    async def _is_beginning(self, part: Ancestor) -> bool:
        """Return whether the part is a plain beginning of its log: no late message within it."""
        if not part.messages:
            return False
        last = await self._raw_page(part, limit=1, offset=part.messages - 1)
        return bool(last) and last[0].position == (part.micros, part.place)

    async def _are_consecutive(self, parts: Sequence[Ancestor]) -> bool:
        """Return whether each part is a plain beginning of its log, and later than all of the one before."""
        firsts = (self._raw_page(part, limit=1, offset=0) for part in parts[1:])
        beginnings, starts = await gather(gather(*map(self._is_beginning, parts)), gather(*firsts))
        ends = (Position(part.micros, part.place) for part in parts)
        return all(beginnings) and all(
            bool(first) and first[0].position > end for first, end in zip(starts, ends, strict=False)
        )

    async def _page(self, ancestor: Ancestor, *, limit: int, offset: int) -> list[Entry]:
        return [self._own(one) for one in await self._raw_page(ancestor, limit=limit, offset=offset)]

    async def _raw_page(self, ancestor: Ancestor, *, limit: int, offset: int) -> list[Entry]:
        try:
            return await self._store.page(ancestor.conversation_id, limit=limit, offset=offset)
        except ConversationNotFound:
            self._report_missing(ancestor)

    async def _read_tail(self, limit: int, before: Position | None) -> list[Entry]:
        found: list[Entry] = []
        for ancestor in self._parts:
            if not ancestor.messages:
                continue
            bound = Position(ancestor.micros, ancestor.place)
            above = sum(1 for one in found if one.position > bound)
            if above >= limit:
                break  # every message of this part and of those before it is older than the wanted ones
            part = await self._part_tail(ancestor, limit - above, before)
            found = list(merge(part, found, key=_position))[-limit:] if found else part
        return found

    async def _part_tail(self, ancestor: Ancestor, limit: int, before: Position | None) -> list[Entry]:
        """Return the last messages of one part. Late messages, which are no part of it, are left out."""
        end = Position(ancestor.micros, ancestor.place + 1)
        before = end if before is None else min(before, end)
        found: list[Entry] = []
        while len(found) < limit:
            wanted = min(limit - len(found), CHUNK)
            read = self._store.recent if self._recent else self._store.tail
            try:
                older = await read(ancestor.conversation_id, limit=wanted, before=before)
            except ConversationNotFound:
                self._report_missing(ancestor)
            found = [self._own(one) for one in older if one.sequence <= ancestor.sequence] + found
            if len(older) < wanted:
                break
            before = older[0].position
        return found

    def _own(self, entry: Entry) -> Entry:
        return replace(entry, conversation_id=self._branch_id)

    def _report_missing(self, ancestor: Ancestor) -> NoReturn:
        # A move and this read crossed: the caller reads the record again. Or data was removed below.
        log.info("branch %s: %s is not there", self._branch_id, ancestor.conversation_id)
        raise AncestorMoved(ancestor.conversation_id)


class AncestorMoved(Exception):
    """A conversation that a lineage names is not there: its part has moved, or is lost."""
