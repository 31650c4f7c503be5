"""One WebSocket connection without the socket: frames in, frames out.

`receive` takes a client frame; `next` returns the next server frame. The first frame must be a `hello`;
before it, no data is accessed. A failing frame is answered with an `error` frame, and the connection stays
open.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aforesaid.errors import (
    AccessError,
    AforesaidError,
    InvalidInput,
    NotAllowed,
    StoreError,
    TooLarge,
    TooManyRequests,
)
from aforesaid.protocol import live, live_branches, live_people
from aforesaid.protocol.live import CloseCode, failure
from aforesaid.protocol.live_base import Outgoing
from aforesaid.server.auth.keys import Caller
from aforesaid.server.limits import Monotonic, RateLimiter
from aforesaid.server.live.branch_requests import BranchRequests
from aforesaid.server.live.client_session import ClientSession, WatchList
from aforesaid.server.live.hub import Hub
from aforesaid.server.live.notices import NotifiedClient
from aforesaid.server.live.outbox import ConnectionClosed, Outbox
from aforesaid.server.live.people_requests import PeopleRequests
from aforesaid.server.live.presence import Self
from aforesaid.server.live.turn_requests import TurnRequests
from aforesaid.server.live.watches import Watch

# Seconds without a frame, other than heartbeats, after which a client counts as away.
AWAY_SECONDS = 300.0


class Connection:
    """The state of one connection."""

    def __init__(
        self,
        hub: Hub,
        headers: Mapping[bytes, bytes],
        *,
        owner: str | None = None,
        source: str = "",
        now: Monotonic = time.monotonic,
    ) -> None:
        self.caller: Caller | None = None
        # Called when the client does not read the close frame either.
        self.abort: Callable[[], bool] = lambda: False
        self._hub = hub
        self._limits = hub.limits
        self._headers = dict(headers)
        self._owner = owner
        self._source = source
        self._now = now
        self._opened = self._last_received = self._last_active = now()
        self._heartbeat_at: float | None = None
        self._sending_since: float | None = None
        self._rate = RateLimiter(self._limits.frames_per_second, self._limits.burst, now)
        self._refused = 0
        self._client_session: ClientSession | None = None
        self._outbox = Outbox(self._limits.replies_waiting, self._on_gone)
        self._watch_list = WatchList(hub, self._outbox, self)
        self._turns = TurnRequests(hub, self._outbox, self._watch_list, self)
        self._branches = BranchRequests(hub, self._outbox)
        self._people = PeopleRequests(hub, self._outbox)
        hub.add(self)

    # Server frames

    async def next(self) -> Outgoing:
        """Wait for the next frame to send. Raises `ConnectionClosed`."""
        self._sending_since = None
        frame = await self._outbox.next()
        self._sending_since = self._now()
        return frame

    @property
    def ending(self) -> ConnectionClosed | None:
        """Why the server closes the connection; None while it is open or if the client left."""
        return self._outbox.ending

    @property
    def waiting(self) -> int:
        """The number of frames that wait to be sent."""
        return self._outbox.waiting

    @property
    def self_shown(self) -> Self | None:
        """How others see the client; None unless it asked for presence."""
        session = self._client_session
        if session is None or not session.wants_presence:
            return None
        away = self._now() - self._last_active > AWAY_SECONDS
        return Self(name=session.name, participant=session.participant, away=away)

    @property
    def typing_name(self) -> str:
        """The name in notices of typing."""
        return "" if self._client_session is None else self._client_session.name

    @property
    def notified(self) -> NotifiedClient | None:
        """The client as a receiver of notifications; None unless it asked for them."""
        session = self._client_session
        if session is None or session.participant is None or not session.wants_notifications:
            return None
        return NotifiedClient(
            owner=session.owner,
            participant=session.participant,
            store=session.manager.store,
            watched=frozenset(self._outbox.watches),
            last_active=self._last_active,
        )

    def notify(self, frame: Outgoing) -> None:
        self._outbox.notify(frame)

    def end(self, code: int, reason: str = "") -> None:
        self._outbox.end(code, reason)

    # Client frames

    async def receive(self, data: str | bytes) -> None:
        """Handle a client frame: text, or a chunk of audio."""
        # Backpressure: a client that does not read its replies is not read either.
        if self._outbox.is_full:
            await self._outbox.wait_for_space()
        self._last_received, self._heartbeat_at = self._now(), None
        if self._outbox.ending is not None:
            return None
        frame_id: str | None = None
        try:
            self._rate.take()
            if isinstance(data, bytes):
                return self._receive_audio(data)
            frame = self._read(data)
            frame_id = getattr(frame, "id", None)
            await self._act_or_note(frame)
        except TooManyRequests as error:
            self._refuse(error, frame_id)
        except AforesaidError as error:
            self._fail(error, frame_id)

    def _read(self, text: str) -> live.Incoming:
        if len(text) > self._limits.frame_bytes:
            raise TooLarge(
                f"a frame must have at most {self._limits.frame_bytes:,} characters; got {len(text):,}",
                field="frame",
                value=len(text),
            )
        return live.read_frame(text)

    def _receive_audio(self, chunk: bytes) -> None:
        try:
            self._turns.add_audio(chunk)
        except TooLarge as error:
            self._fail(error, self._turns.discard_audio())

    async def _act_or_note(self, frame: live.Incoming) -> None:
        """Execute a frame. Write a refusal to the audit trail, as for a request."""
        try:
            await self._act(frame)
        except AccessError as error:
            await self._note_refusal(str(frame.__struct_config__.tag), error)
            raise

    async def _note_refusal(self, action: str, error: AccessError) -> None:
        await self._hub.services.note_refusal(f"WS {action}", error, source=self._source)

    async def _act(self, frame: live.Incoming) -> None:
        if isinstance(frame, live.Hello):
            await self._hello(frame)
        elif self._client_session is None:
            raise InvalidInput("the first frame must be a hello", field="type")
        else:
            if not isinstance(frame, live.Ping | live.Pong):
                self._last_active = self._now()
            await _ACTIONS[type(frame)](self)(self._client_session, frame)

    def _refuse(self, error: TooManyRequests, frame_id: str | None) -> None:
        self._refused += 1
        self._fail(error, frame_id)
        if self._refused > self._limits.refused_frames:
            self.end(CloseCode.TOO_MANY, "too many frames")

    def _fail(self, error: AforesaidError, frame_id: str | None = None) -> None:
        self._outbox.reply(failure(error, id=frame_id))
        if self._client_session is None and self.caller is None:
            self.end(*_close_code(error))

    # Hello and bye

    async def _hello(self, hello: live.Hello) -> None:
        if self._client_session is not None:
            raise InvalidInput("hello was already sent", field="type")
        if self._hub.is_draining:
            self.end(CloseCode.RESTARTING, "the server is restarting")
            return
        caller, owner = await self._authenticate(hello)
        session = await ClientSession.open(self._hub, caller, owner, hello)
        watch, watching = await self._watch_list.join(
            session, session.conversation_id, hello.history, hello.place
        )
        self._client_session = session
        self._turns.serve(session, may_repeat=hello.place is not None)
        turns = self._hub.turns.of_session(owner, session.conversation_id, session.session_id)
        self._outbox.reply(
            live.Ready(
                owner=owner,
                session_id=session.session_id,
                conversation=watching.conversation,
                entries=watching.entries,
                place=watch.place,
                resumed=watching.resumed,
                answering=[turn.id for turn in turns],
                heartbeat=self._limits.heartbeat_seconds,
            )
        )
        self._hub.presences.announce(owner, session.conversation_id)
        for turn in turns:
            self._outbox.subscribe(turn, wants_answer=turn.wants_answer)

    async def _authenticate(self, hello: live.Hello) -> tuple[Caller, str]:
        """Return caller and owner. A connection counts once, however many hellos fail."""
        if hello.key is not None:
            # Kept in the headers, because the key is verified again while the connection is open.
            self._headers[b"authorization"] = b"Bearer " + hello.key.encode()
        caller = await self._hub.authenticator.authenticate(self._headers)
        owner = caller.owner_for(hello.owner if hello.owner is not None else self._owner)
        if self.caller is None:
            self._hub.count_connection(caller)
            self.caller = caller
        return caller, owner

    async def _bye(self, session: ClientSession, frame: live.Bye) -> None:
        session.caller.check("write")
        await session.end_session()
        self.end(CloseCode.NORMAL, "bye")

    async def _notified(self, session: ClientSession, frame: live_people.Notified) -> None:
        await self._hub.notices.confirm(self, frame.conversation_id, frame.claim)

    # Heartbeats and limits

    async def _ping(self, session: ClientSession, frame: live.Ping) -> None:
        self._outbox.reply(live.PongReply(at=frame.at))

    async def _pong(self, session: ClientSession, frame: live.Pong) -> None:
        """Do nothing: `receive` has already reset the heartbeat."""

    def tick(self) -> None:
        """Enforce time limits and send heartbeats. The hub calls this periodically."""
        now, limits = self._now(), self._limits
        if self._sending_since is not None and now - self._sending_since > limits.stall_seconds:
            self.end(CloseCode.TOO_SLOW, "the client does not read frames")
            self.abort()
        elif self._client_session is None:
            if now - self._opened > limits.hello_seconds:
                self.end(CloseCode.NO_HELLO, "no hello in time")
        elif limits.heartbeat_seconds and now - self._last_received > limits.heartbeat_seconds:
            self._send_heartbeat(now)

    def _send_heartbeat(self, now: float) -> None:
        if self._heartbeat_at is None:
            self._heartbeat_at = now
            self.notify(live.Heartbeat())
        elif now - self._heartbeat_at > self._limits.heartbeat_seconds:
            self.end(CloseCode.GONE, "no reply to the heartbeat")
            self.abort()

    async def recheck(self) -> None:
        """Verify the key again. Raises `AccessError`."""
        if self.caller is not None and self._client_session is not None:
            try:
                caller = await self._hub.authenticator.authenticate(self._headers)
                caller.owner_for(self._client_session.owner)
            except AccessError as error:
                await self._note_refusal("recheck", error)
                raise

    def leave(self) -> None:
        """Release the connection. Its turns are still answered and stored."""
        self._outbox.unsubscribe_all()
        if self._client_session is not None:
            self._watch_list.leave_all(self._client_session)
        self._hub.remove(self)

    def _on_gone(self, watch: Watch) -> None:
        assert self._client_session is not None, "a connection watches after its hello only"
        self._watch_list.leave(self._client_session, watch.conversation_id)


def _close_code(error: AforesaidError) -> tuple[int, str]:
    if isinstance(error, TooManyRequests):
        return CloseCode.TOO_MANY, "too many requests"
    if isinstance(error, StoreError):
        return CloseCode.TRY_LATER, "try again later"
    if isinstance(error, NotAllowed):
        return CloseCode.NOT_ALLOWED, "not allowed"
    if isinstance(error, AccessError):
        return CloseCode.NOT_AUTHENTICATED, "not authenticated"
    return CloseCode.NO_HELLO, "no hello"


Action = Callable[[ClientSession, Any], Awaitable[None]]

_ACTIONS: dict[type, Callable[[Connection], Action]] = {
    live.Text: lambda connection: connection._turns.text,
    live.Turn: lambda connection: connection._turns.turn,
    live.AudioStart: lambda connection: connection._turns.audio_start,
    live.AudioEnd: lambda connection: connection._turns.audio_end,
    live.AudioCancel: lambda connection: connection._turns.audio_cancel,
    live.Interrupt: lambda connection: connection._turns.interrupt,
    live_people.Typing: lambda connection: connection._watch_list.typing,
    live_people.Read: lambda connection: connection._watch_list.read,
    live.Watch: lambda connection: connection._watch_list.watch,
    live.Unwatch: lambda connection: connection._watch_list.unwatch,
    live_people.Notified: lambda connection: connection._notified,
    live_branches.Fork: lambda connection: connection._branches.fork,
    live_branches.Branches: lambda connection: connection._branches.branches,
    live_branches.Compare: lambda connection: connection._branches.compare,
    live_branches.Merge: lambda connection: connection._branches.merge,
    live_branches.Link: lambda connection: connection._branches.link,
    live_branches.Unlink: lambda connection: connection._branches.unlink,
    live_branches.Links: lambda connection: connection._branches.links,
    live_people.SetParticipant: lambda connection: connection._people.participant,
    live_people.Assign: lambda connection: connection._people.assign,
    live_people.SetRule: lambda connection: connection._people.rule,
    live_people.AskAnalytics: lambda connection: connection._people.analytics,
    live.Ping: lambda connection: connection._ping,
    live.Pong: lambda connection: connection._pong,
    live.Bye: lambda connection: connection._bye,
}
