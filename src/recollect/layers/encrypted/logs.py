"""The log: every message sealed for its place. Below: `entries`, which does it without waiting."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from recollect.clock import to_micros
from recollect.contracts import Appended, Entry, LogEnd, Position, replaced_id, replacing, restorable
from recollect.conversations import Conversation, check_count, stamp_for
from recollect.errors import (
    ConversationNotFound,
    MessageConflict,
    MessageNotFound,
    RevisionConflict,
    StoreUnavailable,
)
from recollect.layers import records, sealing
from recollect.layers.encrypted.conversations import SealedConversations
from recollect.layers.encrypted.entries import (
    Turn,
    opened_entries,
    resealed,
    sealed_turn,
    turn_of,
    without_keys,
)
from recollect.layers.sealing import DataKeys, Number, Opened, Place
from recollect.messages import Message

T = TypeVar("T")

ATTEMPTS = 100
"""How often a turn is sealed anew because others wrote to the conversation first. Once is rare."""
KEPT_OPEN = 256
"""Entries in a tail or page up to which they are kept open for the next one."""
OPENED_AT_ONCE = 2_000
"""Entries that are opened between two breaths of the event loop; more go to a thread."""
_LARGEST_LIMIT = 2**53


class SealedLogs(SealedConversations):
    """Conversations with their messages."""

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        place = self._place(conversation_id)
        if not messages:
            done = await self._inner.append(conversation_id, (), expected_revision=expected_revision)
            return await self._opened_append(place, done, await self._keys())
        turn = turn_of(messages)
        async with self._backend.turn(place):
            return await self._write(place, turn, expected_revision, afresh=False)

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        place = self._place(conversation_id)
        turn = turn_of(messages)
        async with self._backend.turn(place):
            try:
                return await self._write(place, turn, expected_revision, afresh=True)
            finally:
                self._backend.forget(place)

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        # One more than asked for: whether the first stands in its order shows beside the one before it.
        more = min(limit + 1, _LARGEST_LIMIT) if limit else 0
        found = await self._read(self._inner.tail(conversation_id, limit=more, before=before))
        place = self._place(conversation_id)
        known = self._backend.opened(place) if limit <= KEPT_OPEN else None
        opened = await self._open_entries(place, found, known)
        return opened[-limit:] if limit else opened

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        before = 1 if offset and limit else 0
        more = min(limit + before, _LARGEST_LIMIT)
        found = await self._inner.page(conversation_id, limit=more, offset=offset - before)
        place = self._place(conversation_id)
        known = self._backend.opened(place) if limit <= KEPT_OPEN else None
        return (await self._open_entries(place, found, known))[before:]

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        found = await self._inner.entry(conversation_id, message_id)
        if found is None:
            return None
        (opened,) = await self._open_entries(self._place(conversation_id), [found])
        return opened

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        place = self._place(conversation_id)
        turn = turn_of([message])
        if message.message_id is None:
            return await self._inner.replace(conversation_id, message)  # which refuses it
        held = await self._inner.entry(conversation_id, replaced_id(message))
        if held is None:
            raise MessageNotFound(place.conversation_id, replaced_id(message))
        keys = await self._keys_to_write(place)
        kept = replacing(held, message)
        (sealed,) = sealed_turn(place, keys, turn, [kept.timestamp], [Number(held.sequence, 0)])
        try:
            entry = await self._inner.replace(conversation_id, sealed, expected_revision=expected_revision)
        finally:
            self._backend.forget(place)
        (opened,) = await self._open_entries(place, [entry])
        return opened

    # Moving

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        record, given = restorable(conversation, entries)
        place = self._place(record.id)
        keys = await self._backend.keyring.ensured(self._owner, look=True)
        turn = turn_of([entry.message for entry in given.values()])
        numbers = [Number(sequence, 0) for sequence in given]
        times = [entry.message.timestamp for entry in given.values()]
        messages = await off_the_loop(len(given), lambda: sealed_turn(place, keys, turn, times, numbers))
        pairs = zip(given.values(), messages, strict=True)
        sealed = [replace(entry, message=message) for entry, message in pairs]
        try:
            await self._inner.restore(await self._seal_record(record), sealed)
        finally:
            self._backend.forget(place)

    # Inside

    async def _write(
        self, place: Place, turn: Turn, expected_revision: int | None, *, afresh: bool
    ) -> Appended:
        """Store the turn where the log ends; when somebody else was first, look again and seal it anew."""
        keys = await self._keys_to_write(place)
        for _ in range(ATTEMPTS):
            end = await self._end(place, expected_revision)
            # While the store is away nobody can say whether somebody else wrote: a turn is accepted as it is.
            away = self._inner.degraded and expected_revision is None and not afresh
            try:
                done = await self._store(place, turn, keys, end, expected_revision, away=away, afresh=afresh)
            except RevisionConflict:
                self._backend.know_end(place, None)
                if expected_revision is not None:
                    raise
            except StoreUnavailable:
                went_away = self._inner.degraded and not away
                if not went_away or afresh or expected_revision is not None:
                    raise
            except MessageConflict as conflict:
                if afresh or not await self._is_of_older_key(place, conflict.message_id, keys, turn):
                    raise
            else:
                return await self._opened_append(place, done, keys)
        raise StoreUnavailable(f"conversation {place.conversation_id} changes too fast to be written to")

    async def _store(
        self,
        place: Place,
        turn: Turn,
        keys: DataKeys,
        end: LogEnd,
        expected_revision: int | None,
        *,
        away: bool,
        afresh: bool,
    ) -> Appended:
        """Seal the turn for the end of the log, and store it if that is still the end."""
        stamp = stamp_for(None if afresh else end.last_message_at, now=self.now())
        times = [message.timestamp or stamp for message in turn.messages]
        numbers = sealing.numbers_for(end.next_sequence, len(times), away=away)
        sealed = sealed_turn(place, keys, turn, times, numbers)
        revision = end.revision if expected_revision is None and not away else expected_revision
        write = self._inner.rewrite if afresh else self._inner.append
        done = await write(place.conversation_id, sealed, expected_revision=revision)
        if away:
            self._backend.know_end(place, None)
        else:
            await self._written(place, end, keys, done, afresh=afresh)
        return done

    async def _end(self, place: Place, expected_revision: int | None) -> LogEnd:
        end = self._backend.known_end(place)
        if end is None or (expected_revision is not None and end.revision != expected_revision):
            end = await self._asked_end(place)
            self._backend.know_end(place, end)
        if end is None:
            raise ConversationNotFound(place.conversation_id)
        return end

    async def _asked_end(self, place: Place) -> LogEnd | None:
        try:
            return await self._log.log_end(place.conversation_id)
        except StoreUnavailable:
            if not self._inner.degraded:
                raise
            return LogEnd(0, 1, None)  # nothing is known of it: it may be sealed for any place in its log

    async def _is_of_older_key(self, place: Place, message_id: str, keys: DataKeys, turn: Turn) -> bool:
        """Whether the id is stored under an older key, whose fingerprint must be used to compare."""
        held = await self._inner.entry(place.conversation_id, message_id)
        key_id = None if held is None else sealing.key_id_of(held.message)
        if key_id is None or key_id == keys.current.id or key_id not in keys or message_id in turn.known_by:
            return False
        turn.known_by[message_id] = keys.get(key_id)
        return True

    async def _written(
        self, place: Place, end: LogEnd, keys: DataKeys, done: Appended, *, afresh: bool
    ) -> None:
        """Remember where the log ends now."""
        new = done.new
        if not new:
            if afresh:
                self._backend.know_end(place, None)
            return
        if new[0].sequence < end.next_sequence:
            # Somebody removed the conversation and made it again meanwhile, with as many changes.
            await self._log.reseal(place.conversation_id, resealed(new, keys, place))
            self._backend.know_end(place, None)
            return
        moments = [entry.message.timestamp for entry in new if entry.message.timestamp is not None]
        if end.last_message_at is not None and not afresh:
            moments.append(end.last_message_at)
        last = max(moments, key=to_micros)
        self._backend.know_end(place, LogEnd(new[0].revision, new[-1].sequence + 1, last))

    async def _opened_append(self, place: Place, done: Appended, keys: DataKeys | None) -> Appended:
        known = tuple([(await self._open_entries(place, [entry]))[0] for entry in done.known])

        def record() -> Conversation:
            found = done.conversation
            return records.open_record(found, keys, self._owner) if self._seals_records else found

        def new() -> tuple[Entry, ...]:
            return () if keys is None else tuple(opened_entries(done.new, keys, place, {}))

        return Appended(conversation=record, new=new, known=known)

    async def _open_entries(
        self, place: Place, found: Sequence[Entry], known: dict[int, Opened] | None = None
    ) -> list[Entry]:
        if not found:
            return []
        keys = await self._keys()
        if keys is None:
            return [without_keys(entry) for entry in found]
        opened = {} if known is None else known
        entries = await off_the_loop(len(found), lambda: opened_entries(found, keys, place, opened))
        if all(entry.unreadable is None for entry in entries):
            return entries
        again = await self._keys(sealing.key_ids_of(found))
        return entries if again is keys or again is None else opened_entries(found, again, place, opened)


async def off_the_loop(count: int, work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work) if count > OPENED_AT_ONCE else work()
