"""One owner's store, with an outage in between or not. Above: callers. Below: `backend`, which decides.

Every method says three things: how the store is asked, what is noted of its answer, and what is
answered or accepted when it cannot be asked.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec.structs import replace

from aforesaid.contracts import (
    Appended,
    ConversationStore,
    Document,
    Entry,
    LogEnd,
    Matches,
    Place,
    Position,
    Sealable,
    Searchable,
    Tally,
    VectorMatch,
    VectorSearchable,
    Watchable,
    check_data,
    parse_place,
    without_head,
)
from aforesaid.errors import ConversationExists, ConversationNotFound, StoreUnavailable
from aforesaid.layers._capabilities import with_capabilities_of, with_inner
from aforesaid.layers.resilient.last_known_state import LastKnownState, Subject, View
from aforesaid.layers.resilient.message_ids import appended, marked, unmarked
from aforesaid.layers.resilient.operations import (
    Bound,
    Created,
    Deed,
    DocumentPut,
    Resumed,
    Unbound,
    Updated,
    turn_added,
)
from aforesaid.layers.resilient.owner_queues import OwnerQueue
from aforesaid.layers.resilient.retry import Effort
from aforesaid.layers.resilient.settling import settle
from aforesaid.model.conversations import Changes, Conversation, Page, Query, check_revision, stamp_for
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message
from aforesaid.stores.encoded_logs import EncodedMessage, encode_messages, split_known

if TYPE_CHECKING:
    from aforesaid.layers.resilient.backend import ResilientBackend

T = TypeVar("T")

LARGE = 1000
"""Entries or records from which on a read is a long one."""


def store_around(backend: "ResilientBackend", owner: str) -> "ResilientStore":
    inner = backend.inner.of(owner)
    powers = tuple(power for power in (Sealable, Searchable, VectorSearchable) if isinstance(inner, power))
    return with_capabilities_of(inner, _kind_with(powers)(backend, owner, inner), [Watchable])


class ResilientStore(ConversationStore):
    """A store that retries, and that accepts turns and answers from what is known while its own store is
    away."""

    def __init__(self, backend: "ResilientBackend", owner: str, inner: ConversationStore) -> None:
        self._backend = backend
        self._owner = owner
        self.inner = inner
        self._is_authoritative = False
        """Whether this is the view for operations that need everything: no fallback, and no spool."""

    def now(self) -> datetime:
        return self.inner.now()

    @property
    def degraded(self) -> bool:
        """Whether an answer given now would come from the last known state, or lack turns that wait."""
        return not self._is_authoritative and self._backend.degraded(self._owner)

    async def authoritative(self) -> "ResilientStore":
        await settle(self._backend, self._owner)
        whole = with_inner(self, await self.inner.authoritative())
        whole._is_authoritative = True
        return whole

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        async def accept(queue: OwnerQueue) -> Conversation:
            if queue.view.owner_data.get(conversation.id, now=self.now()) is not None:
                raise ConversationExists(conversation.id)
            deed = Created(conversation=conversation)
            await self._accept(queue, deed, lambda s, now: s.create(conversation, now=now))
            queue.view.ends.add(conversation.id)
            return conversation

        return await self._write(
            _create_once(self.inner, conversation),
            _alone(accept),
            note=self._note,
            subject=conversation.id,
        )

    async def get(self, conversation_id: str) -> Conversation | None:
        def note(record: Conversation | None) -> None:
            if record is None:
                self._known.drop(self._owner, parse_uuid(conversation_id, field="conversation_id"))
            else:
                self._note(record)

        return await self._read(
            lambda: self.inner.get(conversation_id),
            lambda view: view.owner_data.get(conversation_id, now=self.now()),
            note=note,
            conversation_id=conversation_id,
        )

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        if expected_revision is not None:
            return await self._strict(
                lambda: self.inner.update(conversation_id, changes, expected_revision=expected_revision)
            )

        async def accept(queue: OwnerQueue) -> Conversation:
            self._require(queue.view, conversation_id)
            deed = Updated(conversation_id=conversation_id, changes=changes)
            return await self._accept(queue, deed, lambda s, now: s.update(conversation_id, changes, now=now))

        return await self._write(
            lambda: self.inner.update(conversation_id, changes),
            _alone(accept),
            note=self._note,
            subject=conversation_id,
        )

    async def find(self, query: Query) -> Page:
        await self._backend.catch_up(self._owner)
        return await self._read(
            lambda: self.inner.find(query),
            lambda view: replace(view.owner_data.find(query, now=self.now()), degraded=True),
            note=lambda page: self._known.records(self._owner, page.conversations),
            size=query.limit,
        )

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        gone = await self._strict(
            lambda: self.inner.delete(conversation_id, expected_revision=expected_revision), repeat=True
        )
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        if expected_revision is None:
            await self._backend.forget(self._owner, conversation_id)
        else:
            # A turn that was accepted meanwhile is not part of what this caller has read and deletes.
            self._known.drop(self._owner, conversation_id)
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
            deed = Resumed(session_id=session_id, conversation=fresh)
            resumed: Conversation = await self._accept(
                queue, deed, lambda s, now: s.resume(session_id, fresh, now=now, active_since=active_since)
            )
            queue.view.ends.add(resumed.id)
            return resumed

        return await self._write(
            lambda: self.inner.resume(session_id, fresh, active_since=active_since),
            _alone(accept),
            note=lambda record: self._known.session(self._owner, session_id, record),
        )

    async def session(self, session_id: str) -> Conversation | None:
        def note(record: Conversation | None) -> None:
            if record is None:
                self._known.unbound(self._owner, session_id)
            else:
                self._known.session(self._owner, session_id, record)

        return await self._read(
            lambda: self.inner.session(session_id),
            lambda view: view.owner_data.session(session_id, now=self.now()),
            note=note,
            session_id=session_id,
        )

    async def bind(self, session_id: str, conversation_id: str) -> None:
        async def accept(queue: OwnerQueue) -> None:
            self._require(queue.view, conversation_id)
            parse_name(session_id, field="session_id")
            deed = Bound(session_id=session_id, conversation_id=conversation_id)
            await self._accept(queue, deed, lambda s, now: s.bind(session_id, conversation_id, now=now))

        await self._write(
            lambda: self.inner.bind(session_id, conversation_id),
            _alone(accept),
            note=lambda _: self._known.bound(self._owner, session_id, conversation_id),
        )

    async def unbind(self, session_id: str) -> None:
        async def accept(queue: OwnerQueue) -> None:
            parse_name(session_id, field="session_id")
            await self._accept(queue, Unbound(session_id=session_id), lambda s, now: s.unbind(session_id))

        await self._write(
            lambda: self.inner.unbind(session_id),
            _alone(accept),
            note=lambda _: self._known.unbound(self._owner, session_id),
        )

    async def sessions(self, conversation_id: str) -> list[str]:
        return await self._read(
            lambda: self.inner.sessions(conversation_id),
            lambda view: view.owner_data.bound_to(conversation_id, now=self.now()),
            note=_nothing,
            conversation_id=conversation_id,
        )

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        turn = marked(messages)

        def note(done: Appended) -> None:
            self._known.appended(self._owner, conversation_id, turn, done)

        def ask() -> Awaitable[Appended]:
            return self.inner.append(conversation_id, turn, expected_revision=expected_revision)

        if expected_revision is None or self._backend.sealed:
            done = await self._write(
                ask,
                lambda queue: self._accept_turn(queue, conversation_id, turn, expected_revision),
                note=note,
                subject=conversation_id,
            )
        else:
            done = await self._strict(self._noted(ask, note, conversation_id), repeat=True)
        return appended(done, turn)

    async def _accept_turn(
        self, queue: OwnerQueue, conversation_id: str, turn: Sequence[Message], expected_revision: int | None
    ) -> Appended:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        if without_head(turn)[1] is not None:
            # The turn is sealed for a place that somebody else may take: the layer above seals it anew.
            raise StoreUnavailable(
                f"conversation {conversation_id} cannot be written to: {self._backend.why}"
            )
        view, now = queue.view, self.now()
        log = view.owner_data.logs.get(conversation_id)
        packed = _stamped(turn, stamp_for(None if log is None else log.record.last_message_at, now=now))
        if expected_revision is not None and conversation_id not in view.ends:
            raise StoreUnavailable(
                f"where conversation {conversation_id} ends is not known: {self._backend.why}"
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
        deed = turn_added(conversation_id, packed, expected_revision)
        return await self._accept(queue, deed, lambda s, now: s.append(conversation_id, packed, now=now))

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        # Once: done twice, it could take away what somebody said in between.
        done = await self._strict(
            lambda: self.inner.rewrite(conversation_id, messages, expected_revision=expected_revision)
        )
        self._known.rewritten(self._owner, conversation_id, done)
        return done

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        return await self._tail(
            self.inner.tail,
            lambda view: view.knows_tail(_parsed(conversation_id), limit, before),
            conversation_id,
            limit,
            before,
        )

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        return await self._tail(
            self.inner.recent,
            lambda view: view.knows(_parsed(conversation_id)),
            conversation_id,
            limit,
            before,
        )

    async def _tail(
        self,
        ask: Callable[..., Awaitable[list[Entry]]],
        knows: Callable[[View], bool],
        conversation_id: str,
        limit: int,
        before: Position | None,
    ) -> list[Entry]:
        def note(entries: list[Entry]) -> None:
            if before is None and len(entries) < LARGE:
                is_whole = len(entries) < limit
                self._known.tail(self._owner, conversation_id, entries, is_whole=is_whole)

        entries = await self._read(
            lambda: ask(conversation_id, limit=limit, before=before),
            lambda view: view.owner_data.tail(conversation_id, now=self.now(), limit=limit, before=before),
            note=note,
            knows=knows,
            conversation_id=conversation_id,
            size=limit,
        )
        return unmarked(entries)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        def note(entries: list[Entry]) -> None:
            if offset == 0 and limit < _HEAD:
                self._known.head(self._owner, conversation_id, entries)

        entries = await self._read(
            lambda: self.inner.page(conversation_id, limit=limit, offset=offset),
            lambda view: view.page(conversation_id, now=self.now(), limit=limit, offset=offset),
            note=note,
            knows=lambda view: view.knows_page(_parsed(conversation_id), limit, offset),
            conversation_id=conversation_id,
            size=limit,
        )
        return unmarked(entries)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        found = await self._read(
            lambda: self.inner.entry(conversation_id, message_id),
            lambda view: view.owner_data.entry(conversation_id, message_id, now=self.now()),
            note=_nothing,
            knows=lambda view: view.knows_entry(_parsed(conversation_id), message_id),
            conversation_id=conversation_id,
        )
        return None if found is None else unmarked([found])[0]

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        replaced = await self._strict(
            lambda: self.inner.replace(conversation_id, message, expected_revision=expected_revision),
            repeat=expected_revision is None,
        )
        self._known.drop(self._owner, replaced.conversation_id)
        return replaced

    # Documents. What is derived from a conversation can be derived again: it is not accepted in an outage.

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

        def ask() -> Awaitable[Document]:
            return self.inner.put_document(
                kind, key, data, conversation_id=conversation_id, expected_version=expected_version
            )

        async def accept(queue: OwnerQueue) -> Document:
            deed = DocumentPut(kind=kind, key=key, data=check_data(data))
            return await self._accept(
                queue, deed, lambda s, now: s.put_document(place, data, now=now, expected_version=None)
            )

        if conversation_id is None and expected_version is None:
            return await self._write(ask, _alone(accept), note=self._note_document, subject=place)
        return await self._strict(
            self._noted(ask, self._note_document, place), repeat=expected_version is None
        )

    def _note_document(self, document: Document) -> None:
        if document.conversation_id is None:
            self._known.document(self._owner, document)

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        place = parse_place(kind, key, conversation_id)

        def ask() -> Awaitable[Document | None]:
            return self.inner.get_document(kind, key, conversation_id=conversation_id)

        def note(document: Document | None) -> None:
            if document is None:
                self._known.drop_document(self._owner, place)
            else:
                self._note_document(document)

        return await self._answer(
            self._noted(ask, note, place),
            lambda view: view.owner_data.documents[place],
            lambda view: place in view.owner_data.documents,
        )

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        return await self._ask(
            lambda: self.inner.documents(kind, conversation_id=conversation_id, after=after, limit=limit)
        )

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        return await self._ask(lambda: self.inner.document_kinds(conversation_id=conversation_id))

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        deleted = await self._strict(
            lambda: self.inner.delete_document(
                kind, key, conversation_id=conversation_id, expected_version=expected_version
            )
        )
        self._known.drop_document(self._owner, parse_place(kind, key, conversation_id))
        return deleted

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        await self._strict(lambda: self.inner.restore_documents(documents), repeat=True)
        for document in documents:
            self._known.drop_document(self._owner, Place(document.kind, document.key))

    # Moving and retention

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        await self._strict(lambda: self.inner.restore(conversation, entries), repeat=True)
        self._known.drop(self._owner, conversation.id)

    async def purge_expired(self) -> int:
        return await self._strict(self.inner.purge_expired, repeat=True)

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        return await self._ask(lambda: self.inner.expired(by=by, limit=limit))

    async def clear(self) -> Tally:
        gone = await self._strict(self.inner.clear, repeat=True)
        await self._backend.forget(self._owner)
        return gone

    async def tally(self, conversation_id: str | None = None) -> Tally:
        return await self._ask(lambda: self.inner.tally(conversation_id))

    # How it is done

    @property
    def _known(self) -> LastKnownState:
        return self._backend.known

    def _note(self, record: Conversation) -> None:
        self._known.record(self._owner, record)

    async def _read(
        self,
        ask: Callable[[], Awaitable[T]],
        recall: Callable[[View], T],
        *,
        note: Callable[[T], None],
        knows: Callable[[View], bool] | None = None,
        conversation_id: str | None = None,
        session_id: str | None = None,
        size: int = 1,
    ) -> T:
        def is_known(view: View) -> bool:
            if knows is not None:
                return knows(view)
            if session_id is not None:
                return session_id in view.owner_data.sessions
            return conversation_id is None or view.knows_record(_parsed(conversation_id))

        return await self._answer(
            self._noted(ask, note, conversation_id),
            recall,
            is_known,
            effort=self._backend.effort_for(size),
            about=None if conversation_id is None else _parsed(conversation_id),
        )

    async def _answer(
        self,
        ask: Callable[[], Awaitable[T]],
        recall: Callable[[View], T],
        knows: Callable[[View], bool],
        *,
        effort: Effort | None = None,
        about: str | None = None,
    ) -> T:
        """The store's answer; else, unless this view is authoritative, what is known."""
        if self._is_authoritative:
            return await self._backend.read_whole(self._owner, ask)
        return await self._backend.read(self._owner, ask, recall, knows, effort=effort, about=about)

    async def _write(
        self,
        ask: Callable[[], Awaitable[T]],
        accept: Callable[[OwnerQueue], Awaitable[T]],
        *,
        note: Callable[[T], None],
        subject: Subject = None,
    ) -> T:
        if self._is_authoritative:
            return await self._strict(self._noted(ask, note, subject), repeat=True)
        return await self._backend.write(self._owner, self._noted(ask, note, subject), accept)

    def _noted(
        self, ask: Callable[[], Awaitable[T]], note: Callable[[T], None], subject: Subject
    ) -> Callable[[], Awaitable[T]]:
        """The question, with the store's own answer noted: it is the last known state, unless what it is
        about was dropped meanwhile."""

        async def asked() -> T:
            with self._known.asking(self._owner, subject) as question:
                try:
                    answer = await ask()
                except ConversationNotFound as gone:
                    self._known.drop(self._owner, gone.conversation_id)
                    raise
                if not question.is_overtaken:
                    note(answer)
                return answer

        return asked

    async def _ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Read what only the store can know."""
        return await self._answer(ask, _unknown, lambda view: False)

    async def _search(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the store's index, which does not have what waits in the spool."""
        backend = self._backend
        found: T = await self._answer(ask, _unknown, lambda view: False, effort=backend.search_effort)
        if self.degraded:
            backend.note_degraded(self._owner)
        return found

    async def _strict(self, ask: Callable[[], Awaitable[T]], *, repeat: bool = False) -> T:
        return await self._backend.strict(self._owner, ask, repeat=repeat)

    async def _accept(self, queue: OwnerQueue, deed: Deed, apply: Callable[[Any, datetime], T]) -> T:
        at = self.now()
        done = await self._backend.accept(queue, deed, at, lambda: apply(queue.view.owner_data, at))
        return cast(T, done)

    def _require(self, view: View, conversation_id: str) -> None:
        """The conversation has to be known to be changed; whether it is there, only the store can say."""
        known = parse_uuid(conversation_id, field="conversation_id")
        if not view.knows(known):
            raise StoreUnavailable(f"nothing is known of conversation {known} while {self._backend.why}")
        if view.owner_data.get(known, now=self.now()) is None:
            raise ConversationNotFound(conversation_id)


def _parsed(conversation_id: object) -> str:
    return parse_uuid(conversation_id, field="conversation_id")


def _unknown(_: View) -> Any:
    raise StoreUnavailable


def _nothing(_: object) -> None:
    """What is noted of an answer that nobody needs later."""


_HEAD = 16
"""Entries that count as the front of a log: where a context looks for its system messages."""


class _Sealed(ResilientStore):
    """Around a store on which messages can be sealed to their places."""

    inner: Any

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        def note(end: LogEnd | None) -> None:
            if end is None:
                self._known.drop(self._owner, parse_uuid(conversation_id, field="conversation_id"))
            else:
                self._known.end(self._owner, conversation_id, end)

        return await self._answer(
            self._noted(lambda: self.inner.log_end(conversation_id), note, conversation_id),
            lambda view: view.owner_data.log_end(conversation_id, now=self.now()),
            lambda view: _parsed(conversation_id) in view.ends,
            about=_parsed(conversation_id),
        )

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        exchanged: int = await self._strict(lambda: self.inner.reseal(conversation_id, entries), repeat=True)
        self._known.drop(self._owner, parse_uuid(conversation_id, field="conversation_id"))
        return exchanged

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        done: bool = await self._strict(lambda: self.inner.exchange_head(conversation_id, old, new))
        return done


class _Searched(ResilientStore):
    """Around a store with an index. Only the store can search it; `search` looks at what is known else."""

    inner: Any

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        return await self._search(lambda: self.inner.matches(terms, limit=limit))


class _Compared(ResilientStore):
    """Around a store that compares vectors where they lie."""

    inner: Any

    async def nearest(
        self, model: str, vector: Sequence[float], *, limit: int, around: Sequence[float] | None = None
    ) -> list[VectorMatch] | None:
        return await self._search(lambda: self.inner.nearest(model, vector, limit=limit, around=around))


_KINDS: dict[type, type[ResilientStore]] = {
    Sealable: _Sealed,
    Searchable: _Searched,
    VectorSearchable: _Compared,
}


@cache
def _kind_with(powers: tuple[type, ...]) -> type[ResilientStore]:
    """The class for a store with these powers."""
    return type("ResilientStore", (*(_KINDS[power] for power in powers), ResilientStore), {})


def _create_once(
    inner: ConversationStore, conversation: Conversation
) -> Callable[[], Awaitable[Conversation]]:
    """Create; an attempt whose answer was lost must not turn the next one into a conflict."""
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


def _alone(accept: Callable[[OwnerQueue], Awaitable[T]]) -> Callable[[OwnerQueue], Awaitable[T]]:
    """One caller at a time from looking to changing."""

    async def accept_alone(queue: OwnerQueue) -> T:
        async with queue.deciding:
            return await accept(queue)

    return accept_alone


def _stamped(turn: Sequence[Message], stamp: datetime) -> list[EncodedMessage]:
    return encode_messages(
        [message if message.timestamp else message.with_(timestamp=stamp) for message in turn]
    )
