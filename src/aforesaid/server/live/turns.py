"""Turns under way: each runs to its end, whoever still listens. Below: agents, feeds. Above: connections.

A turn belongs to this process, not to the connection that asked: when that breaks, the turn is finished
and stored, and the client that comes back is given the rest. What was said twice with one id is answered
once. Turns of one conversation are answered in the order in which they came.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.deadlines import ended
from aforesaid.agents import Answer
from aforesaid.agents.stored_turns import append_or_queue
from aforesaid.contracts import Appended, Entry, OnText
from aforesaid.dialects import meaning_of
from aforesaid.errors import (
    AforesaidError,
    AgentError,
    Conflict,
    InvalidInput,
    MessageConflict,
    NotFound,
    shown,
)
from aforesaid.intake.unstored_turns import NotStored
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import following_id, storable_text
from aforesaid.model.messages import Message, Speech
from aforesaid.server.live.feeds import Feeds, Piece
from aforesaid.speech.spoken_form import spoken_form, word_end
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.server.live")

Wake = Callable[[], None]
TurnKey = tuple[str, str]
"""A conversation, and the id of a turn in it: another conversation may have the same id."""


class Assistant(Protocol):
    """Who answers: a `SupervisorAgent`."""

    async def answer_query(
        self,
        query: str | Message,
        session_id: str,
        conversation_id: str | None = None,
        *,
        on_text: OnText | None = None,
    ) -> Answer: ...


class Outcome(Struct, frozen=True, kw_only=True):
    """How a turn came out: it is answered, or there is an error and nothing of it is stored."""

    text: str = ""
    message_ids: tuple[str, ...] = ()
    pieces: tuple[Piece, ...] = ()
    spoken: str | None = None
    interrupted: bool = False
    repeated: bool = False
    stored: bool = True
    """False for an answer that could not be stored, and is delivered all the same."""
    error: AforesaidError | None = None


class Turn:
    """One turn, as those who listen see it."""

    def __init__(
        self,
        owner: str,
        conversation_id: str,
        session_id: str,
        question: Message,
        *,
        turn_id: str | None = None,
        wants_answer: bool = True,
        is_given: bool = False,
    ) -> None:
        """Its id is that of the question, unless it has one of its own. `is_given`: whoever listens has
        said all of it."""
        self.owner = owner
        self.conversation_id = conversation_id
        self.session_id = session_id
        self.question = question
        self.id = turn_id or question.message_id or ""
        self.text = ""
        """What was said of the answer so far."""
        self.outcome: Outcome | None = None
        self.wants_answer = wants_answer
        self.is_given = is_given
        self.heard: int | None = None
        """How many characters were heard when it was interrupted; None when it was not."""
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self._wakes: set[Wake] = set()
        self._over: asyncio.Event | None = None

    @property
    def key(self) -> "TurnKey":
        """What it is known by among its owner's turns."""
        return self.conversation_id, self.id

    def listen(self, wake: Wake) -> None:
        self._wakes.add(wake)

    def leave(self, wake: Wake) -> None:
        self._wakes.discard(wake)

    def say(self, piece: str) -> None:
        self.text += piece
        self._wake()

    def interrupt(self, heard: int) -> None:
        """Stop answering. Interrupted twice, the first time counts."""
        if self.heard is not None or self.outcome is not None or self.task is None:
            return
        self.heard = heard
        if self.has_begun:  # a task that is cancelled before it begins never runs at all
            self.task.cancel()

    def end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        if self._over is not None:
            self._over.set()
        self._wake()

    async def wait(self) -> None:
        """Until it has ended."""
        if self.outcome is None:
            self._over = self._over or asyncio.Event()
            await self._over.wait()

    def _wake(self) -> None:
        for wake in tuple(self._wakes):
            wake()


Work = Callable[[Turn], Awaitable[Outcome]]

GIVEN_UP = Outcome(error=AgentError("the answer was given up"))
INTERRUPTED = "interrupted"
"""The tag of an answer that was interrupted: what is stored is what was heard."""


class Turns:
    """All turns of this process."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds
        self._running: dict[tuple[str, str, str], Turn] = {}
        self._last: dict[tuple[str, str], Turn] = {}

    def __len__(self) -> int:
        return len(self._running)

    def of_session(self, owner: str, conversation_id: str, session_id: str) -> list[Turn]:
        """What is being answered for a session."""
        return [
            turn
            for turn in self._running.values()
            if (turn.owner, turn.conversation_id, turn.session_id) == (owner, conversation_id, session_id)
        ]

    def running(self, owner: str, conversation_id: str, turn_id: str) -> Turn | None:
        return self._running.get((owner, conversation_id, turn_id))

    def start(self, turn: Turn, work: Work, when_interrupted: Work) -> None:
        """Let it run to its end."""
        place = turn.owner, turn.conversation_id
        before = self._last.get(place)
        self._running[*place, turn.id] = self._last[place] = turn
        running = self._run(turn, work, when_interrupted, before)
        turn.task = asyncio.create_task(running, name="aforesaid-live-turn")
        turn.task.add_done_callback(lambda _: self._over(turn))

    async def drain(self, seconds: float) -> None:
        """Wait for what is under way; what takes longer is given up, and leaves no trace."""
        tasks = {turn.task for turn in self._running.values() if turn.task is not None}
        if tasks and seconds:
            _, tasks = await asyncio.wait(tasks, timeout=seconds)
        if tasks:
            log.warning("%d answers were given up", len(tasks))
        await ended(*tasks)

    async def _run(self, turn: Turn, work: Work, when_interrupted: Work, before: Turn | None) -> None:
        outcome = GIVEN_UP
        try:
            outcome = await _done(turn, work, when_interrupted, before)
        except AforesaidError as error:
            outcome = Outcome(error=error)
        except Exception:  # the edge: whatever an agent of somebody else's does, its user is told
            log.exception("a turn failed and was not stored")
            outcome = Outcome(error=AgentError("the answer failed"))
        finally:
            self._over(turn, outcome)

    def _over(self, turn: Turn, outcome: Outcome = GIVEN_UP) -> None:
        """The turn has ended; also one that was given up before it began."""
        place = turn.owner, turn.conversation_id
        if self._running.pop((*place, turn.id), None) is None:
            return
        turn.end(outcome)
        if self._last.get(place) is turn:
            del self._last[place]


async def _done(turn: Turn, work: Work, when_interrupted: Work, before: Turn | None) -> Outcome:
    turn.has_begun = True
    try:
        if before is not None and before.outcome is None and turn.heard is None:
            await before.wait()
        if turn.heard is None:
            return await work(turn)
    except asyncio.CancelledError:
        if turn.heard is None or turn.task is None:
            raise
        turn.task.uncancel()
    return await when_interrupted(turn)


# What a turn does


class Service(NamedTuple):
    """Who serves a turn."""

    manager: ConversationManager
    assistant: Callable[[], Assistant]
    feeds: Feeds
    may_repeat: bool
    """Whether it may have been stored before: the client was connected earlier."""


async def answered(turn: Turn, *, service: Service) -> Outcome:
    """The question answered, and both stored."""
    if service.may_repeat and (known := await repeated(turn, service)) is not None:
        return known
    try:
        answer = await service.assistant().answer_query(
            turn.question, turn.session_id, turn.conversation_id, on_text=turn.say
        )
    except Conflict:
        # Another server was asked the same, and was first: what it stored is the answer.
        if (known := await repeated(turn, service)) is not None:
            return known
        raise
    outcome = await _delivered(turn, answer.stored or answer.not_stored, answer.messages, service)
    return replace(outcome, text=answer.text, spoken=_spoken(turn, answer.text))


async def _delivered(
    turn: Turn, stored: Appended | NotStored | None, messages: Sequence[Message], service: Service
) -> Outcome:
    """The outcome of a turn with an answer, whether it is stored or not, and whether watchers are told."""
    unstored = Outcome(message_ids=tuple(message.message_id or "" for message in messages), stored=False)
    if stored is None or isinstance(stored, NotStored):
        return unstored
    try:
        return await _told(turn, stored, service)
    except AforesaidError as error:  # it is stored, and the feed looks at the store again by itself
        log.warning("watchers are not told of a turn yet: %s", describe(error))
        return replace(unstored, stored=True)


def _spoken(turn: Turn, text: str) -> str | None:
    """What to say aloud: who spoke is spoken to."""
    return spoken_form(text) if turn.question.content_type == "audio" else None


async def stored_only(turn: Turn, *, service: Service) -> Outcome:
    """Words that want no answer, stored."""
    return await _told(turn, await service.manager.append(turn.conversation_id, [turn.question]), service)


async def stored_whole(turn: Turn, messages: Sequence[Message], *, service: Service) -> Outcome:
    """A turn that was answered elsewhere, stored."""
    return await _told(turn, await service.manager.append(turn.conversation_id, messages), service)


async def interrupted(turn: Turn, *, service: Service) -> Outcome:
    """What was generated of an answer, stored with a note on how much of it was heard."""
    if not turn.question.content:
        return GIVEN_UP  # audio that was not understood yet
    said = [turn.question, *_cut_off(turn)]
    try:
        stored = await append_or_queue(service.manager, turn.conversation_id, said)
    except Conflict:
        # It was stored whole in the same moment.
        if (known := await repeated(turn, service)) is not None:
            return known
        raise
    return replace(await _delivered(turn, stored, said, service), text=turn.text, interrupted=True)


def _cut_off(turn: Turn) -> Iterable[Message]:
    words, heard = turn.text, turn.heard or 0
    if not words.strip():
        return
    speech = None
    if storable_text(words):
        speech = Speech(spoken=words, heard=None if heard >= len(words) else word_end(words, heard))
    yield Message(
        role="assistant",
        content=words,
        message_id=following_id(turn.id, 1),
        tags=(INTERRUPTED,),
        speech=speech,
    )


async def cut_in(
    manager: ConversationManager, conversation_id: str, turn_id: str, *, heard: int | None
) -> None:
    """Somebody cut in while an answer that is stored was spoken. Raises `NotFound`, `InvalidInput`."""
    entries = await _stored_turn(manager, conversation_id, turn_id)
    answer = next((e.message for e in reversed(entries) if e.message.role == "assistant"), None)
    if answer is None or answer.message_id is None:
        raise NotFound(f"nothing was answered under the id {shown(turn_id)}")
    if heard is None:
        raise InvalidInput("heard must be given for an answer that is complete", field="heard")
    by_voice = entries[0].message.content_type == "audio"
    spoken = None if by_voice else meaning_of(answer).text
    await manager.interrupted(conversation_id, answer.message_id, heard=heard, spoken=spoken)


async def _told(turn: Turn, appended: Appended, service: Service) -> Outcome:
    """Let those who watch know. While the store is away its numbers are not known: they are told later."""
    entries = (*appended.known, *appended.new)
    ids = tuple(entry.message.message_id or "" for entry in entries)
    if service.manager.degraded:
        return Outcome(message_ids=ids)
    pieces = tuple(Piece(entry) for entry in entries)
    new = pieces[len(appended.known) :]
    await service.feeds.stored(turn.owner, turn.conversation_id, appended, new)
    return Outcome(message_ids=ids, pieces=pieces, repeated=not new)


async def repeated(turn: Turn, service: Service) -> Outcome | None:
    """The turn as it was stored before, or as it is queued to be stored; None when it is neither."""
    if queued := _queued_turn(service.manager, turn.conversation_id, turn.id):
        return _known_unstored(turn, queued)
    entries = await _stored_turn(service.manager, turn.conversation_id, turn.id)
    answer = next((e.message for e in reversed(entries) if e.message.role == "assistant"), None)
    if answer is None:
        return None
    if not entries[0].message.same_content_as(turn.question):
        raise MessageConflict(turn.conversation_id, turn.id)
    return Outcome(
        text=meaning_of(answer).text,
        spoken=_spoken(turn, meaning_of(answer).text),
        message_ids=tuple(entry.message.message_id or "" for entry in entries),
        pieces=tuple(Piece(entry) for entry in entries),
        interrupted=INTERRUPTED in answer.tags,
        repeated=True,
    )


async def _stored_turn(manager: ConversationManager, conversation_id: str, turn_id: str) -> list[Entry]:
    """The question and what follows it, by their ids."""
    found = await manager.store.entry(conversation_id, turn_id)
    entries: list[Entry] = []
    while found is not None:
        entries.append(found)
        found = await manager.store.entry(conversation_id, following_id(turn_id, len(entries)))
    return entries


def _queued_turn(manager: ConversationManager, conversation_id: str, turn_id: str) -> list[Message]:
    """The question and what follows it, where they could not be stored yet."""
    queued = {one.message_id: one for one in manager.unstored.messages(manager.owner, conversation_id)}
    found: list[Message] = []
    following = queued.get(turn_id)
    while following is not None:
        found.append(following)
        following = queued.get(following_id(turn_id, len(found)))
    return found


def _known_unstored(turn: Turn, messages: Sequence[Message]) -> Outcome:
    if not messages[0].same_content_as(turn.question):
        raise MessageConflict(turn.conversation_id, turn.id)
    answer = next((one for one in reversed(messages) if one.role == "assistant"), None)
    text = "" if answer is None else meaning_of(answer).text
    return Outcome(
        text=text,
        spoken=_spoken(turn, text),
        message_ids=tuple(message.message_id or "" for message in messages),
        interrupted=answer is not None and INTERRUPTED in answer.tags,
        repeated=True,
        stored=False,
    )
