"""Read the log: every window and page is compared with the head of the log.

A read fetches the rows and the head. If they agree, the rows are decrypted and returned. If not, another
process may have written in between: both are read again until the head is the same before and after. A
remaining difference is a violation, and the whole log is compared with its head; see `heads`. An
answer from the last known state comes from this process and is not compared.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from aforesaid.contracts import Entry, LogEnd, Position
from aforesaid.errors import RevisionConflict, StoreDamaged, StoreUnavailable
from aforesaid.layers.encrypted import seals
from aforesaid.layers.encrypted.base import EncryptedStoreBase
from aforesaid.layers.encrypted.heads import (
    NO_MESSAGES,
    NOT_LISTED,
    OLDER,
    Head,
    Reconciled,
    all_unreadable,
    key_id_of_head,
    open_head,
    reconciled,
)
from aforesaid.layers.encrypted.records import OpenedEntries, known_entries, opened_entries, without_keys
from aforesaid.layers.encrypted.seals import InvalidSeal, LogId
from aforesaid.model.conversations import check_count
from aforesaid.telemetry import events

T = TypeVar("T")

# How often a log is read again because another process wrote to it meanwhile. Once is rare.
ATTEMPTS = 100
# Entries in a tail or page up to which the decrypted entries are cached.
MAX_CACHED_PART = 256
# Entries that are decrypted on the event loop; more are decrypted on a thread.
MAX_ON_LOOP = 2_000
EVERYTHING = 2**53


class Part(NamedTuple):
    """A part of a log: how to read it, its expected sequences, and how to cut it out of the whole log."""

    read: Callable[[], Coroutine[Any, Any, list[Entry]]]
    expected: Callable[[Head, Sequence[Entry]], Sequence[int] | None]
    cut: Callable[[list[Entry]], list[Entry]]


class Found(NamedTuple):
    """The stored rows of a part, and the head that was read with them."""

    entries: list[Entry]
    head: Head | InvalidSeal | None
    """None if the rows come from the last known state, which is not compared with a head."""
    agrees: bool
    """Whether the rows are what the head lists; True without a head."""


class SealedReads(EncryptedStoreBase):
    """Reads of a log, verified against its head."""

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        return await self._verified_tail(self.inner.tail, conversation_id, limit, before)

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        return await self._verified_tail(self.inner.recent, conversation_id, limit, before)

    async def _verified_tail(
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
        return await self._verified(self._log_id(conversation_id), part, limit)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        part = Part(
            lambda: self.inner.page(conversation_id, limit=limit, offset=offset),
            lambda head, found: head.page(offset, limit),
            lambda entries: entries[offset : offset + limit],
        )
        return await self._verified(self._log_id(conversation_id), part, limit)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        log_id = self._log_id(conversation_id)

        async def read() -> list[Entry]:
            found = await self.inner.entry(conversation_id, message_id)
            return [] if found is None else [found]

        part = Part(
            read,
            lambda head, found: [one.sequence for one in found if one.sequence in head],
            lambda entries: [entry for entry in entries if entry.message.message_id == message_id],
        )
        found, head, _ = await self._found(log_id, part, {})
        if not found:
            return None
        (opened,) = await self._open_entries(log_id, found, {}, spooled=head is None)
        if opened.unreadable is None and opened.message.message_id != message_id:
            return seals.as_unreadable(opened, "it is stored under the id of another message, and is refused")
        if opened.unreadable is not None or head is None:
            return opened
        if isinstance(head, InvalidSeal):
            return all_unreadable([opened], str(head)).entries[0]
        if opened.sequence not in head:
            return seals.as_unreadable(opened, NOT_LISTED)
        return opened if head.is_current(found[0]) else seals.as_unreadable(opened, OLDER)

    async def whole(self, conversation_id: str) -> Reconciled:
        """Read the whole log and compare it with its head; entries that fail are unreadable and counted."""
        return await self._whole(self._log_id(conversation_id))

    # Inside

    async def _verified(self, log_id: LogId, part: Part, size: int) -> list[Entry]:
        """Return the part of the log; entries that fail verification are unreadable."""
        opened = self._shared.opened(log_id) if size <= MAX_CACHED_PART else {}
        found, head, agrees = await self._found(log_id, part, opened)
        if not agrees:
            return part.cut((await self._whole(log_id)).entries)
        entries = await self._open_entries(log_id, found, opened, spooled=head is None)
        return violations_logged(log_id, entries)

    async def _found(self, log_id: LogId, part: Part, opened: OpenedEntries) -> Found:
        """Read the rows of a part and the head of the log. If they disagree, both are from one point in time.

        Rows and head are two reads. A write between them looks like tampering, so a disagreement counts only
        if the head was the same before and after the rows were read.
        """
        rows, end = await self._read(_both(part.read(), self._end_of(log_id)))
        found = await self._compared(log_id, part, rows, end, opened)
        if found.agrees:
            return found
        for _ in range(ATTEMPTS):
            before = await self._end_of(log_id)
            rows = await part.read()
            after = await self._end_of(log_id)
            found = await self._compared(log_id, part, rows, after, opened)
            if found.agrees or _head_in(before) == _head_in(after):
                return found
        raise StoreUnavailable(f"conversation {log_id.conversation_id} changes too fast to be read")

    async def _compared(
        self, log_id: LogId, part: Part, rows: Sequence[Entry], end: LogEnd | None, opened: OpenedEntries
    ) -> Found:
        entries = known_entries(rows, opened)
        head = await self._head_or_none(log_id, end)
        if head is None or isinstance(head, InvalidSeal):
            return Found(entries, head, agrees=head is None)
        expected = part.expected(head, entries)
        return Found(entries, head, expected is not None and head.holds(entries, expected, opened))

    async def _whole(self, log_id: LogId) -> Reconciled:
        """Read the whole log and compare it with its head."""
        part = Part(
            lambda: self.inner.page(log_id.conversation_id, limit=EVERYTHING),
            lambda head, found: head.page(0, EVERYTHING),
            lambda entries: entries,
        )
        found, head, _ = await self._found(log_id, part, {})
        opened = await self._open_entries(log_id, found, {}, spooled=head is None)
        if head is None:
            return Reconciled(opened, 0)
        if isinstance(head, InvalidSeal):
            whole = all_unreadable(opened, str(head))
        else:
            known = head
            whole = await off_the_loop(
                len(found), lambda: reconciled(log_id.conversation_id, found, opened, known)
            )
        if whole.violations:
            events.log_violated(log_id.conversation_id, whole.violations)
        return whole

    async def _end_of(self, log_id: LogId) -> LogEnd | None:
        try:
            return await self._log.log_end(log_id.conversation_id)
        except StoreUnavailable:
            if not self.inner.degraded:
                raise
            return None

    async def _head_or_none(self, log_id: LogId, end: LogEnd | None) -> Head | InvalidSeal | None:
        """Return the head, or the reason why it cannot be read; None while the store is unavailable."""
        if self.inner.degraded:
            return None
        try:
            return await self._head(log_id, end)
        except InvalidSeal as error:
            return error

    async def _head(self, log_id: LogId, end: LogEnd | None) -> Head:
        """Return the decrypted head of a log with this end. Raise `InvalidSeal`."""
        sealed = _head_in(end)
        cached = self._shared.log(log_id)
        known = cached.head(sealed)
        if known is not None or sealed is None:
            return known or NO_MESSAGES
        keys = await self._keys([key_id_of_head(sealed)])
        if keys is None:
            raise InvalidSeal("there is no data key for this owner")
        head = open_head(sealed, keys, log_id)
        cached.set_head(sealed, head)
        return head

    async def _head_to_write(self, log_id: LogId, end: LogEnd) -> Head:
        """Return the head that a change continues from. Raise `StoreDamaged`."""
        try:
            return await self._head(log_id, end)
        except InvalidSeal as error:
            now = await self._log.log_end(log_id.conversation_id)
            if now is not None and now.head != end.head:  # a key rotation has sealed the head anew
                raise RevisionConflict(
                    log_id.conversation_id, expected=end.revision, actual=now.revision
                ) from error
            raise StoreDamaged(
                f"the head of the log of conversation {log_id.conversation_id} cannot be read, "
                f"and nothing was stored: {error}"
            ) from error

    async def _open_entries(
        self, log_id: LogId, found: Sequence[Entry], opened: OpenedEntries, *, spooled: bool = False
    ) -> list[Entry]:
        """Decrypt the entries; load the owner's keys again if an entry was sealed with an unknown key."""
        if not found:
            return []
        keys = await self._keys()
        if keys is None:
            return [without_keys(entry) for entry in found]
        entries = await off_the_loop(
            len(found), lambda: opened_entries(found, keys, log_id, opened, spooled=spooled)
        )
        if all([entry.unreadable is None for entry in entries]):  # noqa: C419 -- a list is faster
            return entries
        again = await self._keys(seals.key_ids_of(found))
        if again is keys or again is None:
            return entries
        return opened_entries(found, again, log_id, opened, spooled=spooled)


def violations_logged(log_id: LogId, entries: list[Entry]) -> list[Entry]:
    """Log and count the entries that cannot be read; return all entries."""
    refused = sum([entry.unreadable is not None for entry in entries])
    if refused:
        events.log_violated(log_id.conversation_id, refused)
    return entries


async def off_the_loop(count: int, work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work) if count > MAX_ON_LOOP else work()


async def _both(
    reading: Coroutine[Any, Any, list[Entry]], ending: Coroutine[Any, Any, LogEnd | None]
) -> tuple[list[Entry], LogEnd | None]:
    found, end = await asyncio.gather(reading, ending)
    return found, end


def _head_in(end: LogEnd | None) -> str | None:
    return None if end is None else end.head


def _expected_tail(
    head: Head, found: Sequence[Entry], limit: int, before: Position | None
) -> Sequence[int] | None:
    if before is None:
        return head.tail(limit)
    expected = head.before(before.sequence, limit)
    if expected is None and found:  # no message is there: the rows must at least follow each other
        last = found[-1].sequence
        earlier = head.before(last, limit - 1)
        return None if earlier is None else [*earlier, last]
    return expected


def _cut_tail(entries: list[Entry], limit: int, before: Position | None) -> list[Entry]:
    if before is not None:
        indexes = [index for index, entry in enumerate(entries) if entry.position == before]
        earlier = [entry for entry in entries if entry.position < before]
        entries = entries[: indexes[-1]] if indexes else earlier
    return entries[-limit:] if limit else []
