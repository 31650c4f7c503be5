"""Records, sessions and documents of one owner."""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeAlias

from msgspec import UNSET, msgpack

from aforesaid.contracts import Document, Entry, Listing, Place, Tally, check_restorable, entries_without_head
from aforesaid.errors import (
    ConversationExists,
    ConversationNotFound,
    DocumentConflict,
    MessageConflict,
    StoreDamaged,
    shown,
)
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Changes, Conversation, expiry, is_expired
from aforesaid.model.lineages import first_sequence, root_of
from aforesaid.stores.redis import values
from aforesaid.stores.redis.conversation_index import ConversationIndex, scan
from aforesaid.stores.redis.log import pack_entries
from aforesaid.stores.redis.owner_connection import (
    OwnerConnection,
    head_values,
    revision_conflict,
    revision_text,
)
from aforesaid.stores.redis.values import Stored, moment_from, moment_of

# Documents in sorted sets: the owner's in their own slot, a conversation's in the slot of its log.
#
# A document is one member, `kind NUL key NUL version:updated_at:data`, with score 0. Names contain no NUL,
# so members sort by kind and then by key.


Run: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs a script by name, on the documents' key."""


class Documents:
    """The documents of an owner or a conversation."""

    def __init__(self, run: Run, now: datetime) -> None:
        self._run = run
        self._now = now

    async def put(self, place: Place, data: bytes, *, expected: int | None) -> Document:
        status, version = await self._call("put_document", _bounds(place), _text(expected), data)
        if status == b"conflict":
            assert expected is not None, "only a caller with an expected version is refused"
            raise DocumentConflict(place.kind, place.key, expected=expected, actual=int(version))
        return place.document(data, version=int(version), updated_at=self._now)

    async def get(self, place: Place) -> Document | None:
        start = _bounds(place)
        _, members = await self._call("read_documents", b"[" + start, b"(" + start[:-1] + b"\1", 1)
        return document_of(members[0], place.conversation_id) if members else None

    async def page(self, listing: Listing) -> list[Document]:
        _, members = await self._call("read_documents", *document_bounds(listing))
        return [document_of(member, listing.conversation_id) for member in members]

    async def kinds(self) -> list[str]:
        _, kinds = await self._call("list_document_kinds")
        return [kind.decode() for kind in kinds]

    async def delete(self, place: Place, *, expected: int | None) -> bool:
        status, version = await self._call("delete_document", _bounds(place), _text(expected))
        if status == b"conflict":
            place.check_version(int(version), expected)
        return int(version) > 0

    async def restore(self, documents: Mapping[Place, Document]) -> None:
        values: list[bytes | str | int] = []
        for place, document in documents.items():
            values += [_bounds(place), document.version, moment_of(document.updated_at), document.data]
        await self._call("restore_documents", *values)

    async def _call(self, script: str, *values: bytes | str | int) -> Any:
        return await self._run(script, moment_of(self._now), *values)


def by_kind(flat: Sequence[Any]) -> dict[str, int]:
    """Parse the counts of `counting.lua`."""
    return {kind.decode(): int(number) for kind, number in zip(flat[::2], flat[1::2], strict=True)}


def _bounds(place: Place) -> bytes:
    """Return the unique prefix of a document's member."""
    # With the NUL at the end, so that no key is a prefix of another.
    return b"%b\0%b\0" % (place.kind.encode(), place.key.encode())


def _text(expected: int | None) -> str:
    return "" if expected is None else str(expected)


def document_bounds(listing: Listing) -> tuple[bytes, bytes, int]:
    """Return the start, the end and the number of the documents in a listing."""
    kind = listing.kind.encode()
    first = b"(%b\0%b\1" % (kind, listing.after.encode()) if listing.after else b"[%b\0" % kind
    return first, b"(%b\1" % kind, listing.limit


def document_of(member: bytes, conversation_id: str | None) -> Document:
    try:
        kind, key, rest = member.split(b"\0", 2)
        version, updated_at, data = rest.split(b":", 2)
        return Document(
            kind=kind.decode(),
            key=key.decode(),
            data=data,
            version=int(version),
            updated_at=moment_from(updated_at),
            conversation_id=conversation_id,
        )
    except (ValueError, OverflowError) as error:
        raise StoreDamaged(f"a stored document is damaged: {shown(member[:200])}") from error


# Sessions: the owner's hash from session name to binding.
#
# A binding is `conversation id/birth`. The birth distinguishes a conversation from an earlier one with the
# same id. The hash is in another cluster slot than the conversations, so a conversation can be deleted
# between two commands. Therefore every writer of a binding reads the record again afterwards, and every
# reader removes a binding without a record.


def binding(conversation_id: str, birth: str) -> str:
    """Return the value that binds a session to this life of a conversation."""
    return f"{conversation_id}/{birth}"


class Sessions:
    """The sessions of one owner."""

    def __init__(self, connection: OwnerConnection) -> None:
        self._connection = connection
        self._key = connection.keys.sessions

    async def resume(
        self,
        name: str,
        fresh: Conversation,
        *,
        active_since: datetime | None,
        create: Callable[[Conversation, str], Awaitable[str]],
        delete: Callable[[str], Awaitable[object]],
    ) -> Conversation:
        """Return the session's conversation; if there is none, create `fresh` and bind the session to it."""
        created = None
        while True:
            bound, seen = await self.find(name)
            if bound is not None and (active_since is None or bound.last_activity >= active_since):
                if created is not None and bound.id != fresh.id:
                    await delete(fresh.id)  # another caller was faster: use its conversation
                return bound
            created = created or await self._begin(name, fresh, create)
            becomes = binding(fresh.id, created.birth)
            if await self._swap(name, seen, becomes):
                await self._resolve(name, becomes)  # removes the binding if `fresh` was deleted meanwhile
                return created.record

    async def _begin(
        self, name: str, fresh: Conversation, create: Callable[[Conversation, str], Awaitable[str]]
    ) -> Stored:
        """Create the session's conversation, or return the one from an earlier attempt with a lost reply."""
        try:
            return Stored(fresh, await create(fresh, name))
        except ConversationExists:
            existing = await self._connection.unexpired(fresh.id)
            names = self._connection.keys.of(fresh.id).names
            is_member = await self._connection.call("SISMEMBER", names, name)
            if existing is None or existing.record.created_at != fresh.created_at or not is_member:
                raise
            return existing

    async def find(self, name: str) -> tuple[Conversation | None, str]:
        """Return the session's conversation and the binding that was read."""
        seen = await self._connection.call("HGET", self._key, name)
        return await self._resolve(name, seen.decode()) if seen else (None, "")

    async def bind(self, name: str, conversation_id: str) -> None:
        now = moment_of(self._connection.now())
        _, birth = await self._connection.run("bind_session", conversation_id, now, name)
        becomes = binding(conversation_id, birth.decode())
        await self._connection.call("HSET", self._key, name, becomes)
        # A conversation that was deleted between the two commands would leave the name behind for good: an
        # owner without conversations is not swept.
        bound, _ = await self._resolve(name, becomes)
        if bound is None:
            raise ConversationNotFound(conversation_id)

    async def unbind(self, name: str) -> None:
        await self._connection.call("HDEL", self._key, name)

    async def bound_to(self, conversation_id: str) -> list[str]:
        """Return the sessions that are bound to the conversation, sorted."""
        found = await self._connection.unexpired(conversation_id)
        if found is None:
            raise ConversationNotFound(conversation_id)
        names = await self._connection.call("SMEMBERS", self._connection.keys.of(conversation_id).names)
        if not names:
            return []
        # The conversation's set of names may be outdated; the owner's hash is authoritative.
        bindings = await self._connection.call("HMGET", self._key, *names)
        wanted = binding(conversation_id, found.birth).encode()
        return sorted(name.decode() for name, to in zip(names, bindings, strict=True) if to == wanted)

    async def count_bound(self, names: Sequence[bytes], to: str) -> int:
        """Count those of these sessions that have this binding."""
        bindings = await self._connection.call("HMGET", self._key, *names) if names else []
        return int(bindings.count(to.encode()))

    async def count(self) -> int:
        return int(await self._connection.call("HLEN", self._key))

    async def release(self, conversation_id: str, birth: str, names: Sequence[bytes]) -> None:
        """Unbind the sessions of an earlier conversation with this id."""
        for name in names:
            await self._swap(name.decode(), binding(conversation_id, birth), "")

    async def purge(self) -> None:
        """Remove the bindings to missing conversations."""
        async for bindings in scan(self._connection, "HSCAN", self._key):
            for name, bound in bindings:
                await self._resolve(name.decode(), bound.decode())

    async def clear(self) -> None:
        await self._connection.call("UNLINK", self._key)

    async def _resolve(self, name: str, seen: str) -> tuple[Conversation | None, str]:
        """Return the conversation of a binding. Remove a binding to a missing conversation."""
        conversation_id, _, birth = seen.partition("/")
        found = await self._connection.stored(conversation_id)
        if found is None or found.birth != birth:
            return None, "" if await self._swap(name, seen, "") else seen
        return None if is_expired(found.record, now=self._connection.now()) else found.record, seen

    async def _swap(self, name: str, seen: str, becomes: str) -> bool:
        """Replace a binding, unless it has changed since it was read."""
        return bool(await self._connection.run_for_owner("swap_session", [self._key], name, seen, becomes))


# Records of conversations: create, update, delete, count, restore.


class Records:
    """One script changes a conversation; the owner's index and sessions are updated before and after it."""

    def __init__(self, connection: OwnerConnection, index: ConversationIndex, sessions: Sessions) -> None:
        self._connection = connection
        self._index = index
        self._sessions = sessions

    async def create(self, conversation: Conversation, *, session: str = "") -> str:
        """Store the record; return its birth, which distinguishes it from earlier conversations with the same
        id.
        """
        connection = self._connection
        birth = secrets.token_hex(8)
        now = connection.now()
        await self._register_branch(conversation)
        # The index comes first: a crash in between leaves an entry without a record, which readers remove,
        # but never a record without an entry.
        await self._index.add(conversation.id, conversation.last_activity)
        reply = await connection.change(
            "create",
            conversation.id,
            moment_of(now),
            values.server_expiry(conversation.expires_at, now=now),
            connection.keys.changes,
            conversation.id,
            session,
            msgpack.encode(values.record_fields(conversation, birth=birth)),
        )
        if reply[0] == b"exists":
            await self._index.correct(conversation.id)
            raise ConversationExists(conversation.id)
        await self._sessions.release(conversation.id, reply[1].decode(), reply[2])
        # Again, because a reader may have removed the entry before the record was there.
        await self._index.add(conversation.id, conversation.last_activity)
        return birth

    async def _register_branch(self, record: Conversation) -> None:
        """Keep the ancestors of a branch, and list it with its family, before it is stored.

        A crash in between leaves an entry without a record, which readers remove.
        """
        for ancestor in record.lineage:
            with suppress(ConversationNotFound):
                await self._connection.run("hold", ancestor.conversation_id)
        if record.lineage:
            root = root_of(record.id, record.lineage)
            await self._connection.call("HSET", self._connection.keys.branches, record.id, root)

    async def family(self, root_id: str) -> list[Conversation]:
        """Return the records of all branches with this root, expired or not."""
        key = self._connection.keys.branches
        listed = await self._connection.call("HGETALL", key)
        pairs = zip(listed[::2], listed[1::2], strict=True) if isinstance(listed, list) else listed.items()
        ids = sorted(branch.decode() for branch, root in pairs if root.decode() == root_id)
        found: list[Conversation] = []
        for one, stored in await self._index.stored(ids) if ids else ():
            if stored is None or not stored.record.lineage:
                await self._connection.call("HDEL", key, one)
            elif root_of(one, stored.record.lineage) == root_id:
                found.append(stored.record)
        return sorted(found, key=lambda record: record.id)

    async def update(
        self, conversation_id: str, changes: Changes, expected_revision: int | None
    ) -> Conversation:
        connection = self._connection
        now = connection.now()
        status, *reply = await connection.change(
            "update",
            conversation_id,
            moment_of(now),
            revision_text(expected_revision),
            connection.keys.changes,
            conversation_id,
            _changed_expiry(changes, now),
            msgpack.encode(values.change_fields(changes, now=now)),
        )
        if status == b"conflict":
            raise revision_conflict(conversation_id, expected_revision, reply)
        return values.record(conversation_id, reply[0])

    async def delete(
        self,
        conversation_id: str,
        *,
        expired_by: datetime | None = None,
        expected_revision: int | None = None,
    ) -> Tally:
        """Remove the conversation, then its index entry and sessions; return the counts."""
        limit = "" if expired_by is None else moment_of(expired_by)
        named = (self._connection.keys.changes, conversation_id, revision_text(expected_revision))
        reply = await self._connection.change("delete", conversation_id, limit, *named)
        if reply[0] == b"conflict":
            raise revision_conflict(conversation_id, expected_revision, reply[1:])
        if reply[0] == b"unexpired":
            return Tally()
        birth, names, messages, documents = reply[1:]
        sessions = await self._index.remove(
            conversation_id, bound=binding(conversation_id, birth.decode()), names=names
        )
        return _tally(birth, messages, sessions, documents)

    async def tally(self, conversation_id: str) -> Tally:
        """Count what `delete` would remove."""
        birth, messages, documents, names = await self._connection.run("tally", conversation_id)
        sessions = await self._sessions.count_bound(names, binding(conversation_id, birth.decode()))
        return _tally(birth, messages, sessions, documents)

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        """Store the record and the entries exactly as given."""
        connection = self._connection
        entries, head = entries_without_head(entries)
        record, restored = check_restorable(conversation, entries)
        now = connection.now()
        packed = pack_entries(restored.values())
        await self._register_branch(record)
        await self._index.add(record.id, record.last_activity)
        status, *reply = await connection.change(
            "restore",
            record.id,
            moment_of(now),
            values.moment_text(record.expires_at),
            values.restored_server_expiry(record.expires_at, now=now),
            connection.keys.changes,
            record.id,
            secrets.token_hex(8),
            values.score_text(to_micros(record.last_activity)),
            msgpack.encode(values.public_fields(record)),
            msgpack.encode(values.absent_fields(record)),
            packed,
            *head_values(head),
            revision_text(expected_revision),
            first_sequence(record.lineage),
        )
        if status == b"conflict":
            await self._index.correct(record.id)
            wanted = record.revision if expected_revision is None else expected_revision
            raise revision_conflict(record.id, wanted, reply)
        if status == b"taken":
            await self._index.correct(record.id)
            raise MessageConflict(record.id, reply[0].decode())
        await self._sessions.release(record.id, reply[0].decode(), reply[1])
        await self._index.correct(record.id)


def _tally(birth: bytes, messages: bytes, sessions: int, documents: Sequence[bytes]) -> Tally:
    return Tally(
        conversations=int(birth != b""),
        messages=int(messages),
        sessions=sessions,
        documents=by_kind(documents),
    )


def _changed_expiry(changes: Changes, now: datetime) -> str:
    """Return the server-side expiry after these changes; `same` if they do not concern it."""
    if changes.ttl is UNSET:
        return "same"
    return values.server_expiry(expiry(changes.ttl, now=now), now=now)
