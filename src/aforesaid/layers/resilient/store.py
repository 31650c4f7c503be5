"""One owner's resilient store.

Every method defines three things: the call to the store, how its answer is recorded, and the answer or the
accepted operation during an outage.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Self

from msgspec.structs import replace

from aforesaid.contracts import (
    OPEN_TURNS,
    Appended,
    Branchable,
    ChangeTracking,
    ConversationStore,
    Document,
    Entry,
    LabelChanges,
    Labelled,
    Listing,
    LogEnd,
    LogSnapshot,
    Matches,
    Place,
    Position,
    RecordChanges,
    Sealable,
    Searchable,
    SnapshotReader,
    Tally,
    VectorMatch,
    VectorSearchable,
    parse_place,
)
from aforesaid.layers.base import StoreWrapper
from aforesaid.layers.resilient.acceptance import (
    Acceptance,
    create_once,
    snapshot_without_generated_ids,
    with_ids,
    without_generated_ids,
    without_generated_ids_in,
)
from aforesaid.layers.resilient.calls import LARGE, OwnerCalls, parse_id
from aforesaid.layers.resilient.last_known_state import View
from aforesaid.layers.resilient.replay import forget, settle
from aforesaid.layers.resilient.state import ResilientState
from aforesaid.model.conversations import Changes, Conversation, Page, Query
from aforesaid.model.messages import Message


class ResilientStore(StoreWrapper):
    """A store that retries calls, accepts turns during an outage, and then answers from the last known
    state."""

    def __init__(self, state: ResilientState, owner: str, inner: ConversationStore) -> None:
        super().__init__(inner)
        self._state = state
        self._owner = owner
        self._last_known = state.last_known
        self._calls = OwnerCalls(state, owner)
        self._acceptance = Acceptance(state, inner.now)

    @property
    def degraded(self) -> bool:
        """Whether an answer now would come from the last known state, or lack spooled turns."""
        return not self._calls.is_authoritative and self._state.degraded(self._owner)

    async def authoritative(self) -> Self:
        await settle(self._state, self._owner)
        view = await super().authoritative()
        view._calls = self._calls.authoritative()
        return view

    def _remember_record(self, record: Conversation) -> None:
        self._last_known.record(self._owner, record)

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        return await self._calls.write(
            create_once(self.inner, conversation),
            lambda queue: self._acceptance.create(queue, conversation),
            remember=self._remember_record,
            subject=conversation.id,
        )

    async def get(self, conversation_id: str) -> Conversation | None:
        def remember(record: Conversation | None) -> None:
            if record is None:
                self._last_known.drop(self._owner, parse_id(conversation_id))
            else:
                self._remember_record(record)

        return await self._calls.read(
            lambda: self.inner.get(conversation_id),
            lambda view: view.owner_data.get(conversation_id, now=self.now()),
            remember=remember,
            conversation_id=conversation_id,
        )

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        if expected_revision is not None:
            return await self._calls.write_through(
                lambda: self.inner.update(conversation_id, changes, expected_revision=expected_revision)
            )

        return await self._calls.write(
            lambda: self.inner.update(conversation_id, changes),
            lambda queue: self._acceptance.update(queue, conversation_id, changes),
            remember=self._remember_record,
            subject=conversation_id,
        )

    async def find(self, query: Query) -> Page:
        await self._state.catch_up(self._owner)
        return await self._calls.read(
            lambda: self.inner.find(query),
            lambda view: replace(view.owner_data.find(query, now=self.now()), degraded=True),
            remember=lambda page: self._last_known.records(self._owner, page.conversations),
            size=query.limit,
        )

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        gone = await self._calls.write_through(
            lambda: self.inner.delete(conversation_id, expected_revision=expected_revision), repeat=True
        )
        conversation_id = parse_id(conversation_id)
        if expected_revision is None:
            await forget(self._state, self._owner, conversation_id)
        else:
            # Keep turns that were accepted meanwhile: the caller has not read them and does not delete them.
            self._last_known.drop(self._owner, conversation_id)
        return gone

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        return await self._calls.write(
            lambda: self.inner.resume(session_id, fresh, active_since=active_since),
            lambda queue: self._acceptance.resume(queue, session_id, fresh, active_since),
            remember=lambda record: self._last_known.session(self._owner, session_id, record),
        )

    async def session(self, session_id: str) -> Conversation | None:
        def remember(record: Conversation | None) -> None:
            if record is None:
                self._last_known.unbind_session(self._owner, session_id)
            else:
                self._last_known.session(self._owner, session_id, record)

        return await self._calls.read(
            lambda: self.inner.session(session_id),
            lambda view: view.owner_data.session(session_id, now=self.now()),
            remember=remember,
            session_id=session_id,
        )

    async def bind(self, session_id: str, conversation_id: str) -> None:
        await self._calls.write(
            lambda: self.inner.bind(session_id, conversation_id),
            lambda queue: self._acceptance.bind(queue, session_id, conversation_id),
            remember=lambda _: self._last_known.bind_session(self._owner, session_id, conversation_id),
        )

    async def unbind(self, session_id: str) -> None:
        await self._calls.write(
            lambda: self.inner.unbind(session_id),
            lambda queue: self._acceptance.unbind(queue, session_id),
            remember=lambda _: self._last_known.unbind_session(self._owner, session_id),
        )

    async def sessions(self, conversation_id: str) -> list[str]:
        return await self._calls.read(
            lambda: self.inner.sessions(conversation_id),
            lambda view: view.owner_data.bound_to(conversation_id, now=self.now()),
            remember=_ignore,
            conversation_id=conversation_id,
        )

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        turn = with_ids(messages)

        def remember(done: Appended) -> None:
            self._last_known.add_turn(self._owner, conversation_id, turn, done)

        def call() -> Awaitable[Appended]:
            return self.inner.append(conversation_id, turn, expected_revision=expected_revision)

        if expected_revision is None or self._state.sealed:
            done = await self._calls.write(
                call,
                lambda queue: self._acceptance.append(queue, conversation_id, turn, expected_revision),
                remember=remember,
                subject=conversation_id,
            )
        else:
            done = await self._calls.write_through(
                self._calls.remembering(call, remember, conversation_id), repeat=True
            )
        return without_generated_ids_in(done, turn)

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        # Without retry: a second attempt could remove a turn that was added in between.
        done = await self._calls.write_through(
            lambda: self.inner.rewrite(conversation_id, messages, expected_revision=expected_revision)
        )
        self._last_known.replace_log(self._owner, conversation_id, done)
        return done

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        return await self._tail(
            self.inner.tail,
            lambda view: view.has_tail(parse_id(conversation_id), limit, before),
            conversation_id,
            limit,
            before,
        )

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        return await self._tail(
            self.inner.recent,
            lambda view: view.has_log(parse_id(conversation_id)),
            conversation_id,
            limit,
            before,
        )

    async def _tail(
        self,
        call: Callable[..., Awaitable[list[Entry]]],
        is_known: Callable[[View], bool],
        conversation_id: str,
        limit: int,
        before: Position | None,
    ) -> list[Entry]:
        def remember(entries: list[Entry]) -> None:
            if before is None and len(entries) < LARGE:
                is_whole = len(entries) < limit
                self._last_known.tail(self._owner, conversation_id, entries, is_whole=is_whole)

        entries = await self._calls.read(
            lambda: call(conversation_id, limit=limit, before=before),
            lambda view: view.owner_data.tail(conversation_id, now=self.now(), limit=limit, before=before),
            remember=remember,
            is_known=is_known,
            conversation_id=conversation_id,
            size=limit,
        )
        return without_generated_ids(entries)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        def remember(entries: list[Entry]) -> None:
            if offset == 0 and limit < _FRONT_SIZE:
                self._last_known.front(self._owner, conversation_id, entries)

        entries = await self._calls.read(
            lambda: self.inner.page(conversation_id, limit=limit, offset=offset),
            lambda view: view.page(conversation_id, now=self.now(), limit=limit, offset=offset),
            remember=remember,
            is_known=lambda view: view.has_page(parse_id(conversation_id), limit, offset),
            conversation_id=conversation_id,
            size=limit,
        )
        return without_generated_ids(entries)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        found = await self._calls.read(
            lambda: self.inner.entry(conversation_id, message_id),
            lambda view: view.owner_data.entry(conversation_id, message_id, now=self.now()),
            remember=_ignore,
            is_known=lambda view: view.has_entry(parse_id(conversation_id), message_id),
            conversation_id=conversation_id,
        )
        return None if found is None else without_generated_ids([found])[0]

    async def read_snapshot(
        self, conversation_id: str, *, front: int, tail: int, documents: Listing
    ) -> LogSnapshot:
        """Read from the store, or raise: a context then reads the parts from the last known state."""
        self._state.check_open()
        if self.degraded:
            raise self._state.unavailable()
        reader = self.inner_capability(SnapshotReader)

        def remember(snapshot: LogSnapshot) -> None:
            if tail < LARGE:
                self._last_known.snapshot(self._owner, snapshot, is_whole=len(snapshot.tail) < tail)

        call = self._calls.remembering(
            lambda: reader.read_snapshot(conversation_id, front=front, tail=tail, documents=documents),
            remember,
            conversation_id,
        )
        return snapshot_without_generated_ids(await self._calls.read_from_store(call, is_prompt=True))

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        replaced = await self._calls.write_through(
            lambda: self.inner.replace(conversation_id, message, expected_revision=expected_revision),
            repeat=expected_revision is None,
        )
        self._last_known.drop(self._owner, replaced.conversation_id)
        return replaced

    # Documents. Those of a conversation can be derived from it again and are not spooled, except open turns.

    async def put_document(
        self,
        kind: str,
        key: str,
        data: bytes,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> Document:
        place = parse_place(kind, key, conversation_id)

        def call() -> Awaitable[Document]:
            return self.inner.put_document(
                kind, key, data, conversation_id=conversation_id, expected_version=expected_version
            )

        if (conversation_id is None or kind == OPEN_TURNS) and expected_version is None:
            return await self._calls.write(
                call,
                lambda queue: self._acceptance.put_document(queue, place, data),
                remember=self._remember_document,
                subject=place,
            )
        return await self._calls.write_through(
            self._calls.remembering(call, self._remember_document, place), repeat=expected_version is None
        )

    def _remember_document(self, document: Document) -> None:
        if document.conversation_id is None:
            self._last_known.document(self._owner, document)

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        place = parse_place(kind, key, conversation_id)

        def call() -> Awaitable[Document | None]:
            return self.inner.get_document(kind, key, conversation_id=conversation_id)

        def remember(document: Document | None) -> None:
            if document is None:
                self._last_known.drop_document(self._owner, place)
            else:
                self._remember_document(document)

        return await self._calls.answer(
            self._calls.remembering(call, remember, place),
            lambda view: view.owner_data.documents[place],
            lambda view: place in view.owner_data.documents,
        )

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        return await self._calls.read_from_store(
            lambda: self.inner.documents(kind, conversation_id=conversation_id, after=after, limit=limit)
        )

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        return await self._calls.read_from_store(
            lambda: self.inner.document_kinds(conversation_id=conversation_id)
        )

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        deleted = await self._calls.write_through(
            lambda: self.inner.delete_document(
                kind, key, conversation_id=conversation_id, expected_version=expected_version
            )
        )
        self._last_known.drop_document(self._owner, parse_place(kind, key, conversation_id))
        return deleted

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        await self._calls.write_through(lambda: self.inner.restore_documents(documents), repeat=True)
        for document in documents:
            self._last_known.drop_document(self._owner, Place(document.kind, document.key))

    # Moving and retention

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        await self._calls.write_through(
            lambda: self.inner.restore(conversation, entries, expected_revision=expected_revision),
            repeat=expected_revision is None,
        )
        self._last_known.drop(self._owner, conversation.id)

    async def purge_expired(self) -> int:
        return await self._calls.write_through(self.inner.purge_expired, repeat=True)

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        return await self._calls.read_from_store(lambda: self.inner.expired(by=by, limit=limit))

    async def family(self, root_id: str) -> list[Conversation]:
        inner = self.inner_capability(Branchable)
        return await self._calls.read_from_store(lambda: inner.family(root_id))

    async def kept_expired(self) -> list[Conversation]:
        inner = self.inner_capability(Branchable)
        return await self._calls.read_from_store(inner.kept_expired)

    async def last_sequence(self, conversation_id: str) -> int:
        inner = self.inner_capability(Branchable)
        return await self._calls.read_from_store(lambda: inner.last_sequence(conversation_id))

    async def clear(self) -> Tally:
        gone = await self._calls.write_through(self.inner.clear, repeat=True)
        await forget(self._state, self._owner)
        return gone

    async def tally(self, conversation_id: str | None = None) -> Tally:
        return await self._calls.read_from_store(lambda: self.inner.tally(conversation_id))

    # Sealable

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        def remember(end: LogEnd | None) -> None:
            if end is None:
                self._last_known.drop(self._owner, parse_id(conversation_id))
            else:
                self._last_known.end(self._owner, conversation_id, end)

        inner = self.inner_capability(Sealable)
        return await self._calls.answer(
            self._calls.remembering(lambda: inner.log_end(conversation_id), remember, conversation_id),
            lambda view: view.owner_data.log_end(conversation_id, now=self.now()),
            lambda view: parse_id(conversation_id) in view.ends,
            conversation_id=parse_id(conversation_id),
        )

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        inner = self.inner_capability(Sealable)
        exchanged = await self._calls.write_through(
            lambda: inner.reseal(conversation_id, entries), repeat=True
        )
        self._last_known.drop(self._owner, parse_id(conversation_id))
        return exchanged

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        inner = self.inner_capability(Sealable)
        return await self._calls.write_through(lambda: inner.exchange_head(conversation_id, old, new))

    # Searchable, VectorSearchable, Labelled and ChangeTracking

    async def changes_since(self, mark: str | None) -> RecordChanges:
        inner = self.inner_capability(ChangeTracking)
        return await self._calls.search(lambda: inner.changes_since(mark))

    async def labels_since(self, mark: int) -> LabelChanges:
        inner = self.inner_capability(Labelled)
        return await self._calls.search(lambda: inner.labels_since(mark))

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        inner = self.inner_capability(Searchable)
        return await self._calls.search(lambda: inner.matches(terms, limit=limit))

    async def nearest(
        self, model: str, vector: Sequence[float], *, limit: int, around: Sequence[float] | None = None
    ) -> list[VectorMatch] | None:
        inner = self.inner_capability(VectorSearchable)
        return await self._calls.search(lambda: inner.nearest(model, vector, limit=limit, around=around))


def _ignore(_: object) -> None:
    """Record nothing of an answer."""


# Pages up to this size at offset 0 are recorded: a context reads its system messages there.
_FRONT_SIZE = 16
