"""Load windows and store turns, with the spool for outages. Independent of Home Assistant."""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal

from aforesaid.contracts import Appended
from aforesaid.errors import AccessError, AforesaidError, StoreError
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message
from aforesaid.windows import WindowPolicy

from .const import TAG
from .link import Link, Status
from .spool import Spool, Turn

log = logging.getLogger(__name__)

Channel = Literal["voice", "text"]


class History:
    """What agents read and write: the memory when it is available, the spool when it is not."""

    def __init__(self, link: Link, spool: Spool, lifetime: timedelta | None) -> None:
        self.link = link
        self.spool = spool
        self._lifetime = lifetime
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when a turn was stored or queued; return the function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def window(self, owner: str, name: str, policy: WindowPolicy) -> tuple[Message, ...] | None:
        """Return the window of a conversation; None when the memory is unavailable."""
        if self.link.status is not Status.OK:
            return None
        pending = self.spool.messages(owner, name)

        async def load() -> tuple[Message, ...] | None:
            manager = self.link.of(owner)
            context = await manager.load_context(name, policy=policy, pending=pending)
            if not context.report.message_count and not pending:
                context = await manager.first_context([], policy=policy)  # a new one: the notes only
            # A degraded context lacks the log; the session's own contents are better than that.
            return None if context.report.degraded else context.messages

        try:
            return await self.link.call(load)
        except AforesaidError as error:
            log.debug("answering without history: %s", error)
            return None

    async def store(self, owner: str, name: str, messages: Sequence[Message], channel: Channel) -> bool:
        """Store a turn, or queue it; return whether it is stored. Never raise the store's errors."""
        turn = Turn.of(owner, name, channel, messages)
        stored = await self._store_now(turn)
        if not stored:
            await self.spool.add(turn)
        for listener in list(self._listeners):
            listener()
        return stored

    async def _store_now(self, turn: Turn) -> bool:
        if self.link.status is not Status.OK:
            return False
        if self.spool.has(turn.owner, turn.name):
            await self.replay()
            if self.spool.has(turn.owner, turn.name):
                return False
        try:
            await self._append(turn)
        except (StoreError, AccessError) as error:
            log.debug("a turn is queued: %s", error)
            return False
        except AforesaidError as error:
            log.error("a turn cannot be stored: %s", error)  # noqa: TRY400
        return True

    async def replay(self) -> None:
        """Store what is queued."""
        if len(self.spool) and self.link.status is Status.OK:
            await self.spool.replay(self._append)
            for listener in list(self._listeners):
                listener()

    async def _append(self, turn: Turn) -> None:
        async def append() -> None:
            manager = self.link.of(turn.owner)
            appended: Appended = await manager.append(turn.name, turn.contents())
            await self._describe(manager, appended.conversation, turn.channel)

        await self.link.call(append)

    async def _describe(self, manager: ManagerProtocol, record: Conversation, channel: str) -> None:
        """Set tag, channel and lifetime where they differ: at the first turn, and after changed options."""
        if TAG in record.tags and record.ttl == self._lifetime:
            return
        await manager.update_metadata(
            record.id,
            tags=(*(tag for tag in record.tags if tag != TAG), TAG),
            channel=channel,
            ttl=self._lifetime,
            clear=("ttl",) if self._lifetime is None else (),
        )
