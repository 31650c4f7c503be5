"""Write the log: every message is sealed for its place, and every change writes the new head of the log.

A turn is sealed for the cached end of the log, and stored only if that is still the end; otherwise the layer
reads the end again and seals the turn anew. During an outage a turn is sealed for the spool, without a place.
The replay assigns the place; see `store.ReplayStore`.
"""

from collections.abc import Mapping, Sequence
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
from aforesaid.layers.encrypted import seals
from aforesaid.layers.encrypted.heads import NO_MESSAGES, NO_TIME, Head, head_of, seal_head
from aforesaid.layers.encrypted.log_reads import ATTEMPTS, EVERYTHING, SealedReads, off_the_loop
from aforesaid.layers.encrypted.records import Turn, opened_entries, sealed_turn, turn_of
from aforesaid.layers.encrypted.seals import DataKeys, LogId, Place
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Conversation, is_expired, stamp_for
from aforesaid.model.ids import MARK, new_id
from aforesaid.model.messages import Message


class SealedLogs(SealedReads):
    """Conversations with their messages."""

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        log_id = self._log_id(conversation_id)
        if not messages:
            done = await self.inner.append(conversation_id, (), expected_revision=expected_revision)
            return await self._opened_append(log_id, done, await self._keys())
        turn = turn_of(self._with_ids(messages))
        async with self._shared.lock(log_id):
            return await self._write(log_id, turn, expected_revision, afresh=False)

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        log_id = self._log_id(conversation_id)
        turn = turn_of(messages)
        async with self._shared.lock(log_id):
            try:
                return await self._write(log_id, turn, expected_revision, afresh=True)
            finally:
                self._shared.forget(log_id)

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        log_id = self._log_id(conversation_id)
        turn = turn_of([message])
        if message.message_id is None:
            return await self.inner.replace(conversation_id, message)  # raises the error
        async with self._shared.lock(log_id):
            for _ in range(ATTEMPTS):
                try:
                    entry = await self._replace(log_id, turn, expected_revision)
                except RevisionConflict as conflict:
                    if expected_revision is not None and conflict.actual != expected_revision:
                        raise
                    continue
                finally:
                    self._shared.forget(log_id)
                (opened,) = await self._open_entries(log_id, [entry], {})
                return opened
        raise _too_fast(log_id)

    async def _replace(self, log_id: LogId, turn: Turn, expected_revision: int | None) -> Entry:
        (message,) = turn.messages
        held = await self.inner.entry(log_id.conversation_id, replaced_id(message))
        if held is None:
            raise MessageNotFound(log_id.conversation_id, replaced_id(message))
        keys = await self._keys_to_write(log_id)
        self._shared.log(log_id).end = None
        end = await self._end(log_id, expected_revision)
        head = await self._head_to_write(log_id, end)
        if held.sequence not in head:
            await self._refuse_unlisted(log_id, end, held.sequence)
        place = Place(held.sequence, end.revision + 1, head.generation)
        (sealed,) = sealed_turn(log_id, keys, turn, [replacement_message(held, message).timestamp], [place])
        text = seal_head(head.with_change(place.sequence, place.revision), keys.current, log_id)
        carried = with_head(sealed, text, seen=end.head or "")
        revision = end.revision if expected_revision is None else expected_revision
        return await self.inner.replace(log_id.conversation_id, carried, expected_revision=revision)

    # Moving

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        record, given = check_restorable(conversation, entries)
        log_id = self._log_id(record.id)
        keys = await self._shared.keyring.get_or_create(self._owner, refresh=True)
        turn = turn_of([entry.message for entry in given.values()])
        async with self._shared.lock(log_id):
            for _ in range(ATTEMPTS):
                try:
                    await self._restore(log_id, record, keys, turn, list(given.values()), expected_revision)
                except RevisionConflict:
                    if expected_revision is not None:
                        raise
                    continue  # another process wrote to the log since its head was read
                finally:
                    self._shared.forget(log_id)
                return
        raise _too_fast(log_id)

    async def _restore(
        self,
        log_id: LogId,
        record: Conversation,
        keys: DataKeys,
        turn: Turn,
        entries: Sequence[Entry],
        expected_revision: int | None,
    ) -> None:
        """Store the entries and the head that lists them, if the log still has the head that was read."""
        end = await self._log.log_end(log_id.conversation_id)
        # The store hides the head of an expired conversation, so this process remembers it between parts. It
        # is not compared: no reader ever gets an expired log.
        is_hidden = end is None and is_expired(record, now=self.now())
        if is_hidden:
            before = self._shared.restored_head(log_id)
        else:
            before = NO_MESSAGES if end is None else await self._head_to_write(log_id, end)
        head = await self._restored_head(log_id, record, entries, before)
        seen = None if is_hidden else (end and end.head) or ""
        sealed = await off_the_loop(
            len(entries), lambda: _restored_entries(log_id, keys, turn, entries, head, seen)
        )
        await self.inner.restore(await self._seal_record(record), sealed, expected_revision=expected_revision)
        if is_expired(record, now=self.now()):
            self._shared.cache_restored_head(log_id, head)

    async def _restored_head(
        self, log_id: LogId, record: Conversation, entries: Sequence[Entry], before: Head
    ) -> Head:
        """Return the head of the log with these entries. An entry that is stored already stays as it is."""
        new = [entry for entry in entries if entry.sequence not in before]
        if not new:
            return before
        last = Position(before.top, before.tail(1)[0]) if before.runs else None
        if last is None or min(entry.position for entry in new) > last:
            added = head_of(new, revision=record.revision)
            sequences = added.page(0, added.count)
            head = before.with_last(sequences, top=added.top, revision=added.revision)
        else:
            # The head has no times, so late entries are placed by the times of all rows.
            there = await self.inner.page(log_id.conversation_id, limit=EVERYTHING)
            listed = [entry for entry in there if entry.sequence in before]
            revision = max(before.revision, record.revision)
            head = head_of(
                [*listed, *new], revision=revision, changed=before.changed, generation=before.generation
            )
        return head.truncated(self._shared.max_messages)

    # Inside

    def _with_ids(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Give every message an id if a turn may be sent twice because its answer was lost."""
        if not self._shared.spools:
            return messages
        return [
            message if message.message_id is not None else replace(message, message_id=MARK + new_id())
            for message in messages
        ]

    async def _write(
        self, log_id: LogId, turn: Turn, expected_revision: int | None, *, afresh: bool
    ) -> Appended:
        """Store the turn; return the result with decrypted entries."""
        keys = self._keyring.cached(self._owner) if self._shared.log(log_id).end is not None else None
        if keys is None:
            keys = await self._keys_to_write(log_id)
        done = await self._stored(log_id, turn, keys, expected_revision, afresh=afresh)
        if done.known:
            return await self._opened_append(log_id, done, keys)
        return self._appended(log_id, done, keys, ())

    async def _stored(
        self, log_id: LogId, turn: Turn, keys: DataKeys, expected_revision: int | None, *, afresh: bool
    ) -> Appended:
        """Store the turn at the end of the log. After a concurrent write, read the end again and reseal the
        turn."""
        given, known = turn.messages, dict[str, Entry]()
        for _ in range(ATTEMPTS):
            # While the store is unavailable the end of the log is unknown: a turn is accepted without a
            # place.
            away = self.inner.degraded and not afresh
            try:
                if away:
                    done = await self._spool(log_id, turn, keys, expected_revision)
                else:
                    done = await self._store(log_id, turn, keys, expected_revision, afresh=afresh)
            except RevisionConflict as conflict:
                self._shared.log(log_id).end = None
                if expected_revision is not None and conflict.actual != expected_revision:
                    raise
            except TurnPartlyStored:
                known |= await self._known_of(log_id, turn, keys, afresh=afresh)
                turn = turn.without(known.keys())
            except StoreUnavailable:
                self._shared.log(log_id).end = None
                if away or afresh or not self.inner.degraded:
                    raise
            except MessageConflict as conflict:
                if afresh or not await self._is_of_older_key(log_id, conflict.message_id, keys, turn):
                    raise
            else:
                return done if len(turn.messages) == len(given) else _with_known(done, given, known)
        raise _too_fast(log_id)

    async def _spool(
        self, log_id: LogId, turn: Turn, keys: DataKeys, expected_revision: int | None
    ) -> Appended:
        """Store the turn in the spool while the store is unavailable: bound to its time, not to a place."""
        end = self._shared.log(log_id).end or await self._end_of(log_id)
        times = self._times(turn, None if end is None else end.last_message_at)
        sealed = sealed_turn(log_id, keys, turn, times, [None] * len(times))
        done = await self.inner.append(log_id.conversation_id, sealed, expected_revision=expected_revision)
        self._shared.log(log_id).end = None
        return done

    async def _store(
        self, log_id: LogId, turn: Turn, keys: DataKeys, expected_revision: int | None, *, afresh: bool
    ) -> Appended:
        """Seal the turn for the end of the log, and store it if that is still the end."""
        cached = self._shared.log(log_id)
        end = cached.end
        if end is None or (expected_revision is not None and end.revision != expected_revision):
            end = await self._end(log_id, expected_revision)
        times = self._times(turn, None if afresh else end.last_message_at)
        first, revision = end.next_sequence, end.revision + 1
        micros = list(map(to_micros, times))
        before = NO_MESSAGES if afresh else cached.head(end.head)
        if before is None:
            before = await self._head_to_write(log_id, end)
        if micros == sorted(micros) and (not micros or micros[0] >= before.top):  # the usual case
            top = micros[-1] if micros else NO_TIME
            head = before.with_last(range(first, first + len(micros)), top=top, revision=revision)
        else:
            positions = [Position(at, first + number) for number, at in enumerate(micros)]
            head = await self._with_late(log_id, end, before, positions)
        head = head.truncated(self._shared.max_messages)
        places = [Place(first + number, revision, head.generation) for number in range(len(micros))]
        sealed = sealed_turn(log_id, keys, turn, times, places)
        text = seal_head(head, keys.current, log_id)
        if sealed:
            sealed[-1] = with_head(sealed[-1], text, seen=None if afresh else end.head or "")
        expected = end.revision if expected_revision is None else expected_revision
        write = self.inner.rewrite if afresh else self.inner.append
        done = await write(log_id.conversation_id, sealed, expected_revision=expected)
        if done.known or not sealed:  # nothing was new
            cached.end = None
        else:
            # The store has compared the end, in the transaction of the turn, so that the cached end and head
            # are exact and the next turn need not read them.
            last = max(times) if head.top == max(micros) else end.last_message_at
            cached.set_head(text, head)
            cached.end = LogEnd(revision, first + len(sealed), last, text)
        return done

    def _times(self, turn: Turn, last: datetime | None) -> list[datetime]:
        stamp = stamp_for(last, now=self.now())
        return [message.timestamp or stamp for message in turn.messages]

    async def _with_late(self, log_id: LogId, end: LogEnd, head: Head, positions: Sequence[Position]) -> Head:
        """Return the head after messages were added, some of which are read before existing ones."""
        ordered, revision = sorted(positions), end.revision + 1
        late = [position for position in ordered if position.micros < head.top]
        previous: Position | None = None
        for position in late:
            after = await self._before(log_id, end, head, position)
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

    async def _before(self, log_id: LogId, end: LogEnd, head: Head, position: Position) -> Position | None:
        """Return the position of the stored message that is read right before a late one."""
        found = await self.inner.tail(log_id.conversation_id, limit=1, before=position)
        if not found:
            return None
        if found[0].sequence not in head:
            await self._refuse_unlisted(log_id, end, found[0].sequence)
        return found[0].position

    async def _refuse_unlisted(self, log_id: LogId, end: LogEnd, sequence: int) -> NoReturn:
        """Raise `StoreDamaged` for a message that the head does not list.

        Raise `RevisionConflict` if the head has changed since.
        """
        now = await self._log.log_end(log_id.conversation_id)
        if now is None:
            raise ConversationNotFound(log_id.conversation_id)
        if now.head != end.head:
            raise RevisionConflict(log_id.conversation_id, expected=end.revision, actual=now.revision)
        raise StoreDamaged(
            f"message {sequence} of conversation {log_id.conversation_id} is not part of its log: "
            "the log was altered, and nothing was stored"
        )

    async def _end(self, log_id: LogId, expected_revision: int | None) -> LogEnd:
        cached = self._shared.log(log_id)
        end = cached.end
        if end is None or (expected_revision is not None and end.revision != expected_revision):
            end = await self._log.log_end(log_id.conversation_id)
            cached.end = end
        if end is None:
            raise ConversationNotFound(log_id.conversation_id)
        return end

    async def _known_of(self, log_id: LogId, turn: Turn, keys: DataKeys, *, afresh: bool) -> dict[str, Entry]:
        """Return the stored entries with ids of this turn. Raise `MessageConflict` if the content differs."""
        self._shared.log(log_id).end = None
        known: dict[str, Entry] = {}
        first: dict[str, Message] = {}
        for message in turn.messages:
            message_id = message.message_id
            if message_id is None:
                continue
            if not first.setdefault(message_id, message).same_content_as(message):
                raise MessageConflict(log_id.conversation_id, message_id)
            held = None if afresh else await self.inner.entry(log_id.conversation_id, message_id)
            if held is not None:
                self._check_same(log_id, held, message, keys)
                known[message_id] = held
        return known

    def _check_same(self, log_id: LogId, held: Entry, message: Message, keys: DataKeys) -> None:
        """Raise `MessageConflict` if the stored entry with this id has other content."""
        key_id = seals.key_id_of(held.message)
        key = keys.get(key_id) if key_id is not None and key_id in keys else keys.current
        fingerprint = seals.fingerprint_of(message, key, log_id)
        (sealed,) = sealed_turn(log_id, keys, turn_of([message]), [held.message.timestamp], [None])
        words = str(sealed.content).partition(".")[2]
        check_same_content(held, replace(sealed, content=f"{fingerprint}.{words}"))

    async def _is_of_older_key(self, log_id: LogId, message_id: str, keys: DataKeys, turn: Turn) -> bool:
        """Return whether the id is stored under an older key, whose fingerprint must be compared."""
        held = await self.inner.entry(log_id.conversation_id, message_id)
        key_id = None if held is None else seals.key_id_of(held.message)
        if key_id is None or key_id == keys.current.id or key_id not in keys or message_id in turn.known_by:
            return False
        turn.known_by[message_id] = keys.get(key_id)
        return True

    async def _opened_append(self, log_id: LogId, done: Appended, keys: DataKeys | None) -> Appended:
        """Return the result of an append with decrypted entries."""
        known: list[Entry] = []
        spooled = self.inner.degraded
        for entry in map(_without_generated_id, done.known):
            known += await self._open_entries(log_id, [entry], {}, spooled=spooled)
        return self._appended(log_id, done, keys, tuple(known))

    def _appended(
        self, log_id: LogId, done: Appended, keys: DataKeys | None, known: tuple[Entry, ...]
    ) -> Appended:
        """Return the result of an append. Record and new entries are decrypted on demand: few callers need
        them."""

        def record() -> Conversation:
            found = done.conversation
            return self._opened_record(found, keys) if self._seals_records or found.lineage else found

        def new() -> tuple[Entry, ...]:
            if keys is None:
                return ()
            stored = [_without_generated_id(entry) for entry in done.new]
            return tuple(opened_entries(stored, keys, log_id, {}, spooled=True))

        return Appended(conversation=record, new=new, known=known)


def _restored_entries(
    log_id: LogId, keys: DataKeys, turn: Turn, entries: Sequence[Entry], head: Head, seen: str | None
) -> list[Entry]:
    """Seal the entries for their places. The last one carries the head."""
    places = [Place(entry.sequence, entry.revision, head.generation) for entry in entries]
    times = [entry.message.timestamp for entry in entries]
    messages = sealed_turn(log_id, keys, turn, times, places)
    if messages:
        messages[-1] = with_head(messages[-1], seal_head(head, keys.current, log_id), seen=seen)
    pairs = zip(entries, messages, strict=True)
    return [replace(entry, message=message) for entry, message in pairs]


def _without_generated_id(entry: Entry) -> Entry:
    """Return the entry without an id that this layer generated."""
    message_id = entry.message.message_id
    if message_id is None or not message_id.startswith(MARK):
        return entry
    return replace(entry, message=replace(entry.message, message_id=None))


def _with_known(done: Appended, given: Sequence[Message], known: Mapping[str, Entry]) -> Appended:
    """Return the result for the whole turn, with the messages that were known or occur in it twice."""
    entries = {str(entry.message.message_id): entry for entry in done.new} | dict(known)
    seen = set[str | None]()
    repeated: list[Entry] = []
    for message in given:
        message_id = message.message_id
        if message_id is not None and (message_id in known or message_id in seen):
            repeated.append(entries[message_id])
        seen.add(message_id)
    return Appended(conversation=lambda: done.conversation, new=done.new, known=tuple(repeated))


def _too_fast(log_id: LogId) -> StoreUnavailable:
    return StoreUnavailable(f"conversation {log_id.conversation_id} changes too fast to be written to")
