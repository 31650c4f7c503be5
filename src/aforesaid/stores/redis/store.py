"""One owner's view of the server. The rules are in `conversations`; the scripts follow them."""

import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, msgpack
from msgspec.structs import replace

from aforesaid.contracts import (
    Appended,
    Change,
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
    replaced_entry,
    replaced_id,
    replacement_message,
    same_content,
    split_head,
    without_head,
)
from aforesaid.errors import (
    Conflict,
    ConversationExists,
    ConversationNotFound,
    MessageConflict,
    MessageNotFound,
    RevisionConflict,
    TurnPartlyStored,
)
from aforesaid.model.clock import parse_moment, to_micros
from aforesaid.model.conversations import (
    CLOCK_SKEW,
    Changes,
    Conversation,
    Page,
    Query,
    check_count,
    end_of,
    expiry,
    is_expired,
)
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message
from aforesaid.model.wire import encode_message
from aforesaid.stores._document_checks import DocumentChecks
from aforesaid.stores.redis import values
from aforesaid.stores.redis.conversation_index import Index, scanned
from aforesaid.stores.redis.documents import Documents, by_kind
from aforesaid.stores.redis.keys import OwnerKeys
from aforesaid.stores.redis.scripts import ABOUT_CONVERSATIONS, ABOUT_OWNERS, ABOUT_OWNERS_DOCUMENTS
from aforesaid.stores.redis.turns import Draft, packed_entries, packed_members
from aforesaid.stores.redis.values import Stored, moment_of
from aforesaid.stores.redis.watch import watched

if TYPE_CHECKING:
    from aforesaid.stores.redis.backend import RedisBackend
    from aforesaid.stores.redis.connections import Connections


class RedisStore(DocumentChecks):
    """Each change of a conversation is one script; the owner's index and sessions are written around it."""

    def __init__(self, backend: "RedisBackend", owner: str) -> None:
        self._backend = backend
        self._owner = owner
        self._keys = OwnerKeys(backend.prefix, owner)

    def now(self) -> datetime:
        return self._backend.clock()

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        await self._create(conversation)
        return conversation

    async def get(self, conversation_id: str) -> Conversation | None:
        found = await self._alive(parse_uuid(conversation_id, field="conversation_id"))
        return found.record if found else None

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        now = self.now()
        status, *reply = await self._run(
            "update",
            conversation_id,
            moment_of(now),
            _revision_text(expected_revision),
            self._keys.changes,
            conversation_id,
            _new_lifetime(changes, now),
            msgpack.encode(values.change_fields(changes, now=now)),
        )
        if status == b"moved":
            raise _moved_on(conversation_id, expected_revision, reply)
        return _record(conversation_id, reply[0])

    async def find(self, query: Query) -> Page:
        return await self._index.page(query, now=self.now())

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        return await self._delete(
            parse_uuid(conversation_id, field="conversation_id"), expected_revision=expected_revision
        )

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        name = parse_name(session_id, field="session_id")
        begun = None
        while True:
            bound, seen = await self._bound(name)
            if bound is not None and (active_since is None or bound.last_activity >= active_since):
                if begun is not None and bound.id != fresh.id:
                    await self._delete(fresh.id)  # somebody else was quicker: theirs it is
                return bound
            begun = begun or await self._begin(name, fresh)
            if await self._rebind(name, seen, _binding(fresh.id, begun.birth)):
                return begun.record

    async def _begin(self, name: str, fresh: Conversation) -> Stored:
        """Create the conversation for a session, or take up what an attempt made whose answer was lost."""
        try:
            return Stored(fresh, await self._create(fresh, name=name))
        except ConversationExists:
            there = await self._alive(fresh.id)
            noted = await self._connections.call("SISMEMBER", self._keys.of(fresh.id).names, name)
            if there is None or there.record.created_at != fresh.created_at or not noted:
                raise
            return there

    async def session(self, session_id: str) -> Conversation | None:
        bound, _ = await self._bound(parse_name(session_id, field="session_id"))
        return bound

    async def bind(self, session_id: str, conversation_id: str) -> None:
        name = parse_name(session_id, field="session_id")
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        _, birth = await self._run("bind", conversation_id, moment_of(self.now()), name)
        binding = _binding(conversation_id, birth.decode())
        await self._connections.call("HSET", self._keys.sessions, name, binding)

    async def unbind(self, session_id: str) -> None:
        name = parse_name(session_id, field="session_id")
        await self._connections.call("HDEL", self._keys.sessions, name)

    async def sessions(self, conversation_id: str) -> list[str]:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        found = await self._alive(conversation_id)
        if found is None:
            raise ConversationNotFound(conversation_id)
        names = await self._connections.call("SMEMBERS", self._keys.of(conversation_id).names)
        if not names:
            return []
        # A name stays noted when its session goes elsewhere: what the sessions say is the truth.
        bound = await self._connections.call("HMGET", self._keys.sessions, *names)
        binding = _binding(conversation_id, found.birth).encode()
        return sorted(name.decode() for name, to in zip(names, bound, strict=True) if to == binding)

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        messages, head = without_head(messages)
        draft = Draft(conversation_id, messages, head=head)
        return await self._extend("append", conversation_id, draft, expected_revision)

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        messages, head = without_head(messages)
        draft = Draft(conversation_id, messages, head=head)
        return await self._extend("rewrite", conversation_id, draft, expected_revision)

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_position(before)
        if not limit:
            return await self._entries(conversation_id, "none")
        if before is None:
            newest_first = await self._entries(conversation_id, "tail", limit - 1)
        else:
            newest_first = await self._entries(conversation_id, "before", values.position_text(before), limit)
        return newest_first[::-1]

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        if not limit:
            return await self._entries(conversation_id, "none")
        return await self._entries(conversation_id, "page", offset, offset + limit - 1)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        member = await self._member(conversation_id, parse_name(message_id, field="message_id"))
        return values.entry(conversation_id, member) if member else None

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        (message,), head = without_head([message])
        encode_message(message)  # refuses what could not be stored, before anything else
        while True:
            member = await self._member(conversation_id, replaced_id(message))
            if not member:
                raise MessageNotFound(conversation_id, replaced_id(message))
            done = await self._replace(conversation_id, member, message, expected_revision, head)
            if done is not None:
                return done

    async def _member(self, conversation_id: str, message_id: str) -> bytes:
        """What the log keeps of the message with this id; empty when there is none."""
        _, member = await self._run("find", conversation_id, moment_of(self.now()), message_id)
        return bytes(member)

    async def _replace(
        self,
        conversation_id: str,
        member: bytes,
        message: Message,
        expected_revision: int | None,
        head: str | None,
    ) -> Entry | None:
        """Put the message in the place of what was seen; None when that has changed since."""
        held = values.entry(conversation_id, member)
        kept = replacement_message(held, message)
        status, *reply = await self._run(
            "replace",
            conversation_id,
            moment_of(self.now()),
            _revision_text(expected_revision),
            self._keys.changes,
            conversation_id,
            member,
            values.position_text(held.position),
            moment_of(held.stored_at),
            encode_message(kept),
            "1" if same_content(held, message) else "",
            head or "",
        )
        if status == b"moved":
            raise _moved_on(conversation_id, expected_revision, reply)
        if status == b"changed":
            return None
        return replaced_entry(held, kept, revision=int(reply[0]))

    # Sealing

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        key = self._keys.of(conversation_id).record
        *fields, head = await self._connections.call("HMGET", key, *values.FIELDS, "head")
        found = values.stored(conversation_id, fields)
        if found is None or is_expired(found.record, now=self.now()):
            return None
        record, sealed = found.record, None if head is None else head.decode()
        return LogEnd(record.revision, values.next_sequence(fields), record.last_message_at, sealed)

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        packed = packed_members(entries)
        _, exchanged = await self._run("reseal", conversation_id, moment_of(self.now()), packed)
        return int(exchanged)

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        now = moment_of(self.now())
        _, exchanged = await self._run("exchange_head", conversation_id, now, old or "", new)
        return bool(exchanged)

    # Moving

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        entries, head = entries_without_head(entries)
        record, given = check_restorable(conversation, entries)
        now = self.now()
        packed = packed_entries(given.values())
        await self._index.add(record.id, record.last_activity)
        status, *reply = await self._run(
            "restore",
            record.id,
            moment_of(now),
            values.moment_text(record.expires_at),
            values.restored_lifetime(record.expires_at, now=now),
            self._keys.changes,
            record.id,
            secrets.token_hex(8),
            values.score_text(to_micros(record.last_activity)),
            msgpack.encode(values.described(record)),
            msgpack.encode(values.absent_fields(record)),
            packed,
            head or "",
            also=() if self._connections.clustered else (self._keys.index,),
        )
        if status == b"taken":
            await self._index.correct(record.id)
            raise MessageConflict(record.id, reply[0].decode())
        await self._release(record.id, reply[0].decode(), reply[1])
        await self._index.correct(record.id)

    # Documents

    async def _put_document(self, place: Place, data: bytes, expected: int | None) -> Document:
        held = self._held(place.conversation_id)
        if place.conversation_id is not None:
            return await held.put(place, data, expected=expected)
        # Listed first, as with a conversation, and again when it is new, for a reader may have dropped it.
        await self._index.enlist()
        document = await held.put(place, data, expected=expected)
        if document.version == 1:
            await self._index.enlist()
        return document

    async def _get_document(self, place: Place) -> Document | None:
        return await self._held(place.conversation_id).get(place)

    async def _list_documents(self, listing: Listing) -> list[Document]:
        return await self._held(listing.conversation_id).page(listing)

    async def _document_kinds(self, holder: str | None) -> list[str]:
        return await self._held(holder).kinds()

    async def _delete_document(self, place: Place, expected: int | None) -> bool:
        deleted = await self._held(place.conversation_id).delete(place, expected=expected)
        if deleted and place.conversation_id is None:
            await self._index.leave_if_empty()
        return deleted

    async def _restore_documents(self, given: Mapping[Place, Document]) -> None:
        holder = next(iter(given)).conversation_id
        if holder is None:
            await self._index.enlist()
        await self._held(holder).restore(given)
        if holder is None:
            await self._index.enlist()

    def _held(self, conversation_id: str | None) -> Documents:
        """The documents of a conversation, or of the owner."""
        if conversation_id is None:
            return Documents(self._run_for_owner, self.now())
        return Documents(partial(self._run_about, conversation_id), self.now())

    async def _run_for_owner(self, script: str, *values: Any) -> Any:
        keys = [self._keys.documents]
        return await self._connections.run(ABOUT_OWNERS_DOCUMENTS[script], keys, *values)

    async def _run_about(self, conversation_id: str, script: str, *values: Any) -> Any:
        return await self._run(script, conversation_id, *values)

    # Retention

    async def purge_expired(self) -> int:
        return await self.purge(self.now())

    async def purge(self, now: datetime) -> int:
        """Remove what has expired by then. Counts what was still there: the server removes most by itself."""
        removed = 0
        async for conversation_ids in self._index.every_id():
            for one, found in await self._index.stored(conversation_ids):
                if found is None or is_expired(found.record, now=now):
                    removed += (await self._delete(one, expired_by=now)).conversations
        async for bindings in scanned(self._connections, "HSCAN", self._keys.sessions):
            for name, binding in bindings:
                await self._resolve(name.decode(), binding.decode())
        await self._index.leave_if_empty()
        return removed

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        moment = parse_moment(by, field="by")
        check_count(limit, field="limit", least=0)
        found: dict[str, Conversation] = {}
        async for conversation_ids in self._index.every_id():
            for one, stored in await self._index.stored(conversation_ids):
                if stored is not None and is_expired(stored.record, now=moment):
                    found[one] = stored.record
        return sorted(found.values(), key=end_of)[:limit]

    async def clear(self) -> Tally:
        gone = Tally(documents=await self._count_documents("remove"))
        async for conversation_ids in self._index.every_id():
            for one in conversation_ids:  # also what cannot be read
                gone += await self._delete(one)
        await self._connections.call("UNLINK", self._keys.sessions)
        await self._index.leave_if_empty()
        return gone

    async def tally(self, conversation_id: str | None = None) -> Tally:
        if conversation_id is not None:
            return await self._tally(parse_uuid(conversation_id, field="conversation_id"))
        found: dict[str, Tally] = {}
        async for conversation_ids in self._index.every_id():
            found |= {one: replace(await self._tally(one), sessions=0) for one in conversation_ids}
        sessions = int(await self._connections.call("HLEN", self._keys.sessions))
        own = Tally(sessions=sessions, documents=await self._count_documents())
        return sum(found.values(), own)

    async def _tally(self, conversation_id: str) -> Tally:
        birth, messages, documents, names = await self._run("tally", conversation_id)
        binding = _binding(conversation_id, birth.decode()).encode()
        bound = await self._connections.call("HMGET", self._keys.sessions, *names) if names else []
        return Tally(
            conversations=int(birth != b""),
            messages=int(messages),
            sessions=bound.count(binding),
            documents=by_kind(documents),
        )

    async def _count_documents(self, how: str = "") -> dict[str, int]:
        script = ABOUT_OWNERS["count_documents"]
        return by_kind(await self._connections.run(script, [self._keys.documents], how))

    async def holds_anything(self, *, ignored_kinds: Collection[str] = ()) -> bool:
        """Whether this owner has a conversation, expired or not, or a document of no kind in
        `ignored_kinds`.
        """
        if any(kind not in ignored_kinds for kind in await self._document_kinds(None)):
            return True
        return await self._index.has_conversations()

    # Watching

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Changes of this owner's conversations. What the server lets expire by itself is not told."""
        if conversation_id is not None:
            conversation_id = parse_uuid(conversation_id, field="conversation_id")
        return watched(self._connections, self._keys.changes, conversation_id)

    # Inside

    @property
    def _connections(self) -> "Connections":
        return self._backend.connections

    @property
    def _index(self) -> Index:
        return Index(self._connections, self._keys, self._owner)

    async def _run(self, script: str, conversation_id: str, *arguments: Any, also: Sequence[str] = ()) -> Any:
        """Run a script on a conversation that must be there."""
        keys = [*self._keys.of(conversation_id), *also]
        reply = await self._connections.run(ABOUT_CONVERSATIONS[script], keys, *arguments)
        if reply[0] == b"missing":
            raise ConversationNotFound(conversation_id)
        return reply

    async def _stored(self, conversation_id: str) -> Stored | None:
        key = self._keys.of(conversation_id).record
        return values.stored(conversation_id, await self._connections.call("HMGET", key, *values.FIELDS))

    async def _alive(self, conversation_id: str) -> Stored | None:
        found = await self._stored(conversation_id)
        return None if found is None or is_expired(found.record, now=self.now()) else found

    async def _entries(self, conversation_id: str, *which: str | int) -> list[Entry]:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        _, members = await self._run("read", conversation_id, moment_of(self.now()), *which)
        return [values.entry(conversation_id, member) for member in members]

    async def _create(self, conversation: Conversation, *, name: str = "") -> str:
        """Keep the record; returns its birth, a mark that tells this life of the id from earlier ones.

        Listed first, so that a crash in between leaves an entry without a record, which readers drop,
        never a record without an entry. Listed again afterwards, for a reader may have dropped it.
        """
        birth = secrets.token_hex(8)
        now = self.now()
        await self._index.add(conversation.id, conversation.last_activity)
        reply = await self._run(
            "create",
            conversation.id,
            moment_of(now),
            values.native_lifetime(conversation.expires_at, now=now),
            self._keys.changes,
            conversation.id,
            name,
            msgpack.encode(values.record_fields(conversation, birth=birth)),
        )
        if reply[0] == b"exists":
            await self._index.correct(conversation.id)
            raise ConversationExists(conversation.id)
        await self._release(conversation.id, reply[1].decode(), reply[2])
        await self._index.add(conversation.id, conversation.last_activity)
        return birth

    async def _delete(
        self,
        conversation_id: str,
        *,
        expired_by: datetime | None = None,
        expected_revision: int | None = None,
    ) -> Tally:
        """Remove the conversation, then what points at it; returns what went."""
        limit = "" if expired_by is None else moment_of(expired_by)
        named = (self._keys.changes, conversation_id, _revision_text(expected_revision))
        reply = await self._run("delete", conversation_id, limit, *named)
        if reply[0] == b"moved":
            raise _moved_on(conversation_id, expected_revision, reply[1:])
        if reply[0] == b"kept":
            return Tally()
        birth, names, messages, documents = reply[1:]
        sessions = await self._index.remove(
            conversation_id, bound=_binding(conversation_id, birth.decode()), names=names
        )
        return Tally(
            conversations=int(birth != b""),
            messages=int(messages),
            sessions=sessions,
            documents=by_kind(documents),
        )

    async def _release(self, conversation_id: str, birth: str, names: Sequence[bytes]) -> None:
        """Let go the sessions that were bound to an earlier life of this id."""
        for name in names:
            await self._rebind(name.decode(), _binding(conversation_id, birth), "")

    async def _bound(self, name: str) -> tuple[Conversation | None, str]:
        """The conversation that the session is bound to, and the binding as it was seen."""
        seen = await self._connections.call("HGET", self._keys.sessions, name)
        return await self._resolve(name, seen.decode()) if seen else (None, "")

    async def _resolve(self, name: str, seen: str) -> tuple[Conversation | None, str]:
        """What a binding leads to. One that leads nowhere is forgotten."""
        conversation_id, _, birth = seen.partition("/")
        found = await self._stored(conversation_id)
        if found is None or found.birth != birth:
            return None, "" if await self._rebind(name, seen, "") else seen
        return None if is_expired(found.record, now=self.now()) else found.record, seen

    async def _rebind(self, name: str, seen: str, becomes: str) -> bool:
        """Bind the session to something else, unless somebody changed it since it was seen."""
        swap = ABOUT_OWNERS["swap"]
        return bool(await self._connections.run(swap, [self._keys.sessions], name, seen, becomes))

    async def _extend(
        self, mode: str, conversation_id: str, draft: Draft, expected_revision: int | None
    ) -> Appended:
        """Store a turn. On one server the index moves in the same step; on a cluster before and after it."""
        now = self.now()
        head = (*_moments(now), mode, _revision_text(expected_revision))
        if not self._connections.clustered:
            return await self._store(
                conversation_id, draft, head, expected_revision, also=(self._keys.index,)
            )
        activity = draft.activity(now)
        if activity is not None:
            await self._index.touch(conversation_id, activity)
        try:
            appended = await self._store(conversation_id, draft, head, expected_revision)
        except Conflict:
            await self._index.correct(conversation_id)
            raise
        await self._index.follow(appended.conversation)
        return appended

    async def _store(
        self,
        conversation_id: str,
        draft: Draft,
        head: tuple[str, ...],
        expected_revision: int | None,
        *,
        also: Sequence[str] = (),
    ) -> Appended:
        while True:
            look = "1" if draft.contradicts_itself else ""
            sealed, seen = split_head(draft.head)
            heads = (sealed or "", "" if seen is None else f"1{seen}")
            tail = (look, self._keys.changes, conversation_id, *heads, draft.packed())
            status, *reply = await self._run("append", conversation_id, *head, *tail, also=also)
            if status == b"moved":
                raise _moved_on(conversation_id, expected_revision, reply)
            if status == b"part":
                raise TurnPartlyStored(conversation_id)
            record = _record(conversation_id, reply[0])
            if status == b"done":
                return draft.done(record, *reply[1:])
            draft.compare(reply[1])
            if draft.is_known:
                return draft.nothing_new(record)


def _moments(now: datetime) -> tuple[str, str]:
    """Now, and how far ahead of it a conversation is still followed."""
    return moment_of(now), values.moment(to_micros(now) + CLOCK_SKEW // timedelta(microseconds=1))


def _record(conversation_id: str, fields: Sequence[bytes | None]) -> Conversation:
    found = values.stored(conversation_id, fields)
    assert found is not None, "the script answers with a record"
    return found.record


def _binding(conversation_id: str, birth: str) -> str:
    return f"{conversation_id}/{birth}"


def _revision_text(expected: int | None) -> str:
    return "" if expected is None else str(expected)


def _new_lifetime(changes: Changes, now: datetime) -> str:
    """How long the server keeps the keys after these changes; `same` when they say nothing about it."""
    if changes.ttl is UNSET:
        return "same"
    return values.native_lifetime(expiry(changes.ttl, now=now), now=now)


def _moved_on(conversation_id: str, expected: int | None, reply: Sequence[bytes]) -> RevisionConflict:
    assert expected is not None, "only who expects a revision is refused"
    return RevisionConflict(conversation_id, expected=expected, actual=int(reply[0]))
