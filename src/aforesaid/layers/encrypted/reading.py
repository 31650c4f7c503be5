"""Read the log: every window and page is compared with the head of the log.

A read fetches the rows and the head. If they agree, the rows are decrypted and returned. If not, another
process may have written in between: both are read again until the head is the same before and after. A
remaining difference is a violation, and the whole log is compared with its head; see `reconciling`. An answer
from the last known state comes from this process and is not compared.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from aforesaid.contracts import Entry, LogEnd, Position
from aforesaid.errors import RevisionConflict, StoreDamaged, StoreUnavailable
from aforesaid.layers.encrypted import sealing
from aforesaid.layers.encrypted.conversations import SealedConversations
from aforesaid.layers.encrypted.entries import opened_entries, without_keys
from aforesaid.layers.encrypted.heads import Head, key_id_of_head, open_head
from aforesaid.layers.encrypted.reconciling import NOT_LISTED, OLDER, Reconciled, all_unreadable, reconciled
from aforesaid.layers.encrypted.sealing import InvalidSeal, Opened, Place
from aforesaid.model.conversations import check_count
from aforesaid.telemetry import events

T = TypeVar("T")

ATTEMPTS = 100
"""How often a log is read again because others wrote to it meanwhile. Once is rare."""
KEPT_OPEN = 256
"""Entries in a tail or page up to which they are kept open for the next one."""
OPENED_AT_ONCE = 2_000
"""Entries that are opened between two breaths of the event loop; more go to a thread."""
EVERYTHING = 2**53


class Part(NamedTuple):
    """A part of a log: how to read it, what it must hold, and how to cut it out of the whole log."""

    read: Callable[[], Coroutine[Any, Any, list[Entry]]]
    expected: Callable[[Head, Sequence[Entry]], Sequence[int] | None]
    cut: Callable[[list[Entry]], list[Entry]]


class SealedReads(SealedConversations):
    """The log, read and proven."""

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        return await self._proven_tail(self.inner.tail, conversation_id, limit, before)

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        return await self._proven_tail(self.inner.recent, conversation_id, limit, before)

    async def _proven_tail(
        self,
        read: Callable[..., Coroutine[Any, Any, list[Entry]]],
        conversation_id: str,
        limit: int,
        before: Position | None,
    ) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        part = Part(
            lambda: read(conversation_id, limit=limit, before=before),
            lambda head, found: _expected_tail(head, found, limit, before),
            lambda entries: _cut_tail(entries, limit, before),
        )
        return await self._proven(self._place(conversation_id), part, limit)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        part = Part(
            lambda: self.inner.page(conversation_id, limit=limit, offset=offset),
            lambda head, found: head.page(offset, limit),
            lambda entries: entries[offset : offset + limit],
        )
        return await self._proven(self._place(conversation_id), part, limit)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        place = self._place(conversation_id)

        async def read() -> list[Entry]:
            found = await self.inner.entry(conversation_id, message_id)
            return [] if found is None else [found]

        part = Part(
            read,
            lambda head, found: [one.sequence for one in found if one.sequence in head],
            lambda entries: [entry for entry in entries if entry.message.message_id == message_id],
        )
        found, head = await self._found(place, part)
        if not found:
            return None
        (opened,) = await self._open_entries(place, found, spooled=head is None)
        if opened.unreadable is None and opened.message.message_id != message_id:
            return sealing.as_unreadable(
                opened, "it is stored under the id of another message, and is refused"
            )
        if opened.unreadable is not None or head is None:
            return opened
        if isinstance(head, InvalidSeal):
            return all_unreadable([opened], str(head)).entries[0]
        if opened.sequence not in head:
            return sealing.as_unreadable(opened, NOT_LISTED)
        return opened if head.is_current(found[0]) else sealing.as_unreadable(opened, OLDER)

    async def whole(self, conversation_id: str) -> Reconciled:
        """The whole log, compared with its head: what is not as it was written is set aside and counted."""
        return await self._whole(self._place(conversation_id))

    # Inside

    async def _proven(self, place: Place, part: Part, size: int) -> list[Entry]:
        """The part of the log, proven; what is not as it was written is set aside."""
        known = self._backend.opened(place) if size <= KEPT_OPEN else None
        found, head = await self._found(place, part)
        if head is None or _agrees(head, part, found):
            return self._log_violations(
                place, await self._open_entries(place, found, known, spooled=head is None)
            )
        return part.cut((await self._whole(place)).entries)

    def _log_violations(self, place: Place, entries: list[Entry]) -> list[Entry]:
        """The entries, with a note in log and metrics where some of them cannot be read."""
        refused = [entry for entry in entries if entry.unreadable is not None]
        if refused:
            events.log_violated(place.conversation_id, len(refused))
        return entries

    async def _found(self, place: Place, part: Part) -> tuple[list[Entry], Head | InvalidSeal | None]:
        """The rows of a part and the head of the log, both of one moment unless they agree anyway.

        The head is None where the rows come from the last known state: nothing is compared then.
        """
        found, end = await self._read(_both(part.read(), self._end_of(place)))
        head = await self._head_or_none(place, end)
        if head is None or _agrees(head, part, found):
            return found, head
        for _ in range(ATTEMPTS):
            before = await self._end_of(place)
            found = await part.read()
            after = await self._end_of(place)
            head = await self._head_or_none(place, after)
            if head is None or _agrees(head, part, found) or _head_in(before) == _head_in(after):
                return found, head
        raise StoreUnavailable(f"conversation {place.conversation_id} changes too fast to be read")

    async def _whole(self, place: Place) -> Reconciled:
        """The whole log, compared with its head."""
        part = Part(
            lambda: self.inner.page(place.conversation_id, limit=EVERYTHING),
            lambda head, found: head.page(0, EVERYTHING),
            lambda entries: entries,
        )
        found, head = await self._found(place, part)
        opened = await self._open_entries(place, found, spooled=head is None)
        if head is None:
            return Reconciled(opened, 0)
        if isinstance(head, InvalidSeal):
            whole = all_unreadable(opened, str(head))
        else:
            known = head
            whole = await off_the_loop(
                len(found), lambda: reconciled(place.conversation_id, found, opened, known)
            )
        if whole.violations:
            events.log_violated(place.conversation_id, whole.violations)
        return whole

    async def _end_of(self, place: Place) -> LogEnd | None:
        try:
            return await self._log.log_end(place.conversation_id)
        except StoreUnavailable:
            if not self.inner.degraded:
                raise
            return None

    async def _head_or_none(self, place: Place, end: LogEnd | None) -> Head | InvalidSeal | None:
        """The head; why it cannot be read; or None where the store is away."""
        if self.inner.degraded:
            return None
        try:
            return await self._head(place, end)
        except InvalidSeal as error:
            return error

    async def _head(self, place: Place, end: LogEnd | None) -> Head:
        """The head of the log that ends so. Raises `InvalidSeal`."""
        sealed = _head_in(end)
        if sealed is None:
            return Head()
        known = self._backend.cached_head(place, sealed)
        if known is not None:
            return known
        keys = await self._keys([key_id_of_head(sealed)])
        if keys is None:
            raise InvalidSeal("there is no data key for this owner")
        head = open_head(sealed, keys, place)
        self._backend.cache_head(place, sealed, head)
        return head

    async def _head_to_write(self, place: Place, end: LogEnd) -> Head:
        """The head that a change goes on from. Raises `StoreDamaged`."""
        try:
            return await self._head(place, end)
        except InvalidSeal as error:
            now = await self._log.log_end(place.conversation_id)
            if now is not None and now.head != end.head:  # a key rotation has sealed the head anew
                raise RevisionConflict(
                    place.conversation_id, expected=end.revision, actual=now.revision
                ) from error
            raise StoreDamaged(
                f"the head of the log of conversation {place.conversation_id} cannot be read, "
                f"and nothing was stored: {error}"
            ) from error

    async def _open_entries(
        self,
        place: Place,
        found: Sequence[Entry],
        known: dict[int, Opened] | None = None,
        *,
        spooled: bool = False,
    ) -> list[Entry]:
        if not found:
            return []
        keys = await self._keys()
        if keys is None:
            return [without_keys(entry) for entry in found]
        opened = {} if known is None else known
        entries = await off_the_loop(
            len(found), lambda: opened_entries(found, keys, place, opened, spooled=spooled)
        )
        if all(entry.unreadable is None for entry in entries):
            return entries
        again = await self._keys(sealing.key_ids_of(found))
        if again is keys or again is None:
            return entries
        return opened_entries(found, again, place, opened, spooled=spooled)


async def off_the_loop(count: int, work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work) if count > OPENED_AT_ONCE else work()


async def _both(
    reading: Coroutine[Any, Any, list[Entry]], ending: Coroutine[Any, Any, LogEnd | None]
) -> tuple[list[Entry], LogEnd | None]:
    found, end = await asyncio.gather(reading, ending)
    return found, end


def _agrees(head: Head | InvalidSeal, part: Part, found: Sequence[Entry]) -> bool:
    if isinstance(head, InvalidSeal):
        return False
    expected = part.expected(head, found)
    return expected is not None and head.holds(found, expected)


def _head_in(end: LogEnd | None) -> str | None:
    return None if end is None else end.head


def _expected_tail(
    head: Head, found: Sequence[Entry], limit: int, before: Position | None
) -> Sequence[int] | None:
    if before is None:
        return head.tail(limit)
    expected = head.before(before.sequence, limit)
    if expected is None and found:  # no message stands there: the rows must at least follow each other
        last = found[-1].sequence
        earlier = head.before(last, limit - 1)
        return None if earlier is None else [*earlier, last]
    return expected


def _cut_tail(entries: list[Entry], limit: int, before: Position | None) -> list[Entry]:
    if before is not None:
        places = [place for place, entry in enumerate(entries) if entry.position == before]
        earlier = [entry for entry in entries if entry.position < before]
        entries = entries[: places[-1]] if places else earlier
    return entries[-limit:] if limit else []
