"""The encryption layer: a backend around a backend, which sees only ciphertext.

What is sealed and how is in `sealing` and `records`; whose keys are where, in `keyring`. Here is the
order of things. A message is bound to its place, so its place must be known before it is sealed: the
layer knows where each log ends, gives messages their time as the store would, and lets the store refuse
the turn if somebody else wrote meanwhile; then it looks again and seals anew. Turns of one process to
one conversation wait for each other.

What is refused on reading is set aside with the reason, and the rest loads. A store's own search index
is not handed on: it would hold ciphertext. All other powers are.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from recollect.clock import to_micros
from recollect.contracts import (
    Appended,
    Backend,
    ConversationStore,
    Document,
    Entry,
    Erasing,
    Holds,
    LogEnd,
    Migrated,
    Position,
    Sealable,
    Tally,
    Watchable,
    check_data,
    parse_place,
    replaced_id,
    replacing,
    restorable,
    restorable_documents,
)
from recollect.conversations import Changes, Conversation, Page, Query, check_count, stamp_for
from recollect.errors import (
    ConversationNotFound,
    InvalidInput,
    InvalidSetting,
    MessageConflict,
    MessageNotFound,
    RevisionConflict,
    StoreDamaged,
    StoreUnavailable,
)
from recollect.ids import parse_name, parse_uuid
from recollect.keys import KeyProvider
from recollect.layers import records, sealing
from recollect.layers.keyring import KIND, Keyring
from recollect.layers.powers import with_powers_of
from recollect.layers.sealing import DataKey, DataKeys, Number, Opened, Place, Refused
from recollect.messages import SEALED, Message
from recollect.telemetry import told

T = TypeVar("T")
log = logging.getLogger("recollect.layers.encrypted")

ATTEMPTS = 100
"""How often a turn is sealed anew because others wrote to the conversation first. Once is rare."""
KNOWN_ENDS = 10_000
"""Conversations whose end is remembered, so that a turn need not ask for it."""
OPENED_LOGS = 256
"""Conversations of which the last messages are kept open in memory, and no longer than they are in use."""
OPENED_KEPT = 256
OPENED_AT_ONCE = 2_000
"""Entries that are opened between two breaths of the event loop; more go to a thread."""
_LARGEST_LIMIT = 2**53

STORE_POWERS = (Watchable,)
BACKEND_POWERS = (Migrated, Erasing, Holds)


class Encryption(Struct, frozen=True, kw_only=True):
    """How a memory is encrypted."""

    master: KeyProvider
    """Who has the master key."""
    records: bool = False
    """Whether subject, client name, notes and tags of conversations are sealed too."""
    keyring: Backend | None = None
    """Where data keys are kept; without it, beside the data. Kept apart, a backup of the data is unreadable
    once an owner's key is dropped."""


class EncryptedBackend(Backend):
    """A backend in which everything that says something is sealed."""

    def __init__(self, inner: Backend, encryption: Encryption) -> None:
        self._inner = inner
        self.encryption = encryption
        keys_in = encryption.keyring or inner
        self.keyring = Keyring(encryption.master, keys_in.of)
        self._ends: OrderedDict[Place, LogEnd] = OrderedDict()
        self._opened: OrderedDict[Place, dict[int, Opened]] = OrderedDict()
        self._turns: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    @property
    def inner(self) -> Backend:
        """What is inside: the store that sees ciphertext."""
        return self._inner

    async def open(self) -> None:
        await self._inner.open()
        if self.encryption.keyring is not None:
            await self.encryption.keyring.open()

    async def close(self) -> None:
        try:
            await self._inner.close()
        finally:
            if self.encryption.keyring is not None:
                await self.encryption.keyring.close()

    def of(self, owner: str) -> "EncryptedStore":
        inner = self._inner.of(owner)
        store = EncryptedStore(self, parse_name(owner, field="owner"), inner)
        return with_powers_of(inner, store, STORE_POWERS)

    async def owners(self) -> AsyncIterator[str]:
        async for owner in self._inner.owners():
            if self.encryption.keyring is not None or await _has_more_than_keys(self._inner.of(owner)):
                yield owner

    async def purge_expired(self, now: datetime | None = None) -> int:
        return await self._inner.purge_expired(now)

    def opened(self, place: Place) -> dict[int, Opened]:
        """Messages at the end of a log that were opened before, by sequence: windows read them each turn."""
        known = self._opened.pop(place, {})
        if len(known) > 2 * OPENED_KEPT:
            known = {}
        self._opened[place] = known
        if len(self._opened) > OPENED_LOGS:
            self._opened.popitem(last=False)
        return known

    def forget(self, place: Place) -> None:
        """Remember nothing of this conversation."""
        self._opened.pop(place, None)
        self._ends.pop(place, None)

    def forget_owner(self, owner: str) -> None:
        for place in [place for place in (*self._opened, *self._ends) if place.owner == owner]:
            self.forget(place)

    # What is known of logs, shared by all stores of this backend

    def turn(self, place: Place) -> asyncio.Lock:
        """One turn at a time for each conversation."""
        return self._turns.setdefault(place, asyncio.Lock())

    def known_end(self, place: Place) -> LogEnd | None:
        return self._ends.get(place)

    def know_end(self, place: Place, end: LogEnd | None) -> None:
        """Remember where a log ends; None forgets it."""
        self._ends.pop(place, None)
        if end is not None:
            self._ends[place] = end
            if len(self._ends) > KNOWN_ENDS:
                self._ends.popitem(last=False)


def encrypted(inner: Backend, encryption: Encryption) -> EncryptedBackend:
    """The backend, encrypted, with every power of what is inside that still makes sense."""
    return with_powers_of(inner, EncryptedBackend(inner, encryption), BACKEND_POWERS)


class _Turn(NamedTuple):
    """Messages on their way in, and what is sealed of each."""

    messages: Sequence[Message]
    bodies: Sequence[bytes]
    known_by: dict[str, DataKey]
    """For ids that are stored already under an older key: the key that their fingerprints are made with."""


class EncryptedStore(ConversationStore):
    """One owner's part. The store inside must be `Sealable`."""

    def __init__(self, backend: EncryptedBackend, owner: str, inner: ConversationStore) -> None:
        if not isinstance(inner, Sealable):
            raise InvalidSetting(f"{type(inner).__name__} cannot be encrypted: it is not Sealable")
        self._backend = backend
        self._owner = owner
        self._inner = inner
        self._log: Sealable = inner

    @property
    def inner(self) -> ConversationStore:
        """What is inside: the store that sees ciphertext."""
        return self._inner

    def now(self) -> datetime:
        return self._inner.now()

    @property
    def degraded(self) -> bool:
        return self._inner.degraded

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        sealed = await self._seal_record(conversation)
        await self._inner.create(sealed)
        await self._begun(conversation)
        return conversation

    async def get(self, conversation_id: str) -> Conversation | None:
        return await self._open_maybe(await self._inner.get(conversation_id))

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        place = self._place(conversation_id)
        if self._seals_records:
            keys = await self._backend.keyring.ensured(self._owner)
            changes = records.seal_changes(changes, keys, self._owner, place.conversation_id)
        record = await self._inner.update(conversation_id, changes, expected_revision=expected_revision)
        end = self._backend.known_end(place)
        moved_by_us = end is not None and end.revision + 1 == record.revision
        self._backend.know_end(place, end._replace(revision=record.revision) if end and moved_by_us else None)
        return await self._open_record(record)

    async def find(self, query: Query) -> Page:
        if not self._seals_records:
            return await self._inner.find(query)
        keys = await self._keys()
        if keys is None:
            return await self._inner.find(replace(query, tags=()) if query.tags else query)
        page = await self._inner.find(records.seal_query(query, keys, self._owner))
        return replace(page, conversations=tuple(self._readable(page.conversations, keys)))

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        place = self._place(conversation_id)
        try:
            return await self._inner.delete(conversation_id, expected_revision=expected_revision)
        finally:
            self._backend.forget(place)

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        sealed = await self._seal_record(fresh)
        record = await self._inner.resume(session_id, sealed, active_since=active_since)
        if record.id == fresh.id and record == sealed:
            await self._begun(fresh)
            return fresh
        return await self._open_record(record)

    async def session(self, session_id: str) -> Conversation | None:
        return await self._open_maybe(await self._inner.session(session_id))

    async def bind(self, session_id: str, conversation_id: str) -> None:
        await self._inner.bind(session_id, conversation_id)

    async def unbind(self, session_id: str) -> None:
        await self._inner.unbind(session_id)

    async def sessions(self, conversation_id: str) -> list[str]:
        return await self._inner.sessions(conversation_id)

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        place = self._place(conversation_id)
        if not messages:
            return await self._opened_append(
                place, await self._inner.append(conversation_id, (), expected_revision=expected_revision)
            )
        turn = _turn(messages)
        async with self._backend.turn(place):
            return await self._write(place, turn, expected_revision, afresh=False)

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        place = self._place(conversation_id)
        turn = _turn(messages)
        async with self._backend.turn(place):
            try:
                return await self._write(place, turn, expected_revision, afresh=True)
            finally:
                self._backend.forget(place)

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        # One more than asked for: whether the first stands in its order shows beside the one before it.
        more = min(limit + 1, _LARGEST_LIMIT) if limit else 0
        found = await self._inner.tail(conversation_id, limit=more, before=before)
        place = self._place(conversation_id)
        known = self._backend.opened(place) if limit <= OPENED_KEPT else None
        opened = await self._open_entries(place, found, known)
        return opened[-limit:] if limit else opened

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        before = 1 if offset and limit else 0
        more = min(limit + before, _LARGEST_LIMIT)
        found = await self._inner.page(conversation_id, limit=more, offset=offset - before)
        place = self._place(conversation_id)
        known = self._backend.opened(place) if limit <= OPENED_KEPT else None
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
        turn = _turn([message])
        if message.message_id is None:
            return await self._inner.replace(conversation_id, message)  # which refuses it
        held = await self._inner.entry(conversation_id, replaced_id(message))
        if held is None:
            raise MessageNotFound(place.conversation_id, replaced_id(message))
        keys = await self._backend.keyring.ensured(self._owner)
        kept = replacing(held, message)
        (sealed,) = _sealed(place, keys, turn, [kept.timestamp], [Number(held.sequence, 0)])
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
        turn = _turn([entry.message for entry in given.values()])
        numbers = [Number(sequence, 0) for sequence in given]
        times = [entry.message.timestamp for entry in given.values()]
        messages = await _off_the_loop(len(given), lambda: _sealed(place, keys, turn, times, numbers))
        pairs = zip(given.values(), messages, strict=True)
        sealed = [replace(entry, message=message) for entry, message in pairs]
        try:
            await self._inner.restore(await self._seal_record(record), sealed)
        finally:
            self._backend.forget(place)

    # Documents

    async def put_document(
        self,
        kind: str,
        key: str,
        data: bytes,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> Document:
        parse_place(kind, key, conversation_id)
        _check_kind(kind)
        check_data(data)
        keys = await self._backend.keyring.ensured(self._owner, look=conversation_id is None)
        sealed = sealing.seal_bytes(data, keys.current, self._beside(kind, key, conversation_id))
        kept = await self._inner.put_document(
            kind, key, sealed, conversation_id=conversation_id, expected_version=expected_version
        )
        return replace(kept, data=data)

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        if kind == KIND:
            return None
        found = await self._inner.get_document(kind, key, conversation_id=conversation_id)
        if found is None:
            return None
        try:
            return await self._open_document(found)
        except Refused as error:
            raise StoreDamaged(f"document {kind!r} {key!r} cannot be read: {error}") from error

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        if kind == KIND:
            return []
        check_count(limit, field="limit", least=0)
        opened: list[Document] = []
        while True:
            wanted = limit - len(opened)
            found = await self._inner.documents(
                kind, conversation_id=conversation_id, after=after, limit=wanted
            )
            opened += await self._open_documents(found)
            # A page that is not full is the last one: what was set aside is made up for from the next.
            if len(found) < wanted or len(opened) == limit:
                return opened
            after = found[-1].key

    async def _open_documents(self, found: Sequence[Document]) -> list[Document]:
        """Those that can be read; the others are set aside."""
        opened: list[Document] = []
        for document in found:
            try:
                opened.append(await self._open_document(document))
            except Refused as error:
                log.warning("a document of kind %s is set aside: %s", document.kind, told(error))
        return opened

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        kinds = await self._inner.document_kinds(conversation_id=conversation_id)
        return [kind for kind in kinds if kind != KIND]

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        _check_kind(kind)
        return await self._inner.delete_document(
            kind, key, conversation_id=conversation_id, expected_version=expected_version
        )

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        given = restorable_documents(documents)
        keys = await self._backend.keyring.ensured(self._owner, look=True)
        sealed = []
        for place, document in given.items():
            _check_kind(place.kind)
            bound_to = self._beside(place.kind, place.key, place.conversation_id)
            sealed.append(replace(document, data=sealing.seal_bytes(document.data, keys.current, bound_to)))
        await self._inner.restore_documents(sealed)

    # Retention

    async def purge_expired(self) -> int:
        return await self._inner.purge_expired()

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        found = await self._inner.expired(by=by, limit=limit)
        keys = await self._keys() if self._seals_records else None
        return found if keys is None else self._readable(found, keys)

    async def clear(self) -> Tally:
        """Remove all that this owner has, and the keys to what backups may still hold of it."""
        self._backend.keyring.let_go(self._owner)
        gone = await self._inner.clear()
        self._backend.keyring.let_go(self._owner)
        self._backend.forget_owner(self._owner)
        dropped = await self._backend.keyring.drop(self._owner)
        return _with_keys_apart(gone) + Tally(keys=dropped)

    async def tally(self, conversation_id: str | None = None) -> Tally:
        return _with_keys_apart(await self._inner.tally(conversation_id))

    # Inside

    @property
    def _keys_are_inside(self) -> bool:
        return self._backend.encryption.keyring is None

    @property
    def _seals_records(self) -> bool:
        return self._backend.encryption.records

    def _place(self, conversation_id: str) -> Place:
        return Place(self._owner, parse_uuid(conversation_id, field="conversation_id"))

    def _beside(self, kind: str, key: str, conversation_id: str | None) -> bytes:
        """What a document is bound to."""
        return msgspec.json.encode(("document", self._owner, conversation_id, kind, key))

    async def _keys(self, unknown: Iterable[str] = ()) -> DataKeys | None:
        """The keys at hand; looked for again when something is sealed with one that is not."""
        keys = await self._backend.keyring.keys_of(self._owner)
        if keys is None or all(key_id in keys for key_id in unknown):
            return keys
        held = await self._backend.keyring.look(self._owner)
        return None if held is None else held.keys

    async def _begun(self, conversation: Conversation) -> None:
        """A conversation was made: its key must be there, also if the owner was cleared a moment ago."""
        await self._backend.keyring.ensured(self._owner, look=True)
        end = LogEnd(conversation.revision, 1, conversation.last_message_at)
        self._backend.know_end(self._place(conversation.id), end)

    async def _seal_record(self, record: Conversation) -> Conversation:
        if not self._seals_records:
            return record
        keys = await self._backend.keyring.ensured(self._owner, look=True)
        return records.seal_record(record, keys, self._owner)

    async def _open_maybe(self, record: Conversation | None) -> Conversation | None:
        return None if record is None else await self._open_record(record)

    async def _open_record(self, record: Conversation) -> Conversation:
        keys = await self._keys() if self._seals_records else None
        return record if keys is None else records.open_record(record, keys, self._owner)

    def _readable(self, found: Iterable[Conversation], keys: DataKeys) -> list[Conversation]:
        opened: list[Conversation] = []
        for record in found:
            try:
                opened.append(records.open_record(record, keys, self._owner))
            except StoreDamaged as error:
                log.warning("conversation %s cannot be opened: %s", record.id, told(error))
        return opened

    async def _write(
        self, place: Place, turn: _Turn, expected_revision: int | None, *, afresh: bool
    ) -> Appended:
        """Store the turn where the log ends; when somebody else was first, look again and seal it anew."""
        keys = await self._backend.keyring.ensured(self._owner)
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
                return await self._opened_append(place, done)
        raise StoreUnavailable(f"conversation {place.conversation_id} changes too fast to be written to")

    async def _store(
        self,
        place: Place,
        turn: _Turn,
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
        sealed = _sealed(place, keys, turn, times, numbers)
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

    async def _is_of_older_key(self, place: Place, message_id: str, keys: DataKeys, turn: _Turn) -> bool:
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

    async def _opened_append(self, place: Place, done: Appended) -> Appended:
        keys = await self._keys()
        if keys is None:
            return done
        known = tuple([(await self._open_entries(place, [entry]))[0] for entry in done.known])

        def record() -> Conversation:
            found = done.conversation
            return records.open_record(found, keys, self._owner) if self._seals_records else found

        def new() -> tuple[Entry, ...]:
            return tuple(_opened(done.new, keys, place, {}))

        return Appended(conversation=record, new=new, known=known)

    async def _open_entries(
        self, place: Place, found: Sequence[Entry], known: dict[int, Opened] | None = None
    ) -> list[Entry]:
        if not found:
            return []
        keys = await self._keys()
        if keys is None:
            return [_without_keys(entry) for entry in found]
        opened = {} if known is None else known
        entries = await _off_the_loop(len(found), lambda: _opened(found, keys, place, opened))
        if all(entry.unreadable is None for entry in entries):
            return entries
        again = await self._keys(sealing.key_ids_of(found))
        return entries if again is keys or again is None else _opened(found, again, place, opened)

    async def _open_document(self, document: Document) -> Document:
        keys = await self._keys([sealing.sealed_by(document.data)])
        if keys is None:
            raise Refused("there is no data key for this owner")
        return replace(document, data=self.open_data(document, keys))

    def open_data(self, document: Document, keys: DataKeys) -> bytes:
        """The data of a stored document. Raises `Refused`."""
        bound_to = self._beside(document.kind, document.key, document.conversation_id)
        return sealing.open_bytes(document.data, keys, bound_to)


def _turn(messages: Sequence[Message]) -> _Turn:
    """The messages with what is sealed of each. Refuses what is not JSON."""
    return _Turn(messages, [sealing.body_of(message) for message in messages], {})


def _sealed(
    place: Place, keys: DataKeys, turn: _Turn, times: Sequence[datetime | None], numbers: Sequence[Number]
) -> list[Message]:
    sealed: list[Message] = []
    for message, body, timestamp, number in zip(turn.messages, turn.bodies, times, numbers, strict=True):
        assert timestamp is not None, "a stored message has a time"
        key = turn.known_by.get(message.message_id or "", keys.current) if turn.known_by else keys.current
        sealed.append(
            sealing.seal(
                message,
                body,
                keys.current,
                timestamp=timestamp,
                fingerprint=sealing.fingerprint_of(message, key, place),
                place=place,
                number=number,
            )
        )
    return sealed


def resealed(entries: Sequence[Entry], keys: DataKeys, place: Place) -> list[Entry]:
    """Stored entries, sealed with the current key for exactly the places where they are.

    What cannot be opened is left out: it stays as it is.
    """
    again: list[Entry] = []
    for entry in entries:
        try:
            message = sealing.unseal(entry.message, keys, place).message
        except Refused:
            continue
        number = [Number(entry.sequence, 0)]
        (sealed,) = _sealed(place, keys, _turn([message]), [message.timestamp], number)
        again.append(replace(entry, message=sealed))
    return again


def _opened(found: Sequence[Entry], keys: DataKeys, place: Place, known: dict[int, Opened]) -> list[Entry]:
    """The entries as they were given. What is out of order among messages of one moment is refused.

    `known` holds what was opened before, by sequence: the same ciphertext in the same place opens alike.
    """
    entries: list[Entry] = []
    before: Opened | None = None
    for entry in found:
        try:
            opened = _known(entry, known) or sealing.unseal(entry.message, keys, place)
            _check_order(entry, opened, before)
        except Refused as error:
            entries.append(entry if entry.unreadable else sealing.refused(entry, str(error)))
            continue
        before = known[entry.sequence] = opened
        entries.append(
            Entry(
                conversation_id=entry.conversation_id,
                sequence=entry.sequence,
                revision=entry.revision,
                stored_at=entry.stored_at,
                message=opened.message,
            )
        )
    return entries


def _known(entry: Entry, known: dict[int, Opened]) -> Opened | None:
    opened = known.get(entry.sequence)
    if opened is None:
        return None
    stored = entry.message
    same = (
        opened.sealed == stored.content
        and opened.timestamp == stored.timestamp
        and opened.message_id == stored.message_id
        and opened.message.role == stored.role
        and stored.dialect == SEALED
    )
    # What a caller could change in place is decoded anew each time.
    return opened if same and type(opened.message.content) is str and not opened.message.extra else None


def _check_order(entry: Entry, opened: Opened, before: Opened | None) -> None:
    if entry.sequence < opened.number.next_sequence:
        raise Refused("it was moved in the order of its conversation, and is refused")
    if before is not None and before.at == opened.at and not opened.number.may_follow(before.number):
        raise Refused("it was moved or repeated among messages of the same moment, and is refused")


def _without_keys(entry: Entry) -> Entry:
    key_id = sealing.key_id_of(entry.message)
    if entry.unreadable is not None:
        return entry
    if key_id is None:
        return sealing.refused(entry, "it is not encrypted, as all in this store must be, and is refused")
    return sealing.refused(entry, f"it is sealed with data key {key_id}, and this owner has no data key here")


async def _off_the_loop(count: int, work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work) if count > OPENED_AT_ONCE else work()


def _check_kind(kind: str) -> None:
    if kind == KIND:
        raise InvalidInput(f"documents of the kind {KIND!r} hold keys and are not for callers", field="kind")


def _with_keys_apart(tally: Tally) -> Tally:
    """The layer's own documents are none of the caller's."""
    documents = dict(tally.documents)
    return replace(tally, keys=documents.pop(KIND, 0), documents=documents)


async def _has_more_than_keys(store: ConversationStore) -> bool:
    if (await store.find(Query(limit=1))).conversations:
        return True
    if await store.expired(by=store.now(), limit=1):
        return True
    return any(kind != KIND for kind in await store.document_kinds())
