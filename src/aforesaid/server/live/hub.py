"""The hub: state that all WebSocket connections of a process share.

It has the feeds, the turns, the watchers of each conversation, and background tasks for heartbeats and key
checks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from aforesaid._internal.tasks import ended, start_background
from aforesaid.errors import AccessError, AforesaidError
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.protocol.live import AudioStart, CloseCode
from aforesaid.protocol.live_base import Outgoing
from aforesaid.server.auth.keys import Caller
from aforesaid.server.limits import ConcurrencyLimit, Limits, LiveLimits
from aforesaid.server.live.feeds import Feeds
from aforesaid.server.live.notices import Notices, NotifiedClient
from aforesaid.server.live.presence import Presences, Self
from aforesaid.server.live.turns import Assistant, Turns
from aforesaid.telemetry import Telemetry, describe, telemetry

log = logging.getLogger("aforesaid.server.live")

Transcribe = Callable[[bytes, AudioStart], Awaitable[Message]]
"""Transcribes audio to the message to store. `AudioStart` has the encoding."""

# Interval of time limit checks, unless a limit is shorter.
TICK_SECONDS = 0.25


class RequestAuthenticator(Protocol):
    """Authenticates by request headers."""

    async def authenticate(self, headers: Mapping[bytes, bytes]) -> Caller: ...


class Peer(Protocol):
    """A connection, as the hub uses it."""

    @property
    def caller(self) -> Caller | None: ...

    @property
    def waiting(self) -> int: ...

    @property
    def self_shown(self) -> Self | None: ...

    @property
    def typing_name(self) -> str: ...

    @property
    def notified(self) -> NotifiedClient | None: ...

    def tick(self) -> None: ...

    async def recheck(self) -> None: ...

    def notify(self, frame: Outgoing) -> None: ...

    def end(self, code: int, reason: str = "") -> None: ...


class Services(Protocol):
    """Managers, assistants and transcribers, provided by the application."""

    def manager(self, caller: Caller, owner: str, participant: str | None) -> ConversationManager: ...

    def assistant(self, manager: ConversationManager) -> Assistant: ...

    def transcribe(self, manager: ConversationManager) -> Transcribe:
        """Return the transcriber. Raises `TranscriberUnavailable`."""
        ...

    async def note_refusal(self, action: str, error: AccessError, *, source: str) -> None:
        """Write a refusal to the audit trail, if there is one."""
        ...


class Hub:
    """All connections of a process."""

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
        # Rate limits, shared with HTTP.
        self.rates = rates or Limits({})
        self.feeds = Feeds(self.limits)
        self.turns = Turns(self.feeds)
        self._peers: set[Peer] = set()
        # Connections before their hello, oldest first. Removed lazily after authentication.
        self._unauthenticated: dict[Peer, None] = {}
        self._empty = asyncio.Event()
        self._concurrency = concurrency or ConcurrencyLimit(self.limits.connections_per_key)
        self.presences = Presences()
        self.notices = Notices(lambda: self._peers, self.presences)
        self._tasks: list[asyncio.Task[None]] = []
        self.is_draining = False
        self._register_gauges(metrics)

    def _register_gauges(self, metrics: Telemetry) -> None:
        def waiting() -> list[int]:
            return [peer.waiting for peer in self._peers]

        metrics.gauge("aforesaid_live_connections", "", lambda: float(len(self._peers)))
        metrics.gauge("aforesaid_live_feeds", "", lambda: float(len(self.feeds)))
        metrics.gauge("aforesaid_live_turns", "", lambda: float(len(self.turns)))
        metrics.gauge("aforesaid_live_queued", "", lambda: float(sum(waiting())))
        metrics.gauge("aforesaid_live_queue_longest", "", lambda: float(max(waiting(), default=0)))

    # Connections

    def add(self, peer: Peer) -> None:
        self._peers.add(peer)
        self._unauthenticated[peer] = None
        if len(self._unauthenticated) > self.limits.unknown_connections:
            self._close_oldest_unauthenticated()
        if not self._tasks:
            self._tasks = [
                start_background(self._tick(), name="aforesaid-live-tick"),
                start_background(self._recheck(), name="aforesaid-live-keys"),
                start_background(self.presences.run(), name="aforesaid-live-presence"),
                start_background(self.notices.run(), name="aforesaid-live-notifications"),
            ]

    def _close_oldest_unauthenticated(self) -> None:
        """Close the oldest connection without a hello if there are too many."""
        self._unauthenticated = {peer: None for peer in self._unauthenticated if peer.caller is None}
        if len(self._unauthenticated) > self.limits.unknown_connections:
            oldest = next(iter(self._unauthenticated))
            del self._unauthenticated[oldest]
            oldest.end(CloseCode.TRY_LATER, "too many connections without a hello")

    @property
    def is_full(self) -> bool:
        return len(self._peers) >= self.limits.connections

    def count_connection(self, caller: Caller) -> None:
        """Count a connection of a key. Raises `TooManyRequests`."""
        self._concurrency.acquire(caller.name)

    def remove(self, peer: Peer) -> None:
        """Remove a connection. Its turns continue."""
        if peer not in self._peers:
            return
        self._peers.discard(peer)
        self.notices.leave(peer)
        self._unauthenticated.pop(peer, None)
        if peer.caller is not None:
            self._concurrency.release(peer.caller.name)
        if not self._peers:
            self._empty.set()

    def is_shared(self, owner: str, conversation_id: str) -> bool:
        """Return whether several connections of this process watch the conversation."""
        return self.presences.members(owner, conversation_id) > 1

    # Background tasks

    async def _tick(self) -> None:
        limits = self.limits
        tick = min(TICK_SECONDS, limits.stall_seconds, limits.hello_seconds)
        if limits.heartbeat_seconds:
            tick = min(tick, limits.heartbeat_seconds / 2)
        while True:
            await asyncio.sleep(tick)
            for peer in tuple(self._peers):
                peer.tick()
            self.presences.tick()

    async def _recheck(self) -> None:
        """Verify keys periodically, in a separate task because a slow store must not delay heartbeats."""
        while True:
            await asyncio.sleep(self.limits.recheck_seconds)
            await _recheck_keys(tuple(self._peers))

    # Shutdown

    async def drain(self) -> None:
        """Accept no more work, finish answers, then close all connections."""
        self.is_draining = True
        await self.turns.drain(self.limits.drain_seconds)
        await self._close_connections()

    async def _close_connections(self) -> None:
        if not self._peers:
            return
        # Removed connections set the event, so clear it before asking them to close.
        self._empty.clear()
        for peer in tuple(self._peers):
            peer.end(CloseCode.RESTARTING, "the server is restarting")
        try:
            await asyncio.wait_for(self._empty.wait(), timeout=max(self.limits.drain_seconds, 1.0))
        except TimeoutError:
            log.warning("%d connections did not close in time", len(self._peers))

    async def close(self) -> None:
        """Close feeds and tasks. Cancel turns in progress."""
        self.is_draining = True
        tasks, self._tasks = self._tasks, []
        await ended(*tasks)
        await self.presences.share()  # so that other processes see at once who has left
        await self.turns.drain(0)
        await self.feeds.close()


async def _recheck_keys(peers: Iterable[Peer]) -> None:
    """Verify the keys of connections. Close a connection whose key is invalid or cannot be verified."""
    for peer in peers:
        try:
            await peer.recheck()
        except AccessError:
            peer.end(CloseCode.NOT_AUTHENTICATED, "the key is no longer valid")
        except AforesaidError as error:
            log.warning("a key cannot be verified again: %s", describe(error))
            peer.end(CloseCode.TRY_LATER, "the key cannot be verified now")
        except Exception:  # an error with one key must not stop the checks of the others
            log.exception("a key cannot be verified again")
