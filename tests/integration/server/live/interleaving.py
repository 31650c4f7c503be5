"""A store whose calls other writers interrupt, and a model of a client that watches one conversation."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from aforesaid.contracts import ConversationStore
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from tests.integration.server.live.parts import Client, HubSetup

Between = Callable[[str], Awaitable[None]]
"""Called with the name of the method after the store has done its work, before the caller gets the result."""

INTERRUPTED = ("get", "tail", "page", "entry", "append", "update", "replace")


class InterruptedStore:
    """A store that calls `between` after each of its methods has done its work."""

    def __init__(self, store: ConversationStore, between: Between) -> None:
        self._store = store
        self.between = between

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._interrupted(name, found) if name in INTERRUPTED else found

    def _interrupted(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*values: Any, **named: Any) -> Any:
            result = await method(*values, **named)
            await self.between(name)
            return result

        return call


def interrupt(hub: HubSetup, between: Between) -> None:
    """Make the server of this room use interrupted stores; `room.erin` stays as it is."""

    def manager(_: object, owner: str, participant: str | None) -> ConversationManager:
        found = hub.memory.of(owner)
        found.store = InterruptedStore(found.store, between)
        return found

    hub.live.services.manager = manager  # type: ignore[method-assign, assignment]


class Reader:
    """What a client has of one conversation after the frames that it received."""

    def __init__(self, ready: dict[str, Any]) -> None:
        self.conversation_id: str = ready["conversation"]["id"]
        self.place: dict[str, int] = ready["place"]
        self.held: dict[int, str] = {}
        self.delivered: list[int] = []
        self.first = 0
        """A client that starts over is shown the latest messages, not all."""

    def take(self, frame: dict[str, Any]) -> None:
        entries = frame.get("entries", ())
        if frame["type"] == "reset":
            self.held.clear()
            self.delivered.clear()
            self.first = min((entry["sequence"] for entry in entries), default=0)
        if frame["type"] in ("messages", "answer.done", "reset"):
            self.delivered.extend(entry["sequence"] for entry in entries)
        self.held.update({entry["sequence"]: str(entry["message"]["content"]) for entry in entries})
        self.place = frame.get("place") or self.place

    async def has_all(self, hub: HubSetup) -> bool:
        """Whether the client has what is stored, from the first message that it was shown."""
        entries = await hub.erin.store.page(self.conversation_id, limit=1000)
        stored = {entry.sequence: str(entry.message.content) for entry in entries}
        return _from(self.first, self.held) == _from(self.first, stored)

    async def converges(self, client: Client, hub: HubSetup) -> None:
        while not await self.has_all(hub):
            self.take(await client.next())
        assert self.delivered == sorted(set(self.delivered))


def _from(first: int, messages: dict[int, str]) -> dict[int, str]:
    return {sequence: content for sequence, content in messages.items() if sequence >= first}


class Writers:
    """Other writers, who write at random in the middle of the server's work, a bounded number of times."""

    def __init__(self, hub: HubSetup, chance: random.Random, *, writes: int) -> None:
        self.conversation_id = ""
        self._hub = hub
        self._chance = chance
        self._left = writes
        self._written = 0

    def stop(self) -> None:
        self._left = 0

    async def __call__(self, name: str) -> None:
        if self._left and self.conversation_id and self._chance.random() < 0.4:
            self._left -= 1
            await self.write()
            if name == "append" and self._chance.random() < 0.5:  # never within a look, which holds a lock
                await self._hub.live.feeds.refresh(self._hub.owner, self.conversation_id)
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)

    async def write(self) -> None:
        erin, conversation_id = self._hub.erin, self.conversation_id
        match self._chance.randrange(7):
            case 0 | 1 | 2:
                await erin.append(conversation_id, self._turn())
            case 3 | 4 | 5:
                await self._redact()
            case 6:
                await erin.mark_read(conversation_id)

    def _turn(self) -> list[Message]:
        self._written += 1
        names = [f"w{self._written}.{number}" for number in range(self._chance.randrange(1, 4))]
        return [Message(role="user", content=name, message_id=name) for name in names]

    async def _redact(self) -> None:
        erin, conversation_id = self._hub.erin, self.conversation_id
        ids = [each.message_id for each in await erin.messages(conversation_id) if each.message_id]
        if ids:
            # Mostly the latest, which may still be on its way to the client.
            await erin.redact(conversation_id, self._chance.choice([ids[-1], ids[-2:][0], *ids]))
