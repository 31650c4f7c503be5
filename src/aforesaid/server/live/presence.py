"""Who watches a conversation, who types and what is being answered, in all server processes.

A registry knows the clients of its process at once. Where processes share a store (`Watchable`), it writes
each of its clients as a document with a lease, and reads those of the other processes every second. A client
whose process ends disappears with its lease. Typing ends by itself. On every store a document records when a
participant was last here. Nothing of this changes a revision.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Protocol

import msgspec
from msgspec import Struct

from aforesaid.agents.turn_order import running_questions
from aforesaid.contracts import ConversationStore, Document, Watchable, capability
from aforesaid.errors import AforesaidError
from aforesaid.layers.participants import ParticipantStore
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.participants import PARTICIPANT_STATE
from aforesaid.model.read_markers import ReadMarker
from aforesaid.protocol.live_base import Outgoing
from aforesaid.protocol.live_people import Presence, ReadNotice, TypingNotice
from aforesaid.protocol.people import PresenceState, PresentPerson
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.server.live")

KIND = f"{PARTICIPANT_STATE}presence"
# Seconds after the last `typing` frame of a client in which it counts as typing.
TYPING_SECONDS = 30.0
# Seconds between exchanges with other processes.
SHARE_SECONDS = 1.0
# How long other processes believe what a process wrote, and the age at which it writes again.
LEASE, RENEW = timedelta(seconds=30), timedelta(seconds=10)
# How long a participant who left is listed with the time of their last visit.
REMEMBERED = timedelta(days=7)
# The most clients of other processes that are read.
MOST_CLIENTS = 500


class Self(Struct, frozen=True, kw_only=True):
    """A client, as it presents itself."""

    name: str = ""
    participant: str | None = None
    away: bool = False


class Member(Protocol):
    """A connection, as the registry uses it."""

    @property
    def self_shown(self) -> Self | None:
        """How others see the client; None unless it asked for presence."""
        ...

    @property
    def typing_name(self) -> str: ...

    def notify(self, frame: Outgoing) -> None: ...


class Shared(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client in a document, for other processes."""

    name: str = ""
    participant: str | None = None
    away: bool = False
    typing: bool = False
    read: str | None = None
    """The last message that the client marked as read."""
    answering: tuple[str, ...] = ()
    """The questions of the conversation that the client's process answers now."""
    seen_at: datetime
    until: datetime
    """The end of the lease. Later, the client has left."""

    def same_state(self, other: "Shared | None") -> bool:
        return other is not None and _state(self) == _state(other)


def _states(clients: dict[str, Shared]) -> dict[str, tuple[object, ...]]:
    return {key: _state(one) for key, one in clients.items()}


def _state(one: Shared) -> tuple[object, ...]:
    return one.name, one.participant, one.away, one.typing, one.read, one.answering


class _Client:
    """A client in a conversation."""

    def __init__(self) -> None:
        self.key = secrets.token_hex(8)
        self.typing_until = 0.0
        self.read: str | None = None
        self.written: Shared | None = None
        self.left_as: Shared | None = None
        """How a participant who has left is listed."""


class _WatchedConversation:
    """The clients that watch one conversation."""

    def __init__(self, conversation_id: str, manager: ConversationManager) -> None:
        self.conversation_id = conversation_id
        self._manager = manager
        self.store = _whole(manager.store)
        self._is_shared = _is_shared(self.store)
        self._read_at: datetime | None = None
        # The stored questions that this process answers, as announced.
        self.answering: tuple[str, ...] = ()
        self.clients: dict[Member, _Client] = {}
        self.left: list[_Client] = []
        self.others: dict[str, Shared] = {}
        self.gone: dict[str, Shared] = {}

    def notify(self, frame: Outgoing, *, exclude: Member | None = None) -> None:
        for member in tuple(self.clients):
            if member is not exclude:
                member.notify(frame)

    def leave(self, member: Member) -> bool:
        """Remove a client; return whether there was one. A participant stays listed with the time."""
        client = self.clients.pop(member, None)
        if client is None:
            return False
        shown, now = member.self_shown, self.store.now()
        if shown is not None and shown.participant is not None:
            left = Shared(name=shown.name, participant=shown.participant, seen_at=now, until=now)
            client.left_as = self.gone[shown.participant] = left
        self.left.append(client)
        return True

    def announce(self) -> None:
        """Send the state to all clients of this process that asked for presence."""
        people = self._people()
        here = sorted(one.name for one in people if one.state != "offline")
        answering = {*self.answering, *(name for one in self.others.values() for name in one.answering)}
        frame = Presence(
            conversation_id=self.conversation_id, here=here, people=people, answering=sorted(answering)
        )
        for member in tuple(self.clients):
            if member.self_shown is not None:
                member.notify(frame)

    def refresh_answering(self) -> bool:
        """Look which questions this process answers now; return whether that has changed."""
        before = self.answering
        running = running_questions(self._manager, self.conversation_id, only_durable=True)
        self.answering = tuple(sorted(running))
        return self.answering != before

    def _people(self) -> list[PresentPerson]:
        now = time.monotonic()
        own = [
            _person(
                shown.name, shown.participant, "away" if shown.away else "here", client.typing_until > now
            )
            for member, client in self.clients.items()
            if (shown := member.self_shown) is not None
        ]
        others = [
            _person(one.name, one.participant, "away" if one.away else "here", one.typing)
            for one in self.others.values()
        ]
        present = {one.participant_id for one in (*own, *others)}
        gone = [
            PresentPerson(
                name=one.name, participant_id=one.participant, state="offline", last_seen=one.seen_at
            )
            for one in self.gone.values()
            if one.participant not in present
        ]
        return sorted((*own, *others, *gone), key=lambda one: (one.state, one.name, one.participant_id or ""))

    def typing_notice(self, name: str, *, active: bool) -> TypingNotice:
        return TypingNotice(conversation_id=self.conversation_id, role="user", active=active, name=name)

    def read_notice(self, participant_id: str, message_id: str) -> ReadNotice:
        return ReadNotice(
            conversation_id=self.conversation_id, participant_id=participant_id, message_id=message_id
        )

    # Other processes

    async def share(self) -> None:
        """Write the clients of this process, read those of the others, and announce what has changed."""
        if all(member.self_shown is None for member in self.clients):
            return
        now = self.store.now()
        await self.write(now)
        if not self._is_shared and self._read_at is not None and self._read_at > now - RENEW:
            return  # nobody else writes; erasures do
        found = await self.store.documents(KIND, conversation_id=self.conversation_id, limit=MOST_CLIENTS)
        own = {client.key for client in (*self.clients.values(), *self.left)}
        read = {one.key: shared for one in found if one.key not in own and (shared := _shared(one))}
        others = {key: one for key, one in read.items() if one.until > now}
        gone = [one for one in read.values() if one.until <= now]
        await self._remove_old(read, now)
        # Somebody may have left while this was read.
        gone += [client.left_as for client in self.left if client.left_as is not None]
        self._compare(others, _last_seen(gone))
        self._read_at = now

    async def write(self, now: datetime) -> None:
        """Write what other processes and later visitors need of the clients of this process."""
        if self._is_shared:
            await self._write_clients(now)
        for client in tuple(self.left):
            await self._write_left(client)
            self.left.remove(client)

    async def _write_clients(self, now: datetime) -> None:
        moment = time.monotonic()
        for member, client in tuple(self.clients.items()):  # others join meanwhile
            shown = member.self_shown
            if shown is None:
                continue
            shared = Shared(
                name=shown.name,
                participant=shown.participant,
                away=shown.away,
                typing=client.typing_until > moment,
                read=client.read,
                answering=self.answering,
                seen_at=now,
                until=now + LEASE,
            )
            if not shared.same_state(client.written) or client.written.seen_at <= now - RENEW:  # type: ignore[union-attr]
                await self._put(client.key, shared)
                client.written = shared

    async def _write_left(self, client: _Client) -> None:
        if client.written is not None:
            await self.store.delete_document(KIND, client.key, conversation_id=self.conversation_id)
        if client.left_as is not None:
            await self._put(f"seen/{client.left_as.participant}", client.left_as)

    async def _put(self, key: str, shared: Shared) -> None:
        data = msgspec.json.encode(shared)
        await self.store.put_document(KIND, key, data, conversation_id=self.conversation_id)

    async def _remove_old(self, read: dict[str, Shared], now: datetime) -> None:
        for key, one in read.items():
            age = now - one.until
            if age > REMEMBERED or (age > LEASE and one.participant is None):
                await self.store.delete_document(KIND, key, conversation_id=self.conversation_id)

    def _compare(self, others: dict[str, Shared], gone: dict[str, Shared]) -> None:
        before, self.others = self.others, others
        changed, self.gone = self.gone != gone, gone
        for key in before.keys() | others.keys():
            was, is_now = before.get(key), others.get(key)
            typed, types = was is not None and was.typing, is_now is not None and is_now.typing
            if typed != types:
                name = (is_now or was).name  # type: ignore[union-attr]
                self.notify(self.typing_notice(name, active=types))
            if is_now is not None and is_now.read and (was is None or was.read != is_now.read):
                self.notify(self.read_notice(is_now.participant or "", is_now.read))
        if changed or _states(before) != _states(others):
            self.announce()


class Presences:
    """The watched conversations of a process."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic, every: float = SHARE_SECONDS) -> None:
        self._watched: dict[tuple[str, str], _WatchedConversation] = {}
        self._now = now
        self._every = every
        # Conversations without clients whose documents are still to be removed.
        self._leaving: list[_WatchedConversation] = []

    def join(self, owner: str, conversation_id: str, member: Member, manager: ConversationManager) -> None:
        watched = self._watched.get((owner, conversation_id))
        if watched is None:
            watched = self._watched[owner, conversation_id] = _WatchedConversation(conversation_id, manager)
            watched.refresh_answering()
        watched.clients.setdefault(member, _Client())

    def leave(self, owner: str, conversation_id: str, member: Member) -> None:
        watched = self._watched.get((owner, conversation_id))
        if watched is None or not watched.leave(member):
            return
        if not watched.clients:
            del self._watched[owner, conversation_id]
            self._leaving.append(watched)

    def announce(self, owner: str, conversation_id: str) -> None:
        watched = self._watched.get((owner, conversation_id))
        if watched is not None:
            watched.announce()

    async def is_here(self, store: ConversationStore, conversation_id: str, participant: str) -> bool:
        """Return whether a participant watches the conversation, in any process, and is not away."""
        watched = self._watched.get((store.owner, conversation_id))
        shown = [] if watched is None else [member.self_shown for member in watched.clients]
        if any(one is not None and one.participant == participant and not one.away for one in shown):
            return True
        if not _is_shared(_whole(store)):
            return False
        now = store.now()
        found = await store.documents(KIND, conversation_id=conversation_id, limit=MOST_CLIENTS)
        others = filter(None, map(_shared, found))
        return any(one.participant == participant and not one.away and one.until > now for one in others)

    def members(self, owner: str, conversation_id: str) -> int:
        watched = self._watched.get((owner, conversation_id))
        return 0 if watched is None else len(watched.clients)

    def notify(self, owner: str, conversation_id: str, frame: Outgoing, *, exclude: Member) -> None:
        watched = self._watched.get((owner, conversation_id))
        if watched is not None:
            watched.notify(frame, exclude=exclude)

    def typing(self, owner: str, conversation_id: str, member: Member, *, active: bool) -> None:
        """Record that a client types, or has stopped. Typing ends by itself."""
        watched = self._watched.get((owner, conversation_id))
        client = None if watched is None else watched.clients.get(member)
        if watched is None or client is None or (not active and not client.typing_until):
            return
        client.typing_until = self._now() + TYPING_SECONDS if active else 0.0
        watched.notify(watched.typing_notice(member.typing_name, active=active), exclude=member)

    def read(self, owner: str, conversation_id: str, member: Member, marker: ReadMarker) -> None:
        """Send a read marker to the other clients, unless it is private."""
        watched = self._watched.get((owner, conversation_id))
        client = None if watched is None else watched.clients.get(member)
        if watched is None or client is None or marker.private:
            return
        client.read = marker.message_id
        watched.notify(watched.read_notice(marker.participant_id, marker.message_id), exclude=member)

    def tick(self) -> None:
        """End the typing of clients that have not repeated it, and announce answers that begin or end."""
        now = self._now()
        for watched in tuple(self._watched.values()):
            if watched.refresh_answering():
                watched.announce()
            for member, client in tuple(watched.clients.items()):
                if 0.0 < client.typing_until <= now:
                    client.typing_until = 0.0
                    watched.notify(watched.typing_notice(member.typing_name, active=False), exclude=member)

    async def run(self) -> None:
        """Exchange the state with other processes, until cancelled."""
        while True:
            await asyncio.sleep(self._every)
            await self.share()

    async def share(self) -> None:
        """Exchange the state of all watched conversations once. A failing store delays it."""
        leaving, self._leaving = self._leaving, []
        for watched in (*self._watched.values(), *leaving):
            try:
                if watched.clients:
                    await watched.share()
                else:
                    await watched.write(watched.store.now())
            except AforesaidError as error:
                log.debug("presence is not shared now: %s", describe(error))


def _whole(store: ConversationStore) -> ConversationStore:
    """Return the owner's store: a participant's view has no access to these documents."""
    return store.inner if isinstance(store, ParticipantStore) else store


def _is_shared(store: ConversationStore) -> bool:
    """Return whether other processes may use the store."""
    return capability(store, Watchable) is not None


def _shared(document: Document) -> Shared | None:
    try:
        return msgspec.json.decode(document.data, type=Shared)
    except msgspec.MsgspecError:
        return None  # of a later release


def _last_seen(gone: Iterable[Shared]) -> dict[str, Shared]:
    latest: dict[str, Shared] = {}
    for one in gone:
        if one.participant is not None:
            known = latest.get(one.participant)
            if known is None or known.seen_at < one.seen_at:
                latest[one.participant] = one
    return latest


def _person(name: str, participant: str | None, state: PresenceState, typing: bool) -> PresentPerson:
    return PresentPerson(name=name, participant_id=participant, state=state, typing=typing)
