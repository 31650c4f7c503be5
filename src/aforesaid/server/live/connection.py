"""One connection: frames in, frames out, no socket anywhere. Below: telling, turns. Above: the handler.

`heard` takes what the client sent; `next` gives what to send. Whoever is at the other end says `hello`
first: before that, nothing of anybody's is touched. What cannot be done is told in an `error` frame, and the
connection goes on.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from aforesaid.dialects import meaning_of
from aforesaid.errors import (
    AccessError,
    AforesaidError,
    InvalidInput,
    MessageConflict,
    NotAllowed,
    NotFound,
    StoreError,
    StoreUnavailable,
    TooLarge,
    TooManyRequests,
    shown,
)
from aforesaid.model.ids import parse_uuid
from aforesaid.model.messages import Message
from aforesaid.protocol import live
from aforesaid.protocol.documents import conversation_document
from aforesaid.protocol.live import CloseCode, Outgoing, Place, failure
from aforesaid.server.auth.callers import Caller
from aforesaid.server.decoding import parse_frame_turn
from aforesaid.server.live.client_session import ClientSession
from aforesaid.server.live.diff import place_of
from aforesaid.server.live.feeds import FIRST_LOOK
from aforesaid.server.live.hub import Hub
from aforesaid.server.live.limits import Allowance, Seconds
from aforesaid.server.live.outbox import Ended, Outbox
from aforesaid.server.live.speech import Utterance
from aforesaid.server.live.turns import (
    Outcome,
    Service,
    Turn,
    Work,
    answered,
    cut_in,
    interrupted,
    stored_only,
    stored_whole,
)
from aforesaid.server.live.watches import Watch


class Connection:
    """What one client says and is told."""

    def __init__(
        self,
        hub: Hub,
        headers: Mapping[bytes, bytes],
        *,
        owner: str | None = None,
        source: str = "",
        now: Seconds = time.monotonic,
    ) -> None:
        self.caller: Caller | None = None
        self.cut: Callable[[], bool] = lambda: False
        """Called when the peer does not even read that it is over."""
        self._hub = hub
        self._limits = hub.limits
        self._headers = dict(headers)
        self._owner = owner
        self._source = source
        self._now = now
        self._opened = self._last_heard = now()
        self._asked_at: float | None = None
        self._sending_since: float | None = None
        self._allowance = Allowance(self._limits.frames_per_second, self._limits.burst, now)
        self._refused = 0
        self._client_session: ClientSession | None = None
        self._utterance: Utterance | None = None
        self._types_in: set[str] = set()
        self._outbox = Outbox(self._limits.replies_waiting, self._over)
        hub.enter(self)

    # Out

    async def next(self) -> Outgoing:
        """The next frame to send, as soon as there is one. Raises `Ended`."""
        self._sending_since = None
        frame = await self._outbox.next()
        self._sending_since = self._now()
        return frame

    @property
    def ending(self) -> Ended | None:
        """Why it is over, unless the client left."""
        return self._outbox.ending

    @property
    def waiting(self) -> int:
        """Frames that wait to be sent."""
        return self._outbox.waiting

    def mention(self, frame: Outgoing) -> None:
        self._outbox.mention(frame)

    def end(self, code: int, reason: str = "") -> None:
        self._outbox.end(code, reason)

    # In

    async def heard(self, data: str | bytes) -> None:
        """The client sent a frame: text, or a piece of audio."""
        if self._outbox.is_full:
            await self._outbox.has_room()
        self._last_heard, self._asked_at = self._now(), None
        if self._outbox.ending is not None:
            return None
        frame_id: str | None = None
        try:
            self._allowance.take()
            if isinstance(data, bytes):
                return self._heard_audio(data)
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

    async def _act_or_note(self, frame: live.Incoming) -> None:
        """Act on a frame. A refusal goes to the audit trail, as it does for a request."""
        try:
            await self._act(frame)
        except AccessError as error:
            await self._note_refusal(str(frame.__struct_config__.tag), error)
            raise

    async def _note_refusal(self, what: str, error: AccessError) -> None:
        await self._hub.services.note_refusal(f"WS {what}", error, source=self._source)

    async def _act(self, frame: live.Incoming) -> None:
        if isinstance(frame, live.Hello):
            await self._hello(frame)
        elif self._client_session is None:
            raise InvalidInput("the first frame must be a hello", field="type")
        else:
            await _ACTIONS[type(frame)](self, self._client_session, frame)

    def _refuse(self, error: TooManyRequests, frame_id: str | None) -> None:
        self._refused += 1
        self._fail(error, frame_id)
        if self._refused > self._limits.refused_frames:
            self.end(CloseCode.TOO_MANY, "frames come too fast")

    def _fail(self, error: AforesaidError, frame_id: str | None = None) -> None:
        self._outbox.reply(failure(error, id=frame_id))
        if self._client_session is None and self.caller is None:
            self.end(*_turned_away(error))

    # Hello

    async def _hello(self, hello: live.Hello) -> None:
        if self._client_session is not None:
            raise InvalidInput("hello was said already", field="type")
        if self._hub.is_draining:
            self.end(CloseCode.RESTARTING, "the server is restarting")
            return
        caller, owner = await self._admitted(hello)
        client_session = await ClientSession.received(self._hub, caller, owner, hello)
        watch, shown_frame = await self._joined(
            client_session, client_session.conversation_id, hello.history, hello.place
        )
        self._client_session = client_session
        self._serve(client_session, may_repeat=hello.place is not None)
        turns = self._hub.turns.of_session(owner, client_session.conversation_id, client_session.session_id)
        self._outbox.reply(
            live.Ready(
                owner=owner,
                session_id=client_session.session_id,
                conversation=shown_frame.conversation,
                entries=shown_frame.entries,
                place=watch.place,
                resumed=shown_frame.resumed,
                answering=[turn.id for turn in turns],
                heartbeat=self._limits.heartbeat_seconds,
            )
        )
        for turn in turns:
            self._outbox.listen(turn, wants_answer=turn.wants_answer)

    async def _admitted(self, hello: live.Hello) -> tuple[Caller, str]:
        """Who they are, and whose data it is about. Counted once, however often they try."""
        if hello.key is not None:
            self._headers[b"authorization"] = b"Bearer " + hello.key.encode()
        caller = await self._hub.authenticator.authenticate(self._headers)
        owner = caller.owner_for(hello.owner if hello.owner is not None else self._owner)
        if self.caller is None:
            self._hub.admit(caller)
            self.caller = caller
        return caller, owner

    def _serve(self, client_session: ClientSession, *, may_repeat: bool) -> None:
        service = Service(
            manager=client_session.manager,
            assistant=client_session.assistant,
            feeds=self._hub.feeds,
            may_repeat=may_repeat,
        )
        self._service = service
        self._answer: Work = partial(answered, service=service)
        self._store: Work = partial(stored_only, service=service)
        self._keep: Work = partial(interrupted, service=service)

    # Saying something

    async def _text(self, client_session: ClientSession, frame: live.Text) -> None:
        conversation_id = self._spoken_in(client_session, frame.conversation_id)
        question = Message(role="user", content=frame.text, message_id=frame.id)
        if self._goes_on(client_session, conversation_id, question):
            return
        self._hub.rates.take(client_session.caller.name, "ask" if frame.answer else "write")
        turn = Turn(
            client_session.owner,
            conversation_id,
            client_session.session_id,
            question,
            wants_answer=frame.answer,
        )
        if frame.answer:
            self._ask(client_session, turn, self._answer)
        else:
            self._start(turn, self._store)

    async def _turn(self, client_session: ClientSession, frame: live.Turn) -> None:
        """Stored here and now, not in a task of its own: nobody is asked, so nothing can take long."""
        conversation_id = self._spoken_in(client_session, frame.conversation_id)
        if (conversation_id, frame.id) in self._outbox.listening:
            raise InvalidInput(f"{shown(frame.id)} is under way already", field="id", value=frame.id)
        messages = parse_frame_turn(frame)
        self._hub.rates.take(client_session.caller.name, "write")
        turn = Turn(
            client_session.owner,
            conversation_id,
            client_session.session_id,
            messages[0],
            turn_id=frame.id,
            wants_answer=False,
            is_given=True,
        )
        self._outbox.listen(turn, wants_answer=False)
        try:
            turn.end(await stored_whole(turn, messages, service=self._service))
        finally:
            if turn.outcome is None:
                self._outbox.forget(turn)

    def _spoken_in(self, client_session: ClientSession, wanted: str | None) -> str:
        """The conversation that something is said in. Raises `NotFound` for one that is not watched here."""
        client_session.caller.check("write")
        if self._hub.is_draining:
            raise StoreUnavailable("the server is restarting: connect again")
        if len(self._outbox.listening) >= self._limits.turns_waiting:
            raise TooManyRequests("too many answers are under way", retry_after=1.0)
        return self._watched(client_session, wanted)

    def _watched(self, client_session: ClientSession, wanted: str | None) -> str:
        conversation_id = client_session.conversation_id if wanted is None else _uuid(wanted)
        if conversation_id not in self._outbox.watches:
            raise NotFound(f"conversation {shown(conversation_id)} is not watched here: watch it first")
        return conversation_id

    def _goes_on(self, client_session: ClientSession, conversation_id: str, question: Message) -> bool:
        """Whether the same is being answered already: then this connection listens too.

        Raises `MessageConflict` where something else is, under the same id.
        """
        turn_id = question.message_id or ""
        turn = self._hub.turns.running(client_session.owner, conversation_id, turn_id)
        if turn is None:
            return False
        if not _asks_the_same(turn.question, question):
            raise MessageConflict(conversation_id, turn_id)
        if turn.key not in self._outbox.listening:
            self._outbox.listen(turn, wants_answer=turn.wants_answer)
        return True

    def _ask(self, client_session: ClientSession, turn: Turn, work: Work) -> None:
        """Let the turn run, and let the others know that an answer is on its way."""
        hub, place = self._hub, (client_session.owner, turn.conversation_id)
        typing = partial(live.TypingNotice, conversation_id=turn.conversation_id, role="assistant")

        async def describe(turn: Turn) -> Outcome:
            hub.mention(*place, typing(active=True), but=self)
            try:
                return await work(turn)
            finally:
                hub.mention(*place, typing(active=False), but=self)

        self._start(turn, describe if hub.is_shared(*place) else work)

    def _start(self, turn: Turn, work: Work) -> None:
        self._hub.turns.start(turn, work, self._keep)
        self._outbox.listen(turn, wants_answer=turn.wants_answer)

    async def _interrupt(self, client_session: ClientSession, frame: live.Interrupt) -> None:
        client_session.caller.check("write")
        spoken_in = None if frame.conversation_id is None else _uuid(frame.conversation_id)
        wanted = [
            listening
            for (conversation_id, turn_id), listening in self._outbox.listening.items()
            if frame.id in (None, turn_id) and spoken_in in (None, conversation_id) and listening.wants_answer
        ]
        if not wanted and frame.id is not None:
            conversation_id = self._watched(client_session, frame.conversation_id)
            await cut_in(client_session.manager, conversation_id, frame.id, heard=frame.heard)
            await self._hub.feeds.look(client_session.owner, conversation_id)
        for listening in wanted:
            listening.turn.interrupt(listening.sent if frame.heard is None else frame.heard)

    # Speaking

    async def _audio_start(self, client_session: ClientSession, frame: live.AudioStart) -> None:
        self._spoken_in(client_session, frame.conversation_id)
        self._hub.services.transcribe(
            client_session.manager
        )  # before anything is sent that nobody would understand
        if self._utterance is not None:
            raise InvalidInput(
                f"audio {shown(self._utterance.start.id)} has not ended yet", field="id", value=frame.id
            )
        self._utterance = Utterance(frame, self._limits)

    def _heard_audio(self, piece: bytes) -> None:
        if self._client_session is None or self._utterance is None:
            raise InvalidInput("audio must be announced by audio.start", field="audio")
        try:
            self._utterance.add(piece)
        except TooLarge as error:
            self._fail(error, self._utterance.start.id)
            self._utterance = None

    async def _audio_end(self, client_session: ClientSession, frame: live.AudioEnd) -> None:
        utterance = self._ended_utterance(frame.id)
        audio, transcribe = utterance.complete(), self._hub.services.transcribe(client_session.manager)
        conversation_id = self._spoken_in(client_session, utterance.start.conversation_id)
        question = Message(role="user", content="", content_type="audio", message_id=frame.id)
        if self._goes_on(client_session, conversation_id, question):
            return
        self._hub.rates.take(client_session.caller.name, "ask")

        async def understood(turn: Turn) -> Outcome:
            said = await transcribe(audio, utterance.start)
            turn.question = said.with_(message_id=turn.id)
            self._outbox.reply(live.Transcript(id=turn.id, text=meaning_of(said).text))
            return await self._answer(turn)

        self._ask(
            client_session,
            Turn(client_session.owner, conversation_id, client_session.session_id, question),
            understood,
        )

    async def _audio_cancel(self, client_session: ClientSession, frame: live.AudioCancel) -> None:
        self._ended_utterance(frame.id)

    def _ended_utterance(self, utterance_id: str) -> Utterance:
        utterance = self._utterance
        if utterance is None or utterance.start.id != utterance_id:
            raise NotFound(f"there is no audio {shown(utterance_id)} under way")
        self._utterance = None
        return utterance

    # Watching

    async def _watch(self, client_session: ClientSession, frame: live.Watch) -> None:
        conversation_id = _uuid(frame.conversation_id)
        if conversation_id not in self._outbox.watches and len(self._outbox.watches) >= self._limits.watches:
            raise TooManyRequests(f"a connection watches at most {self._limits.watches} conversations")
        _, describe = await self._joined(client_session, conversation_id, frame.history, frame.place)
        self._outbox.reply(describe)

    async def _joined(
        self, client_session: ClientSession, conversation_id: str, history: int, place: Place | None
    ) -> tuple[Watch, live.Watching]:
        """Begin to watch a conversation, or begin again."""
        feeds, wake = self._hub.feeds, self._outbox.wake
        feed = await feeds.join(client_session.owner, client_session.manager.store, conversation_id, wake)
        try:
            if place is None:
                seen = await feed.shown(limit=max(history, FIRST_LOOK))
                record, entries = seen.record, seen.shown(history)
                watch = Watch(feed, place_of(record, seen.entries), history=history)
            else:
                watch, record = await Watch.resumed(feed, place, history=history)
                entries = []
        except BaseException:
            if conversation_id not in self._outbox.watches:
                feeds.leave(client_session.owner, feed, wake)
            raise
        self._outbox.watches[conversation_id] = watch
        self._hub.arrive(client_session.owner, conversation_id, self)
        resumed = place is not None
        document = conversation_document(record)
        return watch, live.Watching(
            conversation=document, entries=entries, place=watch.place, resumed=resumed
        )

    async def _unwatch(self, client_session: ClientSession, frame: live.Unwatch) -> None:
        conversation_id = self._watched(client_session, frame.conversation_id)
        self._parted(client_session, conversation_id)
        self._outbox.reply(live.Unwatched(conversation_id=conversation_id))

    def _over(self, watch: Watch) -> None:
        """The conversation is gone."""
        assert self._client_session is not None, "only guests watch"
        self._parted(self._client_session, watch.conversation_id)

    def _parted(self, client_session: ClientSession, conversation_id: str) -> None:
        self._stop_typing(client_session, conversation_id)
        watch = self._outbox.watches.pop(conversation_id, None)
        if watch is not None:
            self._hub.feeds.leave(client_session.owner, watch.feed, self._outbox.wake)
        self._hub.depart(client_session.owner, conversation_id, self)

    # Typing

    async def _typing(self, client_session: ClientSession, frame: live.Typing) -> None:
        client_session.caller.check("write")
        conversation_id = self._watched(client_session, frame.conversation_id)
        if frame.active:
            self._types_in.add(conversation_id)
            self._mention_typing(client_session, conversation_id, active=True)
        else:
            self._stop_typing(client_session, conversation_id)

    def _stop_typing(self, client_session: ClientSession, conversation_id: str) -> None:
        if conversation_id in self._types_in:
            self._types_in.discard(conversation_id)
            self._mention_typing(client_session, conversation_id, active=False)

    def _mention_typing(self, client_session: ClientSession, conversation_id: str, *, active: bool) -> None:
        frame = live.TypingNotice(
            conversation_id=conversation_id, role="user", active=active, name=client_session.name
        )
        self._hub.mention(client_session.owner, conversation_id, frame, but=self)

    # Life signs

    async def _ping(self, client_session: ClientSession, frame: live.Ping) -> None:
        self._outbox.reply(live.PongReply(at=frame.at))

    async def _pong(self, client_session: ClientSession, frame: live.Pong) -> None:
        """Having been heard is all there is to it."""

    async def _bye(self, client_session: ClientSession, frame: live.Bye) -> None:
        client_session.caller.check("write")
        await client_session.end_session()
        self.end(CloseCode.NORMAL, "bye")

    def tick(self) -> None:
        """Look after the connection: called now and then."""
        now, limits = self._now(), self._limits
        if self._sending_since is not None and now - self._sending_since > limits.stall_seconds:
            self.end(CloseCode.TOO_SLOW, "frames are not read")
            self.cut()
        elif self._client_session is None:
            if now - self._opened > limits.hello_seconds:
                self.end(CloseCode.NO_HELLO, "no hello in time")
        elif limits.heartbeat_seconds and now - self._last_heard > limits.heartbeat_seconds:
            self._ask_for_a_sign(now)

    def _ask_for_a_sign(self, now: float) -> None:
        if self._asked_at is None:
            self._asked_at = now
            self.mention(live.Heartbeat())
        elif now - self._asked_at > self._limits.heartbeat_seconds:
            self.end(CloseCode.GONE, "silent for too long")
            self.cut()

    async def recheck(self) -> None:
        """See whether the key still holds. Raises `AccessError`."""
        if self.caller is not None and self._client_session is not None:
            try:
                caller = await self._hub.authenticator.authenticate(self._headers)
                caller.owner_for(self._client_session.owner)
            except AccessError as error:
                await self._note_refusal("recheck", error)
                raise

    def leave(self) -> None:
        """The connection is over. What was asked is answered and stored all the same."""
        self._outbox.stop_listening()
        if self._client_session is not None:
            for conversation_id in tuple(self._outbox.watches):
                self._parted(self._client_session, conversation_id)
        self._hub.leave(self)


def _turned_away(error: AforesaidError) -> tuple[int, str]:
    if isinstance(error, TooManyRequests):
        return CloseCode.TOO_MANY, "too many"
    if isinstance(error, StoreError):
        return CloseCode.TRY_LATER, "try again later"
    if isinstance(error, NotAllowed):
        return CloseCode.NOT_ALLOWED, "not allowed"
    if isinstance(error, AccessError):
        return CloseCode.NOT_AUTHENTICATED, "not authenticated"
    return CloseCode.NO_HELLO, "no hello"


def _asks_the_same(one: Message, other: Message) -> bool:
    """Whether both are the same question. What is spoken is not understood yet, and cannot be compared."""
    if "audio" in (one.content_type, other.content_type):
        return one.content_type == other.content_type
    return one.same_content_as(other)


def _uuid(value: str) -> str:
    return parse_uuid(value, field="conversation_id")


_ACTIONS: dict[type, Callable[[Connection, ClientSession, Any], Awaitable[None]]] = {
    live.Text: Connection._text,
    live.Turn: Connection._turn,
    live.AudioStart: Connection._audio_start,
    live.AudioEnd: Connection._audio_end,
    live.AudioCancel: Connection._audio_cancel,
    live.Interrupt: Connection._interrupt,
    live.Typing: Connection._typing,
    live.Watch: Connection._watch,
    live.Unwatch: Connection._unwatch,
    live.Ping: Connection._ping,
    live.Pong: Connection._pong,
    live.Bye: Connection._bye,
}
