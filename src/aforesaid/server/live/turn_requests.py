"""Handle the frames of one connection that start or interrupt turns: text, complete turns, audio."""

from functools import partial

from aforesaid.dialects import meaning_of
from aforesaid.errors import (
    InvalidInput,
    MessageConflict,
    NotFound,
    StoreUnavailable,
    TooLarge,
    TooManyRequests,
    shown,
)
from aforesaid.model.messages import Message
from aforesaid.protocol import live, live_people
from aforesaid.server.endpoints import parse_frame_turn
from aforesaid.server.limits import LiveLimits
from aforesaid.server.live.client_session import ClientSession, WatchList, parse_conversation_id
from aforesaid.server.live.hub import Hub, Peer
from aforesaid.server.live.outbox import Outbox
from aforesaid.server.live.turns import (
    Outcome,
    Turn,
    TurnServices,
    Work,
    answer_turn,
    interrupt_stored,
    store_interrupted,
    store_message,
    store_turn,
)


class Utterance:
    """The received chunks of one recording."""

    def __init__(self, start: live.AudioStart, limits: LiveLimits) -> None:
        self.start = start
        self._limits = limits
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> None:
        """Add a chunk. Raises `TooLarge`."""
        size = self._size + len(chunk)
        if len(chunk) > self._limits.audio_frame_bytes or size > self._limits.audio_bytes:
            raise TooLarge(
                f"audio must have at most {self._limits.audio_frame_bytes:,} bytes in a frame and "
                f"{self._limits.audio_bytes:,} in total; got {len(chunk):,} and {size:,}",
                field="audio",
                value=size,
            )
        self._chunks.append(chunk)
        self._size = size

    def complete(self) -> bytes:
        """Return the whole audio. Raises `InvalidInput` if it is empty."""
        if not self._size:
            raise InvalidInput("audio must not be empty", field="audio")
        return b"".join(self._chunks)


class TurnRequests:
    """Start turns in the hub and subscribe the connection to them."""

    def __init__(self, hub: Hub, outbox: Outbox, watch_list: WatchList, peer: Peer) -> None:
        self._hub = hub
        self._limits = hub.limits
        self._outbox = outbox
        self._watch_list = watch_list
        self._peer = peer
        self._utterance: Utterance | None = None

    def serve(self, session: ClientSession, *, may_repeat: bool) -> None:
        """Prepare for the turns of a session, after its hello."""
        services = TurnServices(
            manager=session.manager,
            assistant=session.assistant,
            feeds=self._hub.feeds,
            may_repeat=may_repeat,
        )
        self._services = services
        self._answer: Work = partial(answer_turn, services=services)
        self._store: Work = partial(store_message, services=services)
        self._store_interrupted: Work = partial(store_interrupted, services=services)

    # Text

    async def text(self, session: ClientSession, frame: live.Text) -> None:
        conversation_id = self._conversation(session, frame.conversation_id)
        question = Message(role="user", content=frame.text, message_id=frame.id)
        if self._joins_running_turn(session, conversation_id, question):
            return
        self._hub.rates.take(session.caller.name, "ask" if frame.answer else "write")
        turn = Turn(
            session.owner,
            conversation_id,
            session.session_id,
            question,
            wants_answer=frame.answer,
        )
        if frame.answer:
            self._ask(session, turn, self._answer)
        else:
            self._start(turn, self._store)

    async def turn(self, session: ClientSession, frame: live.Turn) -> None:
        """Store a complete turn, without a task because no agent is involved."""
        conversation_id = self._conversation(session, frame.conversation_id)
        if (conversation_id, frame.id) in self._outbox.subscriptions:
            raise InvalidInput(f"{shown(frame.id)} is already in progress", field="id", value=frame.id)
        messages = parse_frame_turn(frame)
        self._hub.rates.take(session.caller.name, "write")
        turn = Turn(
            session.owner,
            conversation_id,
            session.session_id,
            messages[0],
            turn_id=frame.id,
            wants_answer=False,
            is_complete=True,
        )
        self._outbox.subscribe(turn, wants_answer=False)
        try:
            turn.end(await store_turn(turn, messages, services=self._services))
        finally:
            if turn.outcome is None:
                self._outbox.unsubscribe(turn)

    def _conversation(self, session: ClientSession, wanted: str | None) -> str:
        """Return the conversation to write to. Raises `NotFound` unless it is watched."""
        session.caller.check("write")
        if self._hub.is_draining:
            raise StoreUnavailable("the server is restarting: connect again")
        if len(self._outbox.subscriptions) >= self._limits.turns_waiting:
            raise TooManyRequests("too many answers in progress", retry_after=1.0)
        return self._watch_list.watched(session, wanted)

    def _joins_running_turn(self, session: ClientSession, conversation_id: str, question: Message) -> bool:
        """Subscribe to the turn with this id if it is running already, and return whether it is.

        Raises `MessageConflict` if the running turn has another question.
        """
        turn_id = question.message_id or ""
        turn = self._hub.turns.running(session.owner, conversation_id, turn_id)
        if turn is None:
            return False
        if not _is_same_question(turn.question, question):
            raise MessageConflict(conversation_id, turn_id)
        if turn.key not in self._outbox.subscriptions:
            self._outbox.subscribe(turn, wants_answer=turn.wants_answer)
        return True

    def _ask(self, session: ClientSession, turn: Turn, work: Work) -> None:
        """Start a turn with an answer, with typing notices for other watchers."""
        hub, place = self._hub, (session.owner, turn.conversation_id)
        typing = partial(live_people.TypingNotice, conversation_id=turn.conversation_id, role="assistant")

        async def work_with_notices(turn: Turn) -> Outcome:
            hub.presences.notify(*place, typing(active=True), exclude=self._peer)
            try:
                return await work(turn)
            finally:
                hub.presences.notify(*place, typing(active=False), exclude=self._peer)

        self._start(turn, work_with_notices if hub.is_shared(*place) else work)

    def _start(self, turn: Turn, work: Work) -> None:
        self._hub.turns.start(turn, work, self._store_interrupted)
        self._outbox.subscribe(turn, wants_answer=turn.wants_answer)

    async def interrupt(self, session: ClientSession, frame: live.Interrupt) -> None:
        session.caller.check("write")
        wanted = frame.conversation_id
        only_in = None if wanted is None else parse_conversation_id(session, wanted)
        matching = [
            subscription
            for (conversation_id, turn_id), subscription in self._outbox.subscriptions.items()
            if frame.id in (None, turn_id)
            and only_in in (None, conversation_id)
            and subscription.wants_answer
        ]
        if not matching and frame.id is not None:
            conversation_id = self._watch_list.watched(session, frame.conversation_id)
            await interrupt_stored(session.manager, conversation_id, frame.id, heard=frame.heard)
            await self._hub.feeds.refresh(session.owner, conversation_id)
        for subscription in matching:
            subscription.turn.interrupt(subscription.sent if frame.heard is None else frame.heard)

    # Audio

    async def audio_start(self, session: ClientSession, frame: live.AudioStart) -> None:
        self._conversation(session, frame.conversation_id)
        # Fail before the client sends audio if the server has no transcriber.
        self._hub.services.transcribe(session.manager)
        if self._utterance is not None:
            raise InvalidInput(
                f"audio {shown(self._utterance.start.id)} has not ended yet", field="id", value=frame.id
            )
        self._utterance = Utterance(frame, self._limits)

    def add_audio(self, chunk: bytes) -> None:
        """Add a chunk of audio. Raises `TooLarge`."""
        if self._utterance is None:
            raise InvalidInput("audio must be announced by audio.start", field="audio")
        self._utterance.add(chunk)

    def discard_audio(self) -> str | None:
        """Discard the current audio and return its id."""
        utterance, self._utterance = self._utterance, None
        return None if utterance is None else utterance.start.id

    async def audio_end(self, session: ClientSession, frame: live.AudioEnd) -> None:
        utterance = self._take_utterance(frame.id)
        audio, transcribe = utterance.complete(), self._hub.services.transcribe(session.manager)
        conversation_id = self._conversation(session, utterance.start.conversation_id)
        question = Message(role="user", content="", content_type="audio", message_id=frame.id)
        if self._joins_running_turn(session, conversation_id, question):
            return
        self._hub.rates.take(session.caller.name, "ask")

        async def transcribe_and_answer(turn: Turn) -> Outcome:
            message = await transcribe(audio, utterance.start)
            turn.question = message.with_(message_id=turn.id)
            self._outbox.reply(live.Transcript(id=turn.id, text=meaning_of(message).text))
            return await self._answer(turn)

        turn = Turn(session.owner, conversation_id, session.session_id, question)
        self._ask(session, turn, transcribe_and_answer)

    async def audio_cancel(self, session: ClientSession, frame: live.AudioCancel) -> None:
        self._take_utterance(frame.id)

    def _take_utterance(self, utterance_id: str) -> Utterance:
        utterance = self._utterance
        if utterance is None or utterance.start.id != utterance_id:
            raise NotFound(f"there is no audio {shown(utterance_id)} in progress")
        self._utterance = None
        return utterance


def _is_same_question(one: Message, other: Message) -> bool:
    """Compare two questions. Audio without a transcript yet compares by its type only."""
    if "audio" in (one.content_type, other.content_type):
        return one.content_type == other.content_type
    return one.same_content_as(other)
