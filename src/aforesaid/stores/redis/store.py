"""One owner's view of the server. The scripts implement the rules of `model.conversations`."""

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
from aforesaid.stores.redis.conversation_index import Index, scan
from aforesaid.stores.redis.documents import Documents, by_kind
from aforesaid.stores.redis.keys import OwnerKeys
from aforesaid.stores.redis.scripts import CONVERSATION_SCRIPTS, OWNER_DOCUMENT_SCRIPTS, OWNER_SCRIPTS
from aforesaid.stores.redis.turns import Draft, pack_entries, pack_members
from aforesaid.stores.redis.values import Stored, moment_of
from aforesaid.stores.redis.watch import watch_channel

if TYPE_CHECKING:
    from aforesaid.stores.redis.backend import RedisBackend
    from aforesaid.stores.redis.connections import Connections


class RedisStore(DocumentChecks):
    """One script changes a conversation; the owner's index and sessions are updated before and after it."""

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
        found = await self._unexpired(parse_uuid(conversation_id, field="conversation_id"))
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
            _changed_expiry(changes, now),
            msgpack.encode(values.change_fields(changes, now=now)),
        )
        if status == b"moved":
            raise _revision_conflict(conversation_id, expected_revision, reply)
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
        created = None
        while True:
            bound, seen = await self._find_session(name)
            if bound is not None and (active_since is None or bound.last_activity >= active_since):
                if created is not None and bound.id != fresh.id:
                    await self._delete(fresh.id)  # another caller was faster: use its conversation
                return bound
            created = created or await self._begin(name, fresh)
            if await self._rebind(name, seen, _binding(fresh.id, created.birth)):
                return created.record

    async def _begin(self, name: str, fresh: Conversation) -> Stored:
        """Create the session's conversation, or return the one from an earlier attempt with a lost reply."""
        try:
            return Stored(fresh, await self._create(fresh, name=name))
        except ConversationExists:
            existing = await self._unexpired(fresh.id)
            is_member = await self._connections.call("SISMEMBER", self._keys.of(fresh.id).names, name)
            if existing is None or existing.record.created_at != fresh.created_at or not is_member:
                raise
            return existing

    async def session(self, session_id: str) -> Conversation | None:
        bound, _ = await self._find_session(parse_name(session_id, field="session_id"))
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
        found = await self._unexpired(conversation_id)
        if found is None:
            raise ConversationNotFound(conversation_id)
        names = await self._connections.call("SMEMBERS", self._keys.of(conversation_id).names)
        if not names:
            return []
        # The set of names may be outdated; the sessions are authoritative.
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
        encode_message(message)  # raises for a message that cannot be stored
        while True:
            member = await self._member(conversation_id, replaced_id(message))
            if not member:
                raise MessageNotFound(conversation_id, replaced_id(message))
            done = await self._replace(conversation_id, member, message, expected_revision, head)
            if done is not None:
                return done

    async def _member(self, conversation_id: str, message_id: str) -> bytes:
        """Return the log member of the message with this id; empty if it is missing."""
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
        """Replace the member that was read; return None if it has changed since."""
        old = values.entry(conversation_id, member)
        new = replacement_message(old, message)
        status, *reply = await self._run(
            "replace",
            conversation_id,
            moment_of(self.now()),
            _revision_text(expected_revision),
            self._keys.changes,
            conversation_id,
            member,
            values.position_text(old.position),
            moment_of(old.stored_at),
            encode_message(new),
            "1" if same_content(old, message) else "",
            head or "",
        )
        if status == b"moved":
            raise _revision_conflict(conversation_id, expected_revision, reply)
        if status == b"changed":
            return None
        return replaced_entry(old, new, revision=int(reply[0]))

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
        packed = pack_members(entries)
        _, exchanged = await self._run("reseal", conversation_id, moment_of(self.now()), packed)
        return int(exchanged)

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        now = moment_of(self.now())
        _, exchanged = await self._run("exchange_head", conversation_id, now, old or "", new)
        return bool(exchanged)

    # Restoring

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        entries, head = entries_without_head(entries)
        record, restored = check_restorable(conversation, entries)
        now = self.now()
        packed = pack_entries(restored.values())
        await self._index.add(record.id, record.last_activity)
        status, *reply = await self._run(
            "restore",
            record.id,
            moment_of(now),
            values.moment_text(record.expires_at),
            values.restored_server_expiry(record.expires_at, now=now),
            self._keys.changes,
            record.id,
            secrets.token_hex(8),
            values.score_text(to_micros(record.last_activity)),
            msgpack.encode(values.public_fields(record)),
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
        documents = self._documents(place.conversation_id)
        if place.conversation_id is not None:
            return await documents.put(place, data, expected=expected)
        # Register the owner first, as for a conversation, and again for a new document, because a reader may
        # have removed the registration.
        await self._index.register_owner()
        document = await documents.put(place, data, expected=expected)
        if document.version == 1:
            await self._index.register_owner()
        return document

    async def _get_document(self, place: Place) -> Document | None:
        return await self._documents(place.conversation_id).get(place)

    async def _list_documents(self, listing: Listing) -> list[Document]:
        return await self._documents(listing.conversation_id).page(listing)

    async def _document_kinds(self, holder: str | None) -> list[str]:
        return await self._documents(holder).kinds()

    async def _delete_document(self, place: Place, expected: int | None) -> bool:
        deleted = await self._documents(place.conversation_id).delete(place, expected=expected)
        if deleted and place.conversation_id is None:
            await self._index.unregister_if_empty()
        return deleted

    async def _restore_documents(self, documents: Mapping[Place, Document]) -> None:
        holder = next(iter(documents)).conversation_id
        if holder is None:
            await self._index.register_owner()
        await self._documents(holder).restore(documents)
        if holder is None:
            await self._index.register_owner()

    def _documents(self, conversation_id: str | None) -> Documents:
        """Return the documents of a conversation or of the owner."""
        if conversation_id is None:
            return Documents(self._run_owner_script, self.now())
        return Documents(partial(self._run_conversation_script, conversation_id), self.now())

    async def _run_owner_script(self, script: str, *values: Any) -> Any:
        keys = [self._keys.documents]
        return await self._connections.run(OWNER_DOCUMENT_SCRIPTS[script], keys, *values)

    async def _run_conversation_script(self, conversation_id: str, script: str, *values: Any) -> Any:
        return await self._run(script, conversation_id, *values)

    # Retention

    async def purge_expired(self) -> int:
        return await self.purge(self.now())

    async def purge(self, now: datetime) -> int:
        """Remove conversations expired by then; return their number, without those that the server
        expired."""
        removed = 0
        async for conversation_ids in self._index.every_id():
            for one, found in await self._index.stored(conversation_ids):
                if found is None or is_expired(found.record, now=now):
                    removed += (await self._delete(one, expired_by=now)).conversations
        async for bindings in scan(self._connections, "HSCAN", self._keys.sessions):
            for name, binding in bindings:
                await self._resolve(name.decode(), binding.decode())
        await self._index.unregister_if_empty()
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
        removed = Tally(documents=await self._count_documents("remove"))
        async for conversation_ids in self._index.every_id():
            for one in conversation_ids:  # damaged records too
                removed += await self._delete(one)
        await self._connections.call("UNLINK", self._keys.sessions)
        await self._index.unregister_if_empty()
        return removed

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
        script = OWNER_SCRIPTS["count_documents"]
        return by_kind(await self._connections.run(script, [self._keys.documents], how))

    async def holds_anything(self, *, ignored_kinds: Collection[str] = ()) -> bool:
        """Return whether this owner has a conversation, expired or not, or a document of a kind outside
        `beside`."""
        if any(kind not in ignored_kinds for kind in await self._document_kinds(None)):
            return True
        return await self._index.has_conversations()

    # Watching

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Watch the owner's conversations. Expiry by the server is not reported."""
        if conversation_id is not None:
            conversation_id = parse_uuid(conversation_id, field="conversation_id")
        return watch_channel(self._connections, self._keys.changes, conversation_id)

    # Helpers

    @property
    def _connections(self) -> "Connections":
        return self._backend.connections

    @property
    def _index(self) -> Index:
        return Index(self._connections, self._keys, self._owner)

    async def _run(self, script: str, conversation_id: str, *arguments: Any, also: Sequence[str] = ()) -> Any:
        """Run a script on a conversation. Raise `ConversationNotFound`."""
        keys = [*self._keys.of(conversation_id), *also]
        reply = await self._connections.run(CONVERSATION_SCRIPTS[script], keys, *arguments)
        if reply[0] == b"missing":
            raise ConversationNotFound(conversation_id)
        return reply

    async def _stored(self, conversation_id: str) -> Stored | None:
        key = self._keys.of(conversation_id).record
        return values.stored(conversation_id, await self._connections.call("HMGET", key, *values.FIELDS))

    async def _unexpired(self, conversation_id: str) -> Stored | None:
        found = await self._stored(conversation_id)
        return None if found is None or is_expired(found.record, now=self.now()) else found

    async def _entries(self, conversation_id: str, *which: str | int) -> list[Entry]:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        _, members = await self._run("read", conversation_id, moment_of(self.now()), *which)
        return [values.entry(conversation_id, member) for member in members]

    async def _create(self, conversation: Conversation, *, name: str = "") -> str:
        """Store the record; return its birth, which distinguishes it from earlier conversations with the same
        id.

        Add it to the index first: a crash in between leaves an entry without a record, which readers remove,
        but never a record without an entry. Add it again afterwards, because a reader may have removed the
        entry.
        """
        birth = secrets.token_hex(8)
        now = self.now()
        await self._index.add(conversation.id, conversation.last_activity)
        reply = await self._run(
            "create",
            conversation.id,
            moment_of(now),
            values.server_expiry(conversation.expires_at, now=now),
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
        """Remove the conversation, then its index entry and sessions; return the counts."""
        limit = "" if expired_by is None else moment_of(expired_by)
        named = (self._keys.changes, conversation_id, _revision_text(expected_revision))
        reply = await self._run("delete", conversation_id, limit, *named)
        if reply[0] == b"moved":
            raise _revision_conflict(conversation_id, expected_revision, reply[1:])
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
        """Unbind the sessions of an earlier conversation with this id."""
        for name in names:
            await self._rebind(name.decode(), _binding(conversation_id, birth), "")

    async def _find_session(self, name: str) -> tuple[Conversation | None, str]:
        """Return the session's conversation and the binding that was read."""
        seen = await self._connections.call("HGET", self._keys.sessions, name)
        return await self._resolve(name, seen.decode()) if seen else (None, "")

    async def _resolve(self, name: str, seen: str) -> tuple[Conversation | None, str]:
        """Return the conversation of a binding. Remove a binding to a missing conversation."""
        conversation_id, _, birth = seen.partition("/")
        found = await self._stored(conversation_id)
        if found is None or found.birth != birth:
            return None, "" if await self._rebind(name, seen, "") else seen
        return None if is_expired(found.record, now=self.now()) else found.record, seen

    async def _rebind(self, name: str, seen: str, becomes: str) -> bool:
        """Replace a binding, unless it has changed since it was read."""
        swap = OWNER_SCRIPTS["swap"]
        return bool(await self._connections.run(swap, [self._keys.sessions], name, seen, becomes))

    async def _extend(
        self, mode: str, conversation_id: str, draft: Draft, expected_revision: int | None
    ) -> Appended:
        """Store a turn. On one server the script also updates the index; on a cluster it is updated before
        and after."""
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
            only_compare = "1" if draft.has_conflict else ""
            sealed, seen = split_head(draft.head)
            heads = (sealed or "", "" if seen is None else f"1{seen}")
            tail = (only_compare, self._keys.changes, conversation_id, *heads, draft.packed())
            status, *reply = await self._run("append", conversation_id, *head, *tail, also=also)
            if status == b"moved":
                raise _revision_conflict(conversation_id, expected_revision, reply)
            if status == b"part":
                raise TurnPartlyStored(conversation_id)
            record = _record(conversation_id, reply[0])
            if status == b"done":
                return draft.done(record, *reply[1:])
            draft.compare(reply[1])
            if draft.is_known:
                return draft.unchanged(record)


def _moments(now: datetime) -> tuple[str, str]:
    """Return the current time, and the latest last-message time that a new message may follow."""
    return moment_of(now), values.moment(to_micros(now) + CLOCK_SKEW // timedelta(microseconds=1))


def _record(conversation_id: str, fields: Sequence[bytes | None]) -> Conversation:
    found = values.stored(conversation_id, fields)
    assert found is not None, "the script answers with a record"
    return found.record


def _binding(conversation_id: str, birth: str) -> str:
    return f"{conversation_id}/{birth}"


def _revision_text(expected: int | None) -> str:
    return "" if expected is None else str(expected)


def _changed_expiry(changes: Changes, now: datetime) -> str:
    """Return the server-side expiry after these changes; `same` if they do not concern it."""
    if changes.ttl is UNSET:
        return "same"
    return values.server_expiry(expiry(changes.ttl, now=now), now=now)


def _revision_conflict(
    conversation_id: str, expected: int | None, reply: Sequence[bytes]
) -> RevisionConflict:
    assert expected is not None, "only a caller with an expected revision is refused"
    return RevisionConflict(conversation_id, expected=expected, actual=int(reply[0]))
