"""Write the log: every message is sealed for its place, and every change writes the new head of the log.

A turn is sealed for the cached end of the log, and stored only if that is still the end; otherwise the layer
reads the end again and seals the turn anew. During an outage a turn is sealed for the spool, without a place.
The replay assigns the place; see `spooled`.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NoReturn

from msgspec.structs import replace

from aforesaid.contracts import (
    Appended,
    Entry,
    LogEnd,
    Position,
    check_restorable,
    check_same_content,
    replaced_id,
    replacement_message,
    with_head,
)
from aforesaid.errors import (
    ConversationNotFound,
    MessageConflict,
    MessageNotFound,
    RevisionConflict,
    StoreDamaged,
    StoreUnavailable,
    TurnPartlyStored,
)
from aforesaid.layers.encrypted import records, sealing
from aforesaid.layers.encrypted.entries import Turn, opened_entries, sealed_turn, turn_of
from aforesaid.layers.encrypted.heads import NO_TIME, Head, head_of, seal_head
from aforesaid.layers.encrypted.reading import ATTEMPTS, EVERYTHING, SealedReads, off_the_loop
from aforesaid.layers.encrypted.sealing import DataKeys, Place, Slot
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Conversation, is_expired, stamp_for
from aforesaid.model.ids import MARK, new_id
from aforesaid.model.messages import Message


class SealedLogs(SealedReads):
    """Conversations with their messages."""

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        place = self._place(conversation_id)
        if not messages:
            done = await self.inner.append(conversation_id, (), expected_revision=expected_revision)
            return await self._opened_append(place, done, await self._keys())
        turn = turn_of(self._with_ids(messages))
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

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        place = self._place(conversation_id)
        turn = turn_of([message])
        if message.message_id is None:
            return await self.inner.replace(conversation_id, message)  # which refuses it
        async with self._backend.turn(place):
            for _ in range(ATTEMPTS):
                try:
                    entry = await self._replace(place, turn, expected_revision)
                except RevisionConflict:
                    if expected_revision is not None:
                        raise
                    continue
                finally:
                    self._backend.forget(place)
                (opened,) = await self._open_entries(place, [entry])
                return opened
        raise _too_fast(place)

    async def _replace(self, place: Place, turn: Turn, expected_revision: int | None) -> Entry:
        (message,) = turn.messages
        held = await self.inner.entry(place.conversation_id, replaced_id(message))
        if held is None:
            raise MessageNotFound(place.conversation_id, replaced_id(message))
        keys = await self._keys_to_write(place)
        self._backend.cache_end(place, None)
        end = await self._end(place, expected_revision)
        head = await self._head_to_write(place, end)
        if held.sequence not in head:
            await self._refuse_unlisted(place, end, held.sequence)
        slot = Slot(held.sequence, end.revision + 1, head.generation)
        (sealed,) = sealed_turn(place, keys, turn, [replacement_message(held, message).timestamp], [slot])
        carried = with_head(
            sealed, seal_head(head.with_change(slot.sequence, slot.revision), keys.current, place)
        )
        revision = end.revision if expected_revision is None else expected_revision
        return await self.inner.replace(place.conversation_id, carried, expected_revision=revision)

    # Moving

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        record, given = check_restorable(conversation, entries)
        place = self._place(record.id)
        keys = await self._backend.keyring.get_or_create(self._owner, refresh=True)
        turn = turn_of([entry.message for entry in given.values()])
        async with self._backend.turn(place):
            try:
                head = await self._restored_head(place, record, list(given.values()))
                sealed = await off_the_loop(
                    len(given), lambda: self._sealed_entries(place, keys, turn, given.values(), head)
                )
                await self.inner.restore(await self._seal_record(record), sealed)
            finally:
                self._backend.forget(place)
            if is_expired(record, now=self.now()):
                self._backend.cache_restored_head(place, head)

    def _sealed_entries(
        self, place: Place, keys: DataKeys, turn: Turn, entries: Collection[Entry], head: Head
    ) -> list[Entry]:
        """The entries as they are restored. The last one carries the head."""
        slots = [Slot(entry.sequence, entry.revision, head.generation) for entry in entries]
        times = [entry.message.timestamp for entry in entries]
        messages = sealed_turn(place, keys, turn, times, slots)
        if messages:
            messages[-1] = with_head(messages[-1], seal_head(head, keys.current, place))
        pairs = zip(entries, messages, strict=True)
        return [replace(entry, message=message) for entry, message in pairs]

    async def _restored_head(self, place: Place, record: Conversation, entries: Sequence[Entry]) -> Head:
        """The head after these entries are there too. An entry that is there already stays as it is."""
        end = await self._log.log_end(place.conversation_id)
        if end is None and is_expired(record, now=self.now()):
            before = self._backend.restored_head(place)  # what has expired shows no head
        else:
            before = Head() if end is None else await self._head_to_write(place, end)
        new = [entry for entry in entries if entry.sequence not in before]
        if not new:
            return before
        last = Position(before.top, before.tail(1)[0]) if before.runs else None
        if last is None or min(entry.position for entry in new) > last:
            added = head_of(new, revision=record.revision)
            sequences = added.page(0, added.count)
            head = before.with_last(sequences, top=added.top, revision=added.revision)
        else:
            there = await self.inner.page(place.conversation_id, limit=EVERYTHING)
            listed = [entry for entry in there if entry.sequence in before]
            revision = max(before.revision, record.revision)
            head = head_of(
                [*listed, *new], revision=revision, changed=before.changed, generation=before.generation
            )
        return head.kept(self._backend.kept)

    # Inside

    def _with_ids(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages, each with an id, where a turn may be sent twice because its answer was lost."""
        if not self._backend.spools:
            return messages
        return [
            message if message.message_id is not None else replace(message, message_id=MARK + new_id())
            for message in messages
        ]

    async def _write(
        self, place: Place, turn: Turn, expected_revision: int | None, *, afresh: bool
    ) -> Appended:
        """Store the turn, and say so in the words of the caller."""
        keys = await self._keys_to_write(place)
        done = await self._stored(place, turn, keys, expected_revision, afresh=afresh)
        return await self._opened_append(place, done, keys)

    async def _stored(
        self, place: Place, turn: Turn, keys: DataKeys, expected_revision: int | None, *, afresh: bool
    ) -> Appended:
        """Store the turn at the end of the log; after a concurrent write, read the end again and seal the
        turn anew."""
        given, known = turn.messages, dict[str, Entry]()
        for _ in range(ATTEMPTS):
            # While the store is unavailable the end of the log is unknown: a turn is accepted without a
            # place.
            away = self.inner.degraded and not afresh
            try:
                if away:
                    done = await self._spool(place, turn, keys, expected_revision)
                else:
                    done = await self._store(place, turn, keys, expected_revision, afresh=afresh)
            except RevisionConflict as conflict:
                self._backend.cache_end(place, None)
                if expected_revision is not None and conflict.actual != expected_revision:
                    raise
            except TurnPartlyStored:
                known |= await self._known_of(place, turn, keys, afresh=afresh)
                turn = turn.without(known.keys())
            except StoreUnavailable:
                self._backend.cache_end(place, None)
                if away or afresh or not self.inner.degraded:
                    raise
            except MessageConflict as conflict:
                if afresh or not await self._is_of_older_key(place, conflict.message_id, keys, turn):
                    raise
            else:
                return done if len(turn.messages) == len(given) else _with_known(done, given, known)
        raise _too_fast(place)

    async def _spool(
        self, place: Place, turn: Turn, keys: DataKeys, expected_revision: int | None
    ) -> Appended:
        """Have the turn accepted while the store is unavailable: bound to its time, not to a place."""
        end = self._backend.cached_end(place) or await self._end_of(place)
        times = self._times(turn, None if end is None else end.last_message_at)
        sealed = sealed_turn(place, keys, turn, times, [None] * len(times))
        done = await self.inner.append(place.conversation_id, sealed, expected_revision=expected_revision)
        self._backend.cache_end(place, None)
        return done

    async def _store(
        self, place: Place, turn: Turn, keys: DataKeys, expected_revision: int | None, *, afresh: bool
    ) -> Appended:
        """Seal the turn for the end of the log, and store it if that is still the end."""
        end = await self._end(place, expected_revision)
        times = self._times(turn, None if afresh else end.last_message_at)
        first, revision = end.next_sequence, end.revision + 1
        micros = list(map(to_micros, times))
        before = Head() if afresh else await self._head_to_write(place, end)
        if micros == sorted(micros) and (not micros or micros[0] >= before.top):  # the usual case
            sequences = range(first, first + len(micros))
            head = before.with_last(sequences, top=max(micros, default=NO_TIME), revision=revision)
        else:
            positions = [Position(at, first + number) for number, at in enumerate(micros)]
            head = await self._with_late(place, end, before, positions)
        head = head.kept(self._backend.kept)
        slots = [Slot(first + number, revision, head.generation) for number in range(len(micros))]
        sealed = sealed_turn(place, keys, turn, times, slots)
        text = seal_head(head, keys.current, place)
        if sealed:
            sealed[-1] = with_head(sealed[-1], text, seen=None if afresh else end.head or "")
        expected = end.revision if expected_revision is None else expected_revision
        write = self.inner.rewrite if afresh else self.inner.append
        done = await write(place.conversation_id, sealed, expected_revision=expected)
        if done.known or not sealed:  # nothing was new
            self._backend.cache_end(place, None)
        else:
            # The store has checked that the log ended where the turn goes on.
            last = max(times) if head.top == max(micros) else end.last_message_at
            self._backend.cache_head(place, text, head)
            self._backend.cache_end(place, LogEnd(revision, first + len(sealed), last, text))
        return done

    def _times(self, turn: Turn, last: datetime | None) -> list[datetime]:
        stamp = stamp_for(last, now=self.now())
        return [message.timestamp or stamp for message in turn.messages]

    async def _with_late(self, place: Place, end: LogEnd, head: Head, positions: Sequence[Position]) -> Head:
        """The head after messages were added of which some are read before others that are there."""
        ordered, revision = sorted(positions), end.revision + 1
        late = [position for position in ordered if position.micros < head.top]
        previous: Position | None = None
        for position in late:
            after = await self._before(place, end, head, position)
            if previous is not None and (after is None or previous > after):
                after = previous
            head = head.with_late(
                position.sequence, None if after is None else after.sequence, revision=revision
            )
            previous = position
        if last := ordered[len(late) :]:
            sequences = [position.sequence for position in last]
            head = head.with_last(sequences, top=last[-1].micros, revision=revision)
        return head

    async def _before(self, place: Place, end: LogEnd, head: Head, position: Position) -> Position | None:
        """The position of the stored message that is read right before a late one."""
        found = await self.inner.tail(place.conversation_id, limit=1, before=position)
        if not found:
            return None
        if found[0].sequence not in head:
            await self._refuse_unlisted(place, end, found[0].sequence)
        return found[0].position

    async def _refuse_unlisted(self, place: Place, end: LogEnd, sequence: int) -> NoReturn:
        """Refuse to write beside a message that the head does not list; look again if others wrote."""
        now = await self._log.log_end(place.conversation_id)
        if now is None:
            raise ConversationNotFound(place.conversation_id)
        if now.head != end.head:
            raise RevisionConflict(place.conversation_id, expected=end.revision, actual=now.revision)
        raise StoreDamaged(
            f"message {sequence} of conversation {place.conversation_id} is not part of its log: "
            "the log was altered, and nothing was stored"
        )

    async def _end(self, place: Place, expected_revision: int | None) -> LogEnd:
        end = self._backend.cached_end(place)
        if end is None or (expected_revision is not None and end.revision != expected_revision):
            end = await self._log.log_end(place.conversation_id)
            self._backend.cache_end(place, end)
        if end is None:
            raise ConversationNotFound(place.conversation_id)
        return end

    async def _known_of(self, place: Place, turn: Turn, keys: DataKeys, *, afresh: bool) -> dict[str, Entry]:
        """What is stored already under the ids of a turn. Raises `MessageConflict` for other words."""
        self._backend.cache_end(place, None)
        known: dict[str, Entry] = {}
        first: dict[str, Message] = {}
        for message in turn.messages:
            message_id = message.message_id
            if message_id is None:
                continue
            if not first.setdefault(message_id, message).same_content_as(message):
                raise MessageConflict(place.conversation_id, message_id)
            held = None if afresh else await self.inner.entry(place.conversation_id, message_id)
            if held is not None:
                self._check_same(place, held, message, keys)
                known[message_id] = held
        return known

    def _check_same(self, place: Place, held: Entry, message: Message, keys: DataKeys) -> None:
        """Refuse a message whose id is taken by other words."""
        key_id = sealing.key_id_of(held.message)
        key = keys.get(key_id) if key_id is not None and key_id in keys else keys.current
        fingerprint = sealing.fingerprint_of(message, key, place)
        (sealed,) = sealed_turn(place, keys, turn_of([message]), [held.message.timestamp], [None])
        words = str(sealed.content).partition(".")[2]
        check_same_content(held, replace(sealed, content=f"{fingerprint}.{words}"))

    async def _is_of_older_key(self, place: Place, message_id: str, keys: DataKeys, turn: Turn) -> bool:
        """Whether the id is stored under an older key, whose fingerprint must be used to compare."""
        held = await self.inner.entry(place.conversation_id, message_id)
        key_id = None if held is None else sealing.key_id_of(held.message)
        if key_id is None or key_id == keys.current.id or key_id not in keys or message_id in turn.known_by:
            return False
        turn.known_by[message_id] = keys.get(key_id)
        return True

    async def _opened_append(self, place: Place, done: Appended, keys: DataKeys | None) -> Appended:
        known: tuple[Entry, ...] = ()
        if done.known:
            spooled = self.inner.degraded
            unmarked = [_without_generated_id(entry) for entry in done.known]
            known = tuple([(await self._open_entries(place, [one], spooled=spooled))[0] for one in unmarked])

        def record() -> Conversation:
            found = done.conversation
            return records.open_record(found, keys, self._owner) if self._seals_records else found

        def new() -> tuple[Entry, ...]:
            if keys is None:
                return ()
            stored = [_without_generated_id(entry) for entry in done.new]
            return tuple(opened_entries(stored, keys, place, {}, spooled=True))

        return Appended(conversation=record, new=new, known=known)


def _without_generated_id(entry: Entry) -> Entry:
    """The entry as its message was given: without an id where it had none."""
    message_id = entry.message.message_id
    if message_id is None or not message_id.startswith(MARK):
        return entry
    return replace(entry, message=replace(entry.message, message_id=None))


def _with_known(done: Appended, given: Sequence[Message], known: Mapping[str, Entry]) -> Appended:
    """What was done with what is new in a turn, and what of it was known or stands in it twice."""
    entries = {str(entry.message.message_id): entry for entry in done.new} | dict(known)
    seen = set[str | None]()
    repeated: list[Entry] = []
    for message in given:
        message_id = message.message_id
        if message_id is not None and (message_id in known or message_id in seen):
            repeated.append(entries[message_id])
        seen.add(message_id)
    return Appended(conversation=lambda: done.conversation, new=done.new, known=tuple(repeated))


def _too_fast(place: Place) -> StoreUnavailable:
    return StoreUnavailable(f"conversation {place.conversation_id} changes too fast to be written to")
