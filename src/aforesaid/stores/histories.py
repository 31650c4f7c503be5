"""A store that is derived from a `HistoryStore`: `load`, `save`, `delete` and `purge_expired`.

Every operation loads the history of its conversation, so that changes by other programs are seen, and every
change saves the whole history. Records are derived from the messages. A history has no place for metadata,
documents or a list of conversations: operations that need one raise `InvalidSetting`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeVar, cast
from weakref import WeakValueDictionary

from msgspec import MsgspecError, json

from aforesaid._internal.bounded import BoundedDict
from aforesaid._internal.tasks import PerLoop
from aforesaid.contracts import (
    ConversationStore,
    Document,
    Entry,
    Listing,
    Place,
    Tally,
    check_restorable,
    entries_without_head,
)
from aforesaid.contracts.plugins import HistoryStore
from aforesaid.errors import (
    AforesaidError,
    InvalidInput,
    InvalidSetting,
    StoreDamaged,
    StoreUnavailable,
    shown,
)
from aforesaid.model.clock import Clock, system_clock
from aforesaid.model.conversations import Changes, Conversation, Page, Query, started
from aforesaid.model.ids import conversation_key, parse_name, parse_uuid
from aforesaid.model.messages import Message
from aforesaid.stores._whole_logs import WholeLogs
from aforesaid.stores.encoded_logs import Log, decode_entry, encode_entries, encode_messages
from aforesaid.stores.owner_data import OwnerData

T = TypeVar("T")

# The owner of all histories: the four methods know none.
OWNER = "default"
# Conversations whose revisions and ids are kept in memory. Others are derived again from their history.
KNOWN = 1000


def as_store(store: object) -> ConversationStore:
    """Return a store; derive it if the object has only the methods of a `HistoryStore`."""
    if hasattr(store, "append"):
        return cast(ConversationStore, store)
    if isinstance(store, HistoryStore):
        return HistoriesStore(store)
    missing = [name for name in ("load", "save", "delete", "purge_expired") if not hasattr(store, name)]
    raise InvalidInput(
        f"store must have the methods load, save, delete and purge_expired; {shown(store)} lacks "
        f"{', '.join(missing)}",
        field="store",
        value=store,
    )


def id_of(name: str) -> str:
    """Return the id of a named conversation: the name if it is a UUID, else a UUID derived from it."""
    return conversation_key(name, owner=OWNER).id


class HistoriesStore(WholeLogs):
    """One owner's store over histories. A session is the name of a conversation."""

    def __init__(self, histories: HistoryStore, *, clock: Clock = system_clock) -> None:
        self._histories = histories
        self._clock = clock
        self._names: BoundedDict[str, str] = BoundedDict(KNOWN)
        self._known: BoundedDict[str, tuple[bytes, Log]] = BoundedDict(KNOWN)
        self._locks: PerLoop[WeakValueDictionary[str, asyncio.Lock]] = PerLoop(WeakValueDictionary)

    @property
    def owner(self) -> str:
        return OWNER

    def learn_name(self, conversation_id: str, name: str) -> None:
        """Find the conversation with this id under its name. Ids are derived from names, not the reverse."""
        self._names[conversation_id] = name

    def now(self) -> datetime:
        return self._clock()

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        return await self._change(
            self._name(conversation.id), lambda data: data.create(conversation, now=self.now())
        )

    async def get(self, conversation_id: str) -> Conversation | None:
        data = await self._load(self._name(conversation_id))
        return data.get(conversation_id, now=self.now())

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        _refuse("metadata")

    async def find(self, query: Query) -> Page:
        _refuse("a list of conversations")

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        return await self._change(
            self._name(conversation_id),
            lambda data: data.delete(conversation_id, expected_revision=expected_revision),
        )

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        name = parse_name(session_id, field="session_id")
        named = fresh.with_(id=id_of(name))

        def work(data: OwnerData) -> Conversation:
            found = data.active_session(name, now=self.now(), active_since=active_since)
            if found is not None:
                return found
            data.delete(named.id)  # a name has one history: the idle one ends
            return data.resume(name, named, now=self.now(), active_since=active_since)

        return await self._change(name, work)

    async def session(self, session_id: str) -> Conversation | None:
        name = parse_name(session_id, field="session_id")
        return (await self._load(name)).session(name, now=self.now())

    async def bind(self, session_id: str, conversation_id: str) -> None:
        if id_of(parse_name(session_id, field="session_id")) != conversation_id:
            _refuse("another name of a conversation")

    async def unbind(self, session_id: str) -> None:
        parse_name(session_id, field="session_id")  # the name is the conversation's own, and stays

    async def sessions(self, conversation_id: str) -> list[str]:
        data = await self._load(self._name(conversation_id))
        return data.bound_to(conversation_id, now=self.now())

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        entries, head = entries_without_head(entries)
        record, restored = check_restorable(conversation, entries)
        encoded_entries = encode_entries(restored.values())
        await self._change(
            self._name(conversation.id),
            lambda data: data.restore(
                record, encoded_entries, now=self.now(), expected_revision=expected_revision, head=head
            ),
        )

    # Documents

    async def _put_document(self, place: Place, data: bytes, expected: int | None) -> Document:
        _refuse("notes, contacts, rules and summaries")

    async def _get_document(self, place: Place) -> Document | None:
        return None

    async def _list_documents(self, listing: Listing) -> list[Document]:
        return []

    async def _document_kinds(self, holder: str | None) -> list[str]:
        return []

    async def _delete_document(self, place: Place, expected: int | None) -> bool:
        return False

    async def _restore_documents(self, documents: Mapping[Place, Document]) -> None:
        _refuse("notes, contacts, rules and summaries")

    # Retention

    async def purge_expired(self) -> int:
        return await _call(self._histories.purge_expired())

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        _refuse("a list of conversations")

    async def clear(self) -> Tally:
        _refuse("a list of conversations")

    async def tally(self, conversation_id: str | None = None) -> Tally:
        if conversation_id is None:
            _refuse("a list of conversations")
        return (await self._load(self._name(conversation_id))).tally(conversation_id)

    # Histories

    def _name(self, conversation_id: str) -> str:
        one = parse_uuid(conversation_id, field="conversation_id")
        return self._names.get(one, one)

    async def _load(self, name: str) -> OwnerData:
        """Return the data of one conversation, as its history is now."""
        history = await _call(self._histories.load(name))
        self._names[id_of(name)] = name
        known = self._known.get(name)
        raw = _encoded(history)
        if known is None or known[0] != raw:
            log = self._parsed(name, history, None if known is None else known[1])
            if log is None:
                self._known.pop(name, None)
                return OwnerData()
            self._known[name] = known = raw, log
        log = known[1].copy()
        return OwnerData(logs={log.record.id: log}, sessions={name: log.record.id})

    def _parsed(self, name: str, history: Sequence[Any], before: Log | None) -> Log | None:
        """Return the log of a history that this store has not written; None for an empty one."""
        if not history:
            return None
        data, one = OwnerData(), id_of(name)
        try:
            messages = encode_messages([Message.from_dict(document) for document in history])
        except InvalidInput as error:
            raise StoreDamaged(f"a stored history is damaged: {error}") from error
        data.create(started(one, now=self.now(), ttl=None), now=self.now())
        data.append(one, messages, now=self.now())
        log = data.logs[one]
        if before is not None:  # a caller that read the earlier history must not write
            log.record = log.record.with_(revision=max(log.record.revision, before.record.revision + 1))
        return log

    async def _change(self, name: str, work: Callable[[OwnerData], T]) -> T:
        """Load one conversation, change it, and save it, while no other change of it runs."""
        locks = self._locks.here()
        lock = locks.get(name) or locks.setdefault(name, asyncio.Lock())
        async with lock:
            data = await self._load(name)
            before = next(iter(data.logs.values()), None)
            encoded_entries = None if before is None else before.entries.copy()
            result = work(data)
            await self._save(name, encoded_entries, next(iter(data.logs.values()), None))
            return result

    async def _save(self, name: str, before: list[Any] | None, log: Log | None) -> None:
        if log is None:
            self._known.pop(name, None)
            if before is not None:
                await _call(self._histories.delete(name))
            return
        history = [decode_entry(log.record.id, encoded).message.to_dict() for encoded in log.entries]
        if log.entries != (before or []):
            await _call(self._histories.save(name, history))
        self._names[log.record.id] = name
        self._known[name] = _encoded(history), log


def _encoded(history: object) -> bytes:
    """Return a history as bytes. They stay as they are when the caller's list changes."""
    if not isinstance(history, list):
        raise StoreDamaged(f"load must return a list; got {shown(history)}")
    try:
        return json.encode(history)
    except (MsgspecError, TypeError, ValueError) as error:
        raise StoreDamaged("a stored history is not JSON") from error


async def _call(call: Awaitable[T]) -> T:
    """Await a call of the caller's store; its errors become ours."""
    try:
        return await call
    except AforesaidError:
        raise
    except Exception as error:
        raise StoreUnavailable(f"the store failed: {type(error).__name__}") from error


def _refuse(what: str) -> NoReturn:
    raise InvalidSetting(
        f"a store with load, save, delete and purge_expired has no place for {what}; use another store",
        field="store",
    )
