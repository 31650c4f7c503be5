"""Turns in progress.

A turn belongs to the process, not to a connection: if the connection breaks, the turn is still answered and
stored, and a client that resumes gets the rest. Two requests with one id are answered once. Turns of one
conversation run in order of arrival.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.tasks import ended
from aforesaid.agents import Answer
from aforesaid.agents.progress import INTERRUPTED, TurnProgress
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
from aforesaid.server.live.feeds import EncodedEntry, Feeds
from aforesaid.spoken_answers import spoken_form, word_end
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.server.live")

Wake = Callable[[], None]
TurnKey = tuple[str, str]
"""Conversation id and turn id. Turn ids are unique within a conversation only."""


class Assistant(Protocol):
    """Answers questions; a `SupervisorAgent`."""

    async def answer_query(
        self,
        query: str | Message,
        session_id: str,
        conversation_id: str | None = None,
        *,
        on_text: OnText | None = None,
        progress: TurnProgress | None = None,
    ) -> Answer: ...


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a turn: an answer, or an error with nothing stored."""

    text: str = ""
    message_ids: tuple[str, ...] = ()
    entries: tuple[EncodedEntry, ...] = ()
    spoken: str | None = None
    interrupted: bool = False
    repeated: bool = False
    stored: bool = True
    """False for an answer that is delivered although it could not be stored."""
    error: AforesaidError | None = None


class Turn:
    """One turn and its subscribers."""

    def __init__(
        self,
        owner: str,
        conversation_id: str,
        session_id: str,
        question: Message,
        *,
        turn_id: str | None = None,
        wants_answer: bool = True,
        is_complete: bool = False,
    ) -> None:
        """`turn_id` is the question's id by default.

        `is_complete` means that the client sent the complete turn.
        """
        self.owner = owner
        self.conversation_id = conversation_id
        self.session_id = session_id
        self.question = question
        self.id = turn_id or question.message_id or ""
        # The answer so far.
        self.text = ""
        self.outcome: Outcome | None = None
        self.wants_answer = wants_answer
        self.is_complete = is_complete
        self.progress = TurnProgress()
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self._wakes: set[Wake] = set()
        self._finish: asyncio.Event | None = None

    @property
    def key(self) -> "TurnKey":
        """The key among the turns of an owner."""
        return self.conversation_id, self.id

    @property
    def heard(self) -> int | None:
        """Heard characters of an interrupted answer; None unless interrupted."""
        return self.progress.heard

    def listen(self, wake: Wake) -> None:
        self._wakes.add(wake)

    def leave(self, wake: Wake) -> None:
        self._wakes.discard(wake)

    def add_text(self, text: str) -> None:
        self.text += text
        self._wake()

    def interrupt(self, heard: int) -> None:
        """Stop answering. Only the first call has an effect."""
        if self.heard is not None or self.outcome is not None or self.task is None:
            return
        self.progress.interrupt(max(0, heard))
        if self.has_begun:  # a task that is cancelled before it starts never runs
            self.task.cancel()

    def end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        if self._finish is not None:
            self._finish.set()
        self._wake()

    async def wait(self) -> None:
        """Wait until the turn has ended."""
        if self.outcome is None:
            self._finish = self._finish or asyncio.Event()
            await self._finish.wait()

    def _wake(self) -> None:
        for wake in tuple(self._wakes):
            wake()


Work = Callable[[Turn], Awaitable[Outcome]]

CANCELLED = Outcome(error=AgentError("the answer was cancelled"))


class Turns:
    """All turns of this process."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds
        self._running: dict[tuple[str, str, str], Turn] = {}
        self._last: dict[tuple[str, str], Turn] = {}

    def __len__(self) -> int:
        return len(self._running)

    def of_session(self, owner: str, conversation_id: str, session_id: str) -> list[Turn]:
        """Return the running turns of a session."""
        return [
            turn
            for turn in self._running.values()
            if (turn.owner, turn.conversation_id, turn.session_id) == (owner, conversation_id, session_id)
        ]

    def running(self, owner: str, conversation_id: str, turn_id: str) -> Turn | None:
        return self._running.get((owner, conversation_id, turn_id))

    def start(self, turn: Turn, work: Work, when_interrupted: Work) -> None:
        """Run a turn in a task of its own."""
        place = turn.owner, turn.conversation_id
        # Each turn waits for the previous one of its conversation, so they form a chain without a queue.
        before = self._last.get(place)
        self._running[*place, turn.id] = self._last[place] = turn
        running = self._run(turn, work, when_interrupted, before)
        turn.task = asyncio.create_task(running, name="aforesaid-live-turn")
        # A task that is cancelled before its first step never runs `_run`, so end the turn here as well.
        turn.task.add_done_callback(lambda _: self._finish(turn))

    async def drain(self, seconds: float) -> None:
        """Wait for running turns, then cancel the rest, which store nothing."""
        tasks = {turn.task for turn in self._running.values() if turn.task is not None}
        if tasks and seconds:
            _, tasks = await asyncio.wait(tasks, timeout=seconds)
        if tasks:
            log.warning("%d answers were cancelled", len(tasks))
        await ended(*tasks)

    async def _run(self, turn: Turn, work: Work, when_interrupted: Work, before: Turn | None) -> None:
        outcome = CANCELLED
        try:
            outcome = await _execute(turn, work, when_interrupted, before)
        except AforesaidError as error:
            outcome = Outcome(error=error)
        except Exception:  # agents are plug-ins: any error must reach the client
            log.exception("a turn failed and was not stored")
            outcome = Outcome(error=AgentError("the answer failed"))
        finally:
            self._finish(turn, outcome)

    def _finish(self, turn: Turn, outcome: Outcome = CANCELLED) -> None:
        """End a turn, including one whose task was cancelled before it started."""
        place = turn.owner, turn.conversation_id
        if self._running.pop((*place, turn.id), None) is None:
            return
        turn.end(outcome)
        if self._last.get(place) is turn:
            del self._last[place]


async def _execute(turn: Turn, work: Work, when_interrupted: Work, before: Turn | None) -> Outcome:
    turn.has_begun = True
    try:
        if before is not None and before.outcome is None and turn.heard is None:
            await before.wait()
        if turn.heard is None:
            return await work(turn)
    except asyncio.CancelledError:
        if turn.heard is None or turn.task is None:
            raise
        # The cancellation was an interruption, not a shutdown: the task continues and stores what was heard.
        turn.task.uncancel()
    return await when_interrupted(turn)


# The work of a turn


class TurnServices(NamedTuple):
    """What a turn needs."""

    manager: ConversationManager
    assistant: Callable[[], Assistant]
    feeds: Feeds
    may_repeat: bool
    """Whether turns may be repeated, because the client resumes."""


async def answer_turn(turn: Turn, *, services: TurnServices) -> Outcome:
    """Answer the question and store both."""
    if services.may_repeat and (known := await find_repeated(turn, services)) is not None:
        return known
    try:
        answer = await services.assistant().answer_query(
            turn.question,
            turn.session_id,
            turn.conversation_id,
            on_text=turn.add_text,
            progress=turn.progress,
        )
    except Conflict:
        # Another server answered the same question first; return the stored answer.
        if (known := await find_repeated(turn, services)) is not None:
            return known
        raise
    outcome = await _deliver(turn, answer.stored or answer.not_stored, answer.messages, services)
    return replace(outcome, text=answer.text, spoken=_spoken_text(turn, answer.text))


async def _deliver(
    turn: Turn, stored: Appended | NotStored | None, messages: Sequence[Message], services: TurnServices
) -> Outcome:
    """Return the outcome of an answered turn and publish it to watchers, if it is stored."""
    # The user has the answer already. From here, an error must not replace it.
    unstored = Outcome(message_ids=tuple(message.message_id or "" for message in messages), stored=False)
    if stored is None or isinstance(stored, NotStored):
        return unstored
    try:
        return await _publish(turn, stored, services)
    except AforesaidError as error:  # the turn is stored, and polling will publish it later
        log.warning("a turn cannot be published to watchers yet: %s", describe(error))
        return replace(unstored, stored=True)


def _spoken_text(turn: Turn, text: str) -> str | None:
    """Return the text to speak; None unless the question was spoken."""
    return spoken_form(text) if turn.question.content_type == "audio" else None


async def store_message(turn: Turn, *, services: TurnServices) -> Outcome:
    """Store a message without an answer."""
    return await _publish(
        turn, await services.manager.append(turn.conversation_id, [turn.question]), services
    )


async def store_turn(turn: Turn, messages: Sequence[Message], *, services: TurnServices) -> Outcome:
    """Store a complete turn."""
    return await _publish(turn, await services.manager.append(turn.conversation_id, messages), services)


async def store_interrupted(turn: Turn, *, services: TurnServices) -> Outcome:
    """Store the generated part of an interrupted answer and the length that was heard."""
    if not turn.question.content:
        return CANCELLED  # audio without a transcript yet
    # An assistant that had begun has stored it.
    if (known := await find_repeated(turn, services)) is not None:
        return replace(known, text=turn.text, interrupted=True, repeated=False)
    messages = [turn.question, *_partial_answer(turn)]
    try:
        stored = await append_or_queue(services.manager, turn.conversation_id, messages)
    except Conflict:
        # The whole turn was stored at the same time.
        if (known := await find_repeated(turn, services)) is not None:
            return known
        raise
    return replace(await _deliver(turn, stored, messages, services), text=turn.text, interrupted=True)


def _partial_answer(turn: Turn) -> Iterable[Message]:
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


async def interrupt_stored(
    manager: ConversationManager, conversation_id: str, turn_id: str, *, heard: int | None
) -> None:
    """Record the interruption of a stored answer that was being spoken. Raises `NotFound`, `InvalidInput`."""
    entries = await _stored_turn(manager, conversation_id, turn_id)
    answer = next((e.message for e in reversed(entries) if e.message.role == "assistant"), None)
    if answer is None or answer.message_id is None:
        raise NotFound(f"there is no answer to {shown(turn_id)}")
    if heard is None:
        raise InvalidInput("heard is required for a complete answer", field="heard")
    by_voice = entries[0].message.content_type == "audio"
    spoken = None if by_voice else meaning_of(answer).text
    await manager.interrupted(conversation_id, answer.message_id, heard=heard, spoken=spoken)


async def _publish(turn: Turn, appended: Appended, services: TurnServices) -> Outcome:
    """Publish stored entries to watchers.

    While the store is unavailable, entries have no sequences yet; polling publishes them later.
    """
    entries = (*appended.known, *appended.new)
    ids = tuple(entry.message.message_id or "" for entry in entries)
    if services.manager.degraded:
        return Outcome(message_ids=ids)
    encoded = tuple(EncodedEntry(entry) for entry in entries)
    new = encoded[len(appended.known) :]
    await services.feeds.stored(turn.owner, turn.conversation_id, appended, new)
    return Outcome(message_ids=ids, entries=encoded, repeated=not new)


async def find_repeated(turn: Turn, services: TurnServices) -> Outcome | None:
    """Return the outcome of a turn that is already stored or queued for storing; None if it is neither."""
    if queued := _queued_turn(services.manager, turn.conversation_id, turn.id):
        return _queued_outcome(turn, queued)
    entries = await _stored_turn(services.manager, turn.conversation_id, turn.id)
    answer = next((e.message for e in reversed(entries) if e.message.role == "assistant"), None)
    if answer is None:
        return None
    if not entries[0].message.same_content_as(turn.question):
        raise MessageConflict(turn.conversation_id, turn.id)
    return Outcome(
        text=meaning_of(answer).text,
        spoken=_spoken_text(turn, meaning_of(answer).text),
        message_ids=tuple(entry.message.message_id or "" for entry in entries),
        entries=tuple(EncodedEntry(entry) for entry in entries),
        interrupted=INTERRUPTED in answer.tags,
        repeated=True,
    )


async def _stored_turn(manager: ConversationManager, conversation_id: str, turn_id: str) -> list[Entry]:
    """Return the stored entries of a turn, by their derived ids."""
    found = await manager.store.entry(conversation_id, turn_id)
    entries: list[Entry] = []
    while found is not None:
        entries.append(found)
        found = await manager.store.entry(conversation_id, following_id(turn_id, len(entries)))
    return entries


def _queued_turn(manager: ConversationManager, conversation_id: str, turn_id: str) -> list[Message]:
    """Return the messages of a turn that waits to be stored."""
    queued = {one.message_id: one for one in manager.unstored.messages(manager.owner, conversation_id)}
    found: list[Message] = []
    following = queued.get(turn_id)
    while following is not None:
        found.append(following)
        following = queued.get(following_id(turn_id, len(found)))
    return found


def _queued_outcome(turn: Turn, messages: Sequence[Message]) -> Outcome:
    if not messages[0].same_content_as(turn.question):
        raise MessageConflict(turn.conversation_id, turn.id)
    answer = next((one for one in reversed(messages) if one.role == "assistant"), None)
    text = "" if answer is None else meaning_of(answer).text
    return Outcome(
        text=text,
        spoken=_spoken_text(turn, text),
        message_ids=tuple(message.message_id or "" for message in messages),
        interrupted=answer is not None and INTERRUPTED in answer.tags,
        repeated=True,
        stored=False,
    )
