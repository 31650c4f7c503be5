"""One owner's resilient store.

Every method defines three things: the call to the store, how its answer is recorded, and the answer or the
accepted operation during an outage.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from aforesaid.contracts import (
    Appended,
    ConversationStore,
    Document,
    Entry,
    Place,
    Position,
    Tally,
    check_data,
    parse_place,
    without_head,
)
from aforesaid.errors import ConversationExists, ConversationNotFound, StoreUnavailable
from aforesaid.layers.resilient.last_known_state import View
from aforesaid.layers.resilient.message_ids import with_ids, without_generated_ids, without_generated_ids_in
from aforesaid.layers.resilient.operations import (
    Bound,
    Created,
    DocumentPut,
    Resumed,
    Unbound,
    Updated,
    turn_added,
)
from aforesaid.layers.resilient.owner_queues import OwnerQueue
from aforesaid.layers.resilient.store_base import parse_id
from aforesaid.layers.resilient.store_capabilities import ResilientCapabilities
from aforesaid.model.conversations import Changes, Conversation, Page, Query, check_revision, stamp_for
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message
from aforesaid.stores.encoded_logs import EncodedMessage, encode_messages, split_known

T = TypeVar("T")

LARGE = 1000
"""Entries or records from which a read has the deadline of a long read."""


class ResilientStore(ResilientCapabilities):
    """A store that retries calls, accepts turns during an outage, and then answers from the last known
    state."""

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        async def accept(queue: OwnerQueue) -> Conversation:
            if queue.view.owner_data.get(conversation.id, now=self.now()) is not None:
                raise ConversationExists(conversation.id)
            action = Created(conversation=conversation)
            await self._accept(queue, action, lambda s, now: s.create(conversation, now=now))
            queue.view.ends.add(conversation.id)
            return conversation

        return await self._write(
            _create_once(self.inner, conversation),
            _serialized(accept),
            remember=self._remember_record,
            subject=conversation.id,
        )

    async def get(self, conversation_id: str) -> Conversation | None:
        def remember(record: Conversation | None) -> None:
            if record is None:
                self._last_known.drop(self._owner, parse_uuid(conversation_id, field="conversation_id"))
            else:
                self._remember_record(record)

        return await self._read(
            lambda: self.inner.get(conversation_id),
            lambda view: view.owner_data.get(conversation_id, now=self.now()),
            remember=remember,
            conversation_id=conversation_id,
        )

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        if expected_revision is not None:
            return await self._write_through(
                lambda: self.inner.update(conversation_id, changes, expected_revision=expected_revision)
            )

        async def accept(queue: OwnerQueue) -> Conversation:
            self._require(queue.view, conversation_id)
            action = Updated(conversation_id=conversation_id, changes=changes)
            return await self._accept(
                queue, action, lambda s, now: s.update(conversation_id, changes, now=now)
            )

        return await self._write(
            lambda: self.inner.update(conversation_id, changes),
            _serialized(accept),
            remember=self._remember_record,
            subject=conversation_id,
        )

    async def find(self, query: Query) -> Page:
        await self._backend.catch_up(self._owner)
        return await self._read(
            lambda: self.inner.find(query),
            lambda view: replace(view.owner_data.find(query, now=self.now()), degraded=True),
            remember=lambda page: self._last_known.records(self._owner, page.conversations),
            size=query.limit,
        )

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        gone = await self._write_through(
            lambda: self.inner.delete(conversation_id, expected_revision=expected_revision), repeat=True
        )
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        if expected_revision is None:
            await self._backend.forget(self._owner, conversation_id)
        else:
            # Keep turns that were accepted meanwhile: the caller has not read them and does not delete them.
            self._last_known.drop(self._owner, conversation_id)
        return gone

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        async def accept(queue: OwnerQueue) -> Conversation:
            owner_data, now = queue.view.owner_data, self.now()
            bound = owner_data.active_session(session_id, now=now, active_since=active_since)
            if bound is not None:
                self._backend.note_degraded(self._owner)
                return bound
            action = Resumed(session_id=session_id, conversation=fresh)
            resumed: Conversation = await self._accept(
                queue, action, lambda s, now: s.resume(session_id, fresh, now=now, active_since=active_since)
            )
            queue.view.ends.add(resumed.id)
            return resumed

        return await self._write(
            lambda: self.inner.resume(session_id, fresh, active_since=active_since),
            _serialized(accept),
            remember=lambda record: self._last_known.session(self._owner, session_id, record),
        )

    async def session(self, session_id: str) -> Conversation | None:
        def remember(record: Conversation | None) -> None:
            if record is None:
                self._last_known.unbind_session(self._owner, session_id)
            else:
                self._last_known.session(self._owner, session_id, record)

        return await self._read(
            lambda: self.inner.session(session_id),
            lambda view: view.owner_data.session(session_id, now=self.now()),
            remember=remember,
            session_id=session_id,
        )

    async def bind(self, session_id: str, conversation_id: str) -> None:
        async def accept(queue: OwnerQueue) -> None:
            self._require(queue.view, conversation_id)
            parse_name(session_id, field="session_id")
            action = Bound(session_id=session_id, conversation_id=conversation_id)
            await self._accept(queue, action, lambda s, now: s.bind(session_id, conversation_id, now=now))

        await self._write(
            lambda: self.inner.bind(session_id, conversation_id),
            _serialized(accept),
            remember=lambda _: self._last_known.bind_session(self._owner, session_id, conversation_id),
        )

    async def unbind(self, session_id: str) -> None:
        async def accept(queue: OwnerQueue) -> None:
            parse_name(session_id, field="session_id")
            await self._accept(queue, Unbound(session_id=session_id), lambda s, now: s.unbind(session_id))

        await self._write(
            lambda: self.inner.unbind(session_id),
            _serialized(accept),
            remember=lambda _: self._last_known.unbind_session(self._owner, session_id),
        )

    async def sessions(self, conversation_id: str) -> list[str]:
        return await self._read(
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

        if expected_revision is None or self._backend.sealed:
            done = await self._write(
                call,
                lambda queue: self._accept_turn(queue, conversation_id, turn, expected_revision),
                remember=remember,
                subject=conversation_id,
            )
        else:
            done = await self._write_through(self._remembering(call, remember, conversation_id), repeat=True)
        return without_generated_ids_in(done, turn)

    async def _accept_turn(
        self, queue: OwnerQueue, conversation_id: str, turn: Sequence[Message], expected_revision: int | None
    ) -> Appended:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        if without_head(turn)[1] is not None:
            # The turn is sealed for a place that another process may take. The encrypted layer seals it
            # again.
            raise StoreUnavailable(
                f"conversation {conversation_id} cannot be written to: {self._backend.degraded_reason}"
            )
        view, now = queue.view, self.now()
        log = view.owner_data.logs.get(conversation_id)
        packed = _with_times(turn, stamp_for(None if log is None else log.record.last_message_at, now=now))
        if expected_revision is not None and conversation_id not in view.ends:
            raise StoreUnavailable(
                f"the end of conversation {conversation_id} is not known: {self._backend.degraded_reason}"
            )
        view.assume(conversation_id, now=now)
        if view.owner_data.get(conversation_id, now=now) is None:
            raise ConversationNotFound(conversation_id)
        new, _ = split_known(view.owner_data.logs[conversation_id], packed, now=now)
        if not new:
            return view.owner_data.append(conversation_id, packed, now=now)
        check_revision(
            conversation_id, view.owner_data.logs[conversation_id].record.revision, expected_revision
        )
        action = turn_added(conversation_id, packed, expected_revision)
        return await self._accept(queue, action, lambda s, now: s.append(conversation_id, packed, now=now))

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        # Without retry: a second attempt could remove a turn that was added in between.
        done = await self._write_through(
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

        entries = await self._read(
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
                self._last_known.head(self._owner, conversation_id, entries)

        entries = await self._read(
            lambda: self.inner.page(conversation_id, limit=limit, offset=offset),
            lambda view: view.page(conversation_id, now=self.now(), limit=limit, offset=offset),
            remember=remember,
            is_known=lambda view: view.has_page(parse_id(conversation_id), limit, offset),
            conversation_id=conversation_id,
            size=limit,
        )
        return without_generated_ids(entries)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        found = await self._read(
            lambda: self.inner.entry(conversation_id, message_id),
            lambda view: view.owner_data.entry(conversation_id, message_id, now=self.now()),
            remember=_ignore,
            is_known=lambda view: view.has_entry(parse_id(conversation_id), message_id),
            conversation_id=conversation_id,
        )
        return None if found is None else without_generated_ids([found])[0]

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        replaced = await self._write_through(
            lambda: self.inner.replace(conversation_id, message, expected_revision=expected_revision),
            repeat=expected_revision is None,
        )
        self._last_known.drop(self._owner, replaced.conversation_id)
        return replaced

    # Documents. Those of a conversation are derived from it and can be derived again: they are not spooled.

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

        async def accept(queue: OwnerQueue) -> Document:
            action = DocumentPut(kind=kind, key=key, data=check_data(data))
            return await self._accept(
                queue, action, lambda s, now: s.put_document(place, data, now=now, expected_version=None)
            )

        if conversation_id is None and expected_version is None:
            return await self._write(
                call, _serialized(accept), remember=self._remember_document, subject=place
            )
        return await self._write_through(
            self._remembering(call, self._remember_document, place), repeat=expected_version is None
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

        return await self._answer(
            self._remembering(call, remember, place),
            lambda view: view.owner_data.documents[place],
            lambda view: place in view.owner_data.documents,
        )

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        return await self._read_from_store(
            lambda: self.inner.documents(kind, conversation_id=conversation_id, after=after, limit=limit)
        )

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        return await self._read_from_store(lambda: self.inner.document_kinds(conversation_id=conversation_id))

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        deleted = await self._write_through(
            lambda: self.inner.delete_document(
                kind, key, conversation_id=conversation_id, expected_version=expected_version
            )
        )
        self._last_known.drop_document(self._owner, parse_place(kind, key, conversation_id))
        return deleted

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        await self._write_through(lambda: self.inner.restore_documents(documents), repeat=True)
        for document in documents:
            self._last_known.drop_document(self._owner, Place(document.kind, document.key))

    # Moving and retention

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        await self._write_through(lambda: self.inner.restore(conversation, entries), repeat=True)
        self._last_known.drop(self._owner, conversation.id)

    async def purge_expired(self) -> int:
        return await self._write_through(self.inner.purge_expired, repeat=True)

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        return await self._read_from_store(lambda: self.inner.expired(by=by, limit=limit))

    async def clear(self) -> Tally:
        gone = await self._write_through(self.inner.clear, repeat=True)
        await self._backend.forget(self._owner)
        return gone

    async def tally(self, conversation_id: str | None = None) -> Tally:
        return await self._read_from_store(lambda: self.inner.tally(conversation_id))


def _ignore(_: object) -> None:
    """Record nothing of an answer."""


_FRONT_SIZE = 16
"""Pages up to this size at offset 0 are recorded: a context reads its system messages there."""


def _create_once(
    inner: ConversationStore, conversation: Conversation
) -> Callable[[], Awaitable[Conversation]]:
    """Return a call that creates the conversation. If the answer of an attempt was lost, the next one must
    not raise a conflict."""
    attempts = 0

    async def create() -> Conversation:
        nonlocal attempts
        attempts += 1
        try:
            return await inner.create(conversation)
        except ConversationExists:
            there = await inner.get(conversation.id) if attempts > 1 else None
            if there is None or there.created_at != conversation.created_at:
                raise
            return there

    return create


def _serialized(accept: Callable[[OwnerQueue], Awaitable[T]]) -> Callable[[OwnerQueue], Awaitable[T]]:
    """Run `accept` under the decision lock of the queue."""

    async def accept_alone(queue: OwnerQueue) -> T:
        async with queue.decision_lock:
            return await accept(queue)

    return accept_alone


def _with_times(turn: Sequence[Message], stamp: datetime) -> list[EncodedMessage]:
    return encode_messages(
        [message if message.timestamp else message.with_(timestamp=stamp) for message in turn]
    )
