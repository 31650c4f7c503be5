"""A store over ordered keys: the backend that a subclass completes, and one owner's store."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

from aforesaid._internal.tasks import PerLoop
from aforesaid.contracts import (
    Appended,
    Backend,
    Document,
    Entry,
    Listing,
    LogEnd,
    Place,
    Position,
    Tally,
    check_position,
    check_restorable,
    entries_without_head,
    replaced_id,
    without_head,
)
from aforesaid.errors import StoreClosed
from aforesaid.model.clock import Clock, parse_moment, system_clock
from aforesaid.model.conversations import Changes, Conversation, Page, Query, check_count
from aforesaid.model.ids import LONGEST_NAME, parse_name, parse_uuid
from aforesaid.model.messages import Message
from aforesaid.stores._arguments import DocumentChecks, frozen_in_time, last_sequence
from aforesaid.stores.encoded_logs import decode_entry, encode_entries, encode_messages
from aforesaid.stores.key_value.rows import OwnerRows, Rows, decode_row, position_text
from aforesaid.stores.owner_data import OwnerData

# One owner's store.


T = TypeVar("T")
_ALL = 2**53


class KeyValueStore(DocumentChecks):
    """One owner's store."""

    def __init__(self, backend: "KeyValueBackend", owner: str) -> None:
        self._backend = backend
        self._owner = owner
        self._rows = OwnerRows(owner)

    @property
    def owner(self) -> str:
        return self._owner

    def now(self) -> datetime:
        return self._backend.clock()

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        return await self._change(
            lambda: self._whole(conversation.id), lambda data: data.create(conversation, now=self.now())
        )

    async def get(self, conversation_id: str) -> Conversation | None:
        one = _parse_id(conversation_id)
        return (await self._load(self._rows.key("c", one))).get(one, now=self.now())

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        one = _parse_id(conversation_id)
        return await self._change(
            lambda: self._read(self._rows.key("c", one)),
            lambda data: data.update(one, changes, now=self.now(), expected_revision=expected_revision),
        )

    async def find(self, query: Query) -> Page:
        return self._rows.decode(await self._scan("c")).find(query, now=self.now())

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        one = _parse_id(conversation_id)
        return await self._change(
            lambda: self._whole(one), lambda data: data.delete(one, expected_revision=expected_revision)
        )

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        name = parse_name(session_id, field="session_id")

        async def read() -> Rows:
            rows = await self._whole(fresh.id)
            bound = rows.get(self._rows.key("s", name))
            return rows | (await self._read(self._rows.key("c", bound.decode())) if bound else {})

        return await self._change(
            read, lambda data: data.resume(name, fresh, now=self.now(), active_since=active_since)
        )

    async def session(self, session_id: str) -> Conversation | None:
        name = parse_name(session_id, field="session_id")
        rows = await self._read(self._rows.key("s", name))
        for bound in list(rows.values()):
            rows |= await self._read(self._rows.key("c", bound.decode()))
        return self._rows.decode(rows).session(name, now=self.now())

    async def bind(self, session_id: str, conversation_id: str) -> None:
        name, one = parse_name(session_id, field="session_id"), _parse_id(conversation_id)
        keys = self._rows.key("c", one), self._rows.key("s", name)
        await self._change(lambda: self._read(*keys), lambda data: data.bind(name, one, now=self.now()))

    async def unbind(self, session_id: str) -> None:
        name = parse_name(session_id, field="session_id")
        await self._change(lambda: self._read(self._rows.key("s", name)), lambda data: data.unbind(name))

    async def sessions(self, conversation_id: str) -> list[str]:
        one = _parse_id(conversation_id)
        rows = await self._read(self._rows.key("c", one)) | await self._scan("s")
        return self._rows.decode(rows).bound_to(one, now=self.now())

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        one = _parse_id(conversation_id)
        messages, head = without_head(messages)
        turn = encode_messages(messages)
        ids = [message.message_id for message in messages if message.message_id is not None]
        return await self._change(
            lambda: self._with_ids(one, ids),
            lambda data: data.append(
                one, turn, now=self.now(), expected_revision=expected_revision, head=head
            ),
        )

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        one = _parse_id(conversation_id)
        messages, head = without_head(messages)
        turn = encode_messages(messages)
        return await self._change(
            lambda: self._whole(one),
            lambda data: data.rewrite(
                one, turn, now=self.now(), expected_revision=expected_revision, head=head
            ),
        )

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_position(before)
        end = "\1" if before is None else f"\0{position_text(before)}"
        return (await self._entries(conversation_id, end, limit, descending=True))[::-1]

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        return (await self._entries(conversation_id, "\1", offset + limit))[offset:]

    async def _entries(
        self, conversation_id: str, end: str, limit: int, *, descending: bool = False
    ) -> list[Entry]:
        one = _parse_id(conversation_id)
        log = (await self._load(self._rows.key("c", one)))._log(one, self.now())
        stem = self._rows.key("m", one)
        rows = await self._backend.scan(f"{stem}\0", stem + end, limit=limit, descending=descending)
        return [
            decode_entry(log.record.id, decode_row(key.rpartition("\0")[2], row)) for key, row in rows.items()
        ]

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        one, name = _parse_id(conversation_id), parse_name(message_id, field="message_id")
        data = self._rows.decode(await self._with_ids(one, [name]))
        return data.entry(one, name, now=self.now())

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        one = _parse_id(conversation_id)
        message_id = replaced_id(message)

        async def read() -> Rows:
            return await self._with_ids(one, [message_id]) | await self._scan("d", one)

        return await self._change(
            read,
            lambda data: data.replace(one, message, now=self.now(), expected_revision=expected_revision),
        )

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        entries, head = entries_without_head(entries)
        record, restored = check_restorable(conversation, entries)
        encoded_entries = encode_entries(restored.values())
        await self._change(
            lambda: self._whole(record.id),
            lambda data: data.restore(
                record, encoded_entries, now=self.now(), expected_revision=expected_revision, head=head
            ),
        )

    # Sealing; see `contracts.Sealable`

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        one = _parse_id(conversation_id)
        return (await self._load(self._rows.key("c", one))).log_end(one, now=self.now())

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        one = _parse_id(conversation_id)
        return await self._change(
            lambda: self._whole(one), lambda data: data.reseal(one, entries, now=self.now())
        )

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        one = _parse_id(conversation_id)
        return await self._change(
            lambda: self._read(self._rows.key("c", one)),
            lambda data: data.exchange_head(one, old, new, now=self.now()),
        )

    # Documents

    async def _put_document(self, place: Place, data: bytes, expected: int | None) -> Document:
        return await self._change(
            lambda: self._read(*self._document_keys(place)),
            lambda owner: owner.put_document(place, data, now=self.now(), expected_version=expected),
        )

    async def _get_document(self, place: Place) -> Document | None:
        return (await self._load(*self._document_keys(place))).get_document(place, now=self.now())

    async def _list_documents(self, listing: Listing) -> list[Document]:
        rows = await self._read(*self._holder_key(listing.conversation_id))
        rows |= await self._scan("d", listing.conversation_id or "", listing.kind)
        return self._rows.decode(rows).list_documents(listing, now=self.now())

    async def _document_kinds(self, holder: str | None) -> list[str]:
        rows = await self._read(*self._holder_key(holder)) | await self._scan("d", holder or "")
        return self._rows.decode(rows).document_kinds(holder, now=self.now())

    async def _delete_document(self, place: Place, expected: int | None) -> bool:
        return await self._change(
            lambda: self._read(*self._document_keys(place)),
            lambda owner: owner.delete_document(place, now=self.now(), expected_version=expected),
        )

    async def _restore_documents(self, documents: Mapping[Place, Document]) -> None:
        keys = {key for place in documents for key in self._document_keys(place)}
        await self._change(
            lambda: self._read(*keys), lambda owner: owner.restore_documents(documents, now=self.now())
        )

    def _document_keys(self, place: Place) -> list[str]:
        own = self._rows.key("d", place.conversation_id or "", place.kind, place.key)
        return [*self._holder_key(place.conversation_id), own]

    def _holder_key(self, conversation_id: str | None) -> list[str]:
        return [] if conversation_id is None else [self._rows.key("c", conversation_id)]

    # Retention

    async def purge_expired(self) -> int:
        return await self.purge(self.now())

    async def purge(self, now: datetime) -> int:
        """Remove the conversations that have expired by this time; return how many."""
        gone = self._rows.decode(await self._scan("c")).expired(by=now, limit=_ALL)
        purged = [
            await self._change(lambda one=one: self._whole(one.id), lambda data: data.purge_expired(now=now))  # type: ignore[misc]
            for one in gone
        ]
        return sum(purged)

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        records = self._rows.decode(await self._scan("c"))
        return records.expired(by=parse_moment(by, field="by"), limit=limit)

    # Branches; see `contracts.Branchable`

    def including_expired(self) -> Self:
        return frozen_in_time(self)

    async def family(self, root_id: str) -> list[Conversation]:
        return self._rows.decode(await self._scan("c")).family(root_id)

    async def kept_expired(self) -> list[Conversation]:
        return self._rows.decode(await self._scan("c")).kept_expired(now=self.now())

    async def last_sequence(self, conversation_id: str) -> int:
        return last_sequence(conversation_id, await self.log_end(conversation_id))

    async def clear(self) -> Tally:
        return await self._change(self._scan, lambda data: data.clear())

    async def tally(self, conversation_id: str | None = None) -> Tally:
        one = None if conversation_id is None else _parse_id(conversation_id)
        return self._rows.decode(await (self._scan() if one is None else self._whole(one))).tally(one)

    async def holds_anything(self, *, ignored_kinds: Collection[str] = ()) -> bool:
        """Return whether the owner has a conversation, or a document of a kind outside `ignored_kinds`."""
        rows = await self._scan("c") or await self._scan("d", "")
        return self._rows.decode(rows).holds_anything(ignored_kinds=ignored_kinds)

    # Rows

    async def _read(self, *keys: str) -> Rows:
        self._backend.check_open()
        return await self._backend.read(keys) if keys else {}

    async def _scan(self, *parts: str) -> Rows:
        """Return all rows below these parts of a key."""
        self._backend.check_open()
        stem = self._rows.key(*parts)
        return await self._backend.scan(f"{stem}\0", f"{stem}\1")

    async def _whole(self, conversation_id: str) -> Rows:
        """Return all rows of a conversation, and the owner's sessions, some of which may be bound to it."""
        rows = await self._read(self._rows.key("c", conversation_id))
        for kind in ("m", "i", "d") if rows else ():
            rows |= await self._scan(kind, conversation_id)
        return rows | await self._scan("s")

    async def _with_ids(self, conversation_id: str, ids: Sequence[str]) -> Rows:
        """Return the record, and the messages with these ids."""
        # Two steps, because the row of an id contains only the position of its message.
        known = await self._read(*(self._rows.key("i", conversation_id, one) for one in ids))
        messages = [self._rows.key("m", conversation_id, position.decode()) for position in known.values()]
        return known | await self._read(self._rows.key("c", conversation_id), *messages)

    async def _load(self, *keys: str) -> OwnerData:
        return self._rows.decode(await self._read(*keys))

    async def _change(self, read: Callable[[], Awaitable[Rows]], change: Callable[[OwnerData], T]) -> T:
        """Read rows, change them, and write the difference, while no other write of this owner runs."""

        async def write() -> T:
            async with self._backend.lock(self._owner):
                rows = await read()  # inside the lock, so that the difference applies to these rows
                data = self._rows.decode(rows)
                result = change(data)
                after = self._rows.encode(data)
                changes: dict[str, bytes | None] = dict.fromkeys(rows.keys() - after.keys())
                changes |= {key: row for key, row in after.items() if rows.get(key) != row}
                if changes:
                    await self._backend.write(changes)
                return result

        self._backend.check_open()
        return await self._backend.finish(asyncio.ensure_future(write()))


def _parse_id(conversation_id: str) -> str:
    return parse_uuid(conversation_id, field="conversation_id")


# The backend: what a subclass implements, and the locks of its owners.


# Sorts after every key: a key starts with an owner's name, which may consist of the last code point.
_AFTER_ALL_KEYS = "\U0010ffff" * (LONGEST_NAME + 1)


class KeyValueBackend(Backend):
    """A backend over ordered keys, for one process. Subclasses implement `read`, `scan` and `write`, and open
    and close what they need in `connect` and `disconnect`.
    """

    def __init__(self, *, clock: Clock = system_clock) -> None:
        self.clock = clock
        self._is_open = False
        self._locks: PerLoop[WeakValueDictionary[str, asyncio.Lock]] = PerLoop(WeakValueDictionary)
        self._writes: set[asyncio.Task[Any]] = set()

    # What a subclass implements

    async def connect(self) -> None:
        """Open the storage."""

    async def disconnect(self) -> None:
        """Close the storage."""

    @abstractmethod
    async def read(self, keys: Sequence[str]) -> Rows:
        """Return the rows with these keys, without those that are missing."""

    @abstractmethod
    async def scan(self, first: str, last: str, *, limit: int = -1, descending: bool = False) -> Rows:
        """Return the rows with `first <= key < last`, sorted by key (by code point).

        At most `limit` rows; -1 means all.
        """

    @abstractmethod
    async def write(self, changes: Mapping[str, bytes | None]) -> None:
        """Store these rows durably, all or none. None deletes a row."""

    # A backend

    async def open(self) -> None:
        if not self._is_open:
            await self.connect()
            self._is_open = True

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await asyncio.gather(*self._writes, return_exceptions=True)  # of cancelled callers
            await self.disconnect()

    def of(self, owner: str) -> "KeyValueStore":
        return KeyValueStore(self, parse_name(owner, field="owner"))

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        self.check_open()
        after = ""
        # The first row names the owner; the next scan skips the owner's other rows.
        while rows := await self.scan(after, _AFTER_ALL_KEYS, limit=1):
            owner = next(iter(rows)).partition("\0")[0]
            if await self.of(owner).holds_anything(ignored_kinds=ignored_kinds):
                yield owner
            after = f"{owner}\1"

    async def purge_expired(self, now: datetime | None = None) -> int:
        self.check_open()
        moment = self.clock() if now is None else parse_moment(now, field="now")
        return sum([await self.of(owner).purge(moment) async for owner in self.owners()])

    # For its stores

    def check_open(self) -> None:
        if not self._is_open:
            raise StoreClosed

    def lock(self, owner: str) -> asyncio.Lock:
        """Return the lock that serializes the owner's writes."""
        locks = self._locks.here()
        return locks.get(owner) or locks.setdefault(owner, asyncio.Lock())

    async def finish(self, write: "asyncio.Task[T]") -> T:
        """Await a write. It continues when the caller is cancelled, because the next write must see all of it
        or nothing.
        """
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        return await asyncio.shield(write)
