"""What all connections of a process share: feeds, turns, who is here, and the clock that looks after them.

Below: feeds, turns, the gate. Above: connections, the handler, the application. A server makes one, opens
and closes it with the application, and drains it before it ends.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from aforesaid._internal.deadlines import ended
from aforesaid.errors import AccessError, AforesaidError
from aforesaid.memory.manager import ConversationManager
from aforesaid.protocol.live import CloseCode, Outgoing
from aforesaid.server.auth.callers import Caller
from aforesaid.server.limits import ConcurrencyLimit, Limits
from aforesaid.server.live.feeds import Feeds
from aforesaid.server.live.limits import LiveLimits
from aforesaid.server.live.speech import Transcribe
from aforesaid.server.live.turns import Assistant, Turns
from aforesaid.telemetry import Telemetry, describe, telemetry

log = logging.getLogger("aforesaid.server.live")

TICK_SECONDS = 0.25
"""How often connections are looked after, or more often where a limit is shorter."""


class RequestAuthenticator(Protocol):
    """Who knows whom to let in: the server's gate."""

    async def authenticate(self, headers: Mapping[bytes, bytes]) -> Caller: ...


class Peer(Protocol):
    """A connection, as the room sees it."""

    @property
    def caller(self) -> Caller | None: ...

    @property
    def waiting(self) -> int: ...

    def tick(self) -> None: ...

    async def recheck(self) -> None: ...

    def mention(self, frame: Outgoing) -> None: ...

    def end(self, code: int, reason: str = "") -> None: ...


class Services(Protocol):
    """Who serves a guest: made by the application, which knows its memory and its settings."""

    def manager(self, caller: Caller, owner: str) -> ConversationManager: ...

    def assistant(self, manager: ConversationManager) -> Assistant: ...

    def transcribe(self, manager: ConversationManager) -> Transcribe:
        """Raises `TranscriberUnavailable` where nobody listens."""
        ...

    async def note_refusal(self, action: str, error: AccessError, *, source: str) -> None:
        """Write a refusal to the audit trail, where there is one."""
        ...


class Hub:
    """Everybody who is connected here."""

    def __init__(
        self,
        services: Services,
        authenticator: RequestAuthenticator,
        limits: LiveLimits | None = None,
        *,
        rates: Limits | None = None,
        concurrency: ConcurrencyLimit | None = None,
        metrics: Telemetry = telemetry,
    ) -> None:
        self.services = services
        self.authenticator = authenticator
        self.limits = limits or LiveLimits()
        self.rates = rates or Limits({})
        """Shared with HTTP: a question costs the same, whichever way it comes."""
        self.feeds = Feeds(self.limits)
        self.turns = Turns(self.feeds)
        self._peers: set[Peer] = set()
        self._strangers: dict[Peer, None] = {}
        """Connections that were not let in yet, the oldest first, and some that were let in since."""
        self._left = asyncio.Event()
        self._concurrency = concurrency or ConcurrencyLimit(self.limits.connections_per_key)
        self._present: dict[tuple[str, str], set[Peer]] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self.is_draining = False
        self._measured_by(metrics)

    def _measured_by(self, metrics: Telemetry) -> None:
        def waiting() -> list[int]:
            return [peer.waiting for peer in self._peers]

        metrics.gauge("aforesaid_live_connections", "", lambda: float(len(self._peers)))
        metrics.gauge("aforesaid_live_feeds", "", lambda: float(len(self.feeds)))
        metrics.gauge("aforesaid_live_turns", "", lambda: float(len(self.turns)))
        metrics.gauge("aforesaid_live_queued", "", lambda: float(sum(waiting())))
        metrics.gauge("aforesaid_live_queue_longest", "", lambda: float(max(waiting(), default=0)))

    # Coming and going

    def enter(self, peer: Peer) -> None:
        self._peers.add(peer)
        self._strangers[peer] = None
        if len(self._strangers) > self.limits.unknown_connections:
            self._end_oldest_stranger()
        if not self._keepers:
            self._keepers = [
                asyncio.create_task(self._keep(), name="aforesaid-live-keeper"),
                asyncio.create_task(self._recheck(), name="aforesaid-live-keys"),
            ]

    def _end_oldest_stranger(self) -> None:
        """Make room for another connection: without a key nobody keeps many open."""
        self._strangers = {peer: None for peer in self._strangers if peer.caller is None}
        if len(self._strangers) > self.limits.unknown_connections:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.end(CloseCode.TRY_LATER, "too many connections have said no hello")

    @property
    def is_full(self) -> bool:
        return len(self._peers) >= self.limits.connections

    def admit(self, caller: Caller) -> None:
        """Count a connection under its key. Raises `TooManyRequests`."""
        self._concurrency.acquire(caller.name)

    def leave(self, peer: Peer) -> None:
        """Forget a connection. Its turns go on."""
        if peer not in self._peers:
            return
        self._peers.discard(peer)
        self._strangers.pop(peer, None)
        if peer.caller is not None:
            self._concurrency.release(peer.caller.name)
        if not self._peers:
            self._left.set()

    # Who is in which conversation

    def arrive(self, owner: str, conversation_id: str, peer: Peer) -> None:
        self._present.setdefault((owner, conversation_id), set()).add(peer)

    def depart(self, owner: str, conversation_id: str, peer: Peer) -> None:
        present = self._present.get((owner, conversation_id), set())
        present.discard(peer)
        if not present:
            self._present.pop((owner, conversation_id), None)

    def is_shared(self, owner: str, conversation_id: str) -> bool:
        """Whether more than one watches the conversation, in this process."""
        return len(self._present.get((owner, conversation_id), ())) > 1

    def mention(self, owner: str, conversation_id: str, frame: Outgoing, *, but: Peer) -> None:
        """Tell the others who watch the conversation, in this process."""
        for peer in tuple(self._present.get((owner, conversation_id), ())):
            if peer is not but:
                peer.mention(frame)

    # Looking after them

    async def _keep(self) -> None:
        limits = self.limits
        tick = min(TICK_SECONDS, limits.stall_seconds, limits.hello_seconds)
        if limits.heartbeat_seconds:
            tick = min(tick, limits.heartbeat_seconds / 2)
        while True:
            await asyncio.sleep(tick)
            for peer in tuple(self._peers):
                peer.tick()

    async def _recheck(self) -> None:
        """Look at keys again. Apart from the rest: a store that is slow holds up no heartbeat."""
        while True:
            await asyncio.sleep(self.limits.recheck_seconds)
            await _rechecked(tuple(self._peers))

    # The end

    async def drain(self) -> None:
        """Take nothing more on, let answers come to their end, then send everybody away."""
        self.is_draining = True
        await self.turns.drain(self.limits.drain_seconds)
        await self._send_away()

    async def _send_away(self) -> None:
        if not self._peers:
            return
        self._left.clear()
        for peer in tuple(self._peers):
            peer.end(CloseCode.RESTARTING, "the server is restarting")
        try:
            await asyncio.wait_for(self._left.wait(), timeout=max(self.limits.drain_seconds, 1.0))
        except TimeoutError:
            log.warning("%d connections did not take their leave", len(self._peers))

    async def close(self) -> None:
        """Let go of everything. Turns that are still under way are given up."""
        self.is_draining = True
        keepers, self._keepers = self._keepers, []
        await ended(*keepers)
        await self.turns.drain(0)
        await self.feeds.close()


async def _rechecked(peers: Iterable[Peer]) -> None:
    """Look at keys again. A connection whose key cannot be verified ends, and may come back later."""
    for peer in peers:
        try:
            await peer.recheck()
        except AccessError:
            peer.end(CloseCode.NOT_AUTHENTICATED, "the key has ended")
        except AforesaidError as error:
            log.warning("a key cannot be looked at again: %s", describe(error))
            peer.end(CloseCode.TRY_LATER, "the key cannot be verified now")
        except Exception:  # the edge: what one key meets with must not leave all others unwatched
            log.exception("a key could not be looked at again")
