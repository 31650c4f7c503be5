"""Sessions: the owner's hash from session name to binding.

A binding is `conversation id/birth`. The birth distinguishes a conversation from an earlier one with the same
id. The hash is in another cluster slot than the conversations, so a conversation can be deleted between two
commands. Therefore every writer of a binding reads the record again afterwards, and every reader removes a
binding without a record.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from aforesaid.errors import ConversationExists, ConversationNotFound
from aforesaid.model.conversations import Conversation, is_expired
from aforesaid.stores.redis.conversation_index import scan
from aforesaid.stores.redis.owner_connection import OwnerConnection
from aforesaid.stores.redis.values import Stored, moment_of


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
