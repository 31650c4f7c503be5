"""Supervisor: route a query to a specialist and store the turn."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from msgspec.structs import replace

from aforesaid._internal.arguments import validated
from aforesaid._internal.tasks import within
from aforesaid.agents.loop import Answer, as_question
from aforesaid.agents.progress import TurnProgress
from aforesaid.agents.routing import Recent, Router, last_agent
from aforesaid.agents.stored_turns import arrived_turn, run_turn
from aforesaid.agents.turn_order import Found, Undo, remove_if_unchanged, running_turn
from aforesaid.agents.views import Specialist, visible_messages
from aforesaid.contracts import OnText
from aforesaid.dialects import meaning_of
from aforesaid.errors import (
    AforesaidError,
    AgentRateLimited,
    AgentRefused,
    AgentTimedOut,
    AgentUnavailable,
    ConversationNotFound,
    InvalidInput,
    InvalidSetting,
    RequestTooLong,
    TooManySteps,
    TurnIncomplete,
    shown,
)
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sessions import SessionManager
from aforesaid.model.conversations import Channel
from aforesaid.model.ids import is_uuid, parse_conversation, parse_name
from aforesaid.model.messages import ContentType, Message
from aforesaid.telemetry import describe

# Routers choose the agent that answers: by rule or with a model.


log = logging.getLogger("aforesaid.agents")

_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (
        TurnIncomplete,
        "I'm sorry, I could not finish that. Some of it may be done already, so please ask me about it "
        "before you repeat it.",
    ),
    (AgentTimedOut, "I'm sorry, that took too long. Please try again."),
    (AgentRateLimited, "I'm sorry, I have too many requests right now. Please try again in a moment."),
    (AgentUnavailable, "I'm sorry, I can't reach the service that I need right now. Please try again."),
    (AgentRefused, "I'm sorry, I can't help with that."),
    (RequestTooLong, "I'm sorry, that was too long for me. Please try it in smaller parts."),
    (TooManySteps, "I'm sorry, I could not finish that. Please try asking in another way."),
)
_DEFAULT = "I'm sorry, something went wrong. Please try again."


def apology_for(error: BaseException) -> str:
    """Return an apology that tells the user what to do. Details of the error belong in the log."""
    return next((words for kind, words in _WORDS if isinstance(error, kind)), _DEFAULT)


class Sessions(Protocol):
    """The methods of a session manager that the supervisor uses."""

    async def get_conversation_id(self, session_id: str) -> str | None: ...

    async def create_session(
        self, session_id: str, channel: Channel = "voice", *, device: str | None = None
    ) -> Any: ...

    async def end_session(self, session_id: str) -> Any: ...


class Apology(NamedTuple):
    """The text for the user when a turn failed."""

    text: str
    error: Exception
    kept: bool = False
    """Whether the turn had effects or was heard in part, and is stored with what happened. Otherwise the
    history is unchanged.
    """


# Seconds that a turn may take: several requests and tools. Nobody waits longer for a written answer.
DEADLINE = 120.0
# Seconds that a router may take before the agent that answered last, or the default, answers.
ROUTER_DEADLINE = 5.0


def check_deadline(seconds: float | None, *, field: str) -> float | None:
    """Return the seconds of a deadline. Raise `InvalidSetting`."""
    if seconds is not None and (isinstance(seconds, bool) or not 0 < seconds < float("inf")):
        raise InvalidSetting(
            f"{field} must be a number of seconds above 0, or None; got {shown(seconds)}",
            field=field,
            value=seconds,
        )
    return seconds


@validated
class SupervisorAgent:
    """Answers with one of several specialists.

    - `specialists`: the first one is the default.
    - `router`: chooses the specialist. When it returns None or an unknown name, fails or takes too long, the
      agent that answered last answers: most such queries are follow-ups ("and when is it due?").
    - `sessions`: maps sessions to conversations; by default the manager.
    - `apology`: returns the text for the user when a turn fails.
    - `deadline`: seconds that a turn may take; then it fails with `AgentTimedOut`. None waits indefinitely.
    - `router_deadline`: seconds that the router may take.

    Turns of one conversation are stored in the order of their queries.
    """

    def __init__(
        self,
        conversation_manager: ManagerProtocol,
        specialists: Sequence[Specialist],
        *,
        router: Router | None = None,
        sessions: Sessions | None = None,
        channel: Channel = "text",
        apology: Callable[[BaseException], str] = apology_for,
        deadline: float | None = DEADLINE,
        router_deadline: float | None = ROUTER_DEADLINE,
    ) -> None:
        self.conversation_manager = conversation_manager
        self._specialists = _by_name(specialists)
        self._router = router
        self._sessions = sessions
        self._channel: Channel = channel
        self.apology = apology
        self._deadline = check_deadline(deadline, field="deadline")
        self._router_deadline = check_deadline(router_deadline, field="router_deadline")

    async def process_query(
        self,
        query: str | Message,
        session_id: str,
        conversation_id: str | None = None,
        *,
        content_type: ContentType = "text",
        device: str | None = None,
        on_text: OnText | None = None,
    ) -> str:
        """Answer a query and store the whole turn with `agent_name`. Return the answer as text.

        `conversation_id` selects the conversation; by default it is the session's, created on demand. A new
        session continues the conversation of its `device`. A query with a known message id returns the stored
        answer. When the turn fails, the text is an apology, the query stays as an open turn
        (`answer_unanswered`), and the history stays unchanged. If tools had effects by then, the turn is
        stored as incomplete instead. An answer that cannot be stored is returned and queued;
        `answer_or_apology` reports that in `Answer.not_stored`.
        """
        question = _question(query, content_type)
        # A wrong id is the caller's mistake and raises; later errors become an apology.
        if conversation_id is not None:
            await self.conversation_manager.get_conversation(conversation_id)
        answer = await self.answer_or_apology(
            question, session_id, conversation_id, device=device, on_text=on_text
        )
        return answer.text

    async def answer_or_apology(
        self,
        query: str | Message,
        session_id: str,
        conversation_id: str | None = None,
        *,
        device: str | None = None,
        on_text: OnText | None = None,
        undo: Undo | None = None,
        deadline: float | None = None,
        progress: TurnProgress | None = None,
    ) -> "Answer | Apology":
        """Return the answer, or an apology with the error when the turn failed."""
        turn = TurnProgress() if progress is None else progress
        try:
            answer = await self.answer_query(
                query,
                session_id,
                conversation_id,
                device=device,
                on_text=on_text,
                undo=undo,
                deadline=deadline,
                progress=turn,
            )
        except Exception as error:  # noqa: BLE001  a plug-in may raise anything; the user gets an apology
            return self.apologize(error, turn)
        # A stored turn that broke off before any word has nothing to say to the user.
        return answer if answer.text else replace(answer, text=self.apology(TurnIncomplete()))

    def apologize(self, error: Exception, progress: TurnProgress) -> Apology:
        """Log the error of a failed turn and return the apology for the user."""
        if isinstance(error, AforesaidError):
            log.warning("a turn failed: %s", describe(error))
        else:
            log.error("a turn failed", exc_info=error)
        said = self.apology(TurnIncomplete(str(error)) if progress.is_kept and progress.effects else error)
        return Apology(text=said, error=error, kept=progress.is_kept)

    async def answer_query(
        self,
        query: str | Message,
        session_id: str,
        conversation_id: str | None = None,
        *,
        device: str | None = None,
        on_text: OnText | None = None,
        undo: Undo | None = None,
        deadline: float | None = None,
        progress: TurnProgress | None = None,
    ) -> Answer:
        """Return the answer with the messages of its turn. Errors are raised and leave the question
        unanswered and the log unchanged, unless the turn had effects (see `answer_turn`).

        - `undo` removes the conversation that was created for this turn. It is called when the turn fails
          and no other turn runs there.
        - `deadline` replaces the supervisor's.
        - `progress` has what the turn has done, and takes interruptions.
        """
        turn = _Query(
            _question(query, "text"),
            on_text,
            check_deadline(deadline, field="deadline") or self._deadline,
            TurnProgress() if progress is None else progress,
        )
        name, look_up = self._look_up(session_id, conversation_id, device, undo)
        async with running_turn(self.conversation_manager, name, look_up) as found:
            return await self._answer(turn, found)

    def _look_up(
        self, session_id: str, conversation_id: str | None, device: str | None, undo: Undo | None
    ) -> tuple[str, Callable[[], Awaitable[Found]]]:
        """Return the name of a conversation or session, and the function that finds or creates it."""
        if conversation_id is not None:
            given = parse_conversation(conversation_id)
            return given, partial(self._conversation, given, undo)
        parse_name(session_id, field="session_id")
        sessions = self._sessions
        if sessions is None and device is not None:
            sessions = cast(Sessions, SessionManager(cast(ConversationManager, self.conversation_manager)))
        if sessions is not None:
            return session_id, partial(self._session_of, sessions, session_id, device)
        return session_id, partial(self._session, session_id)

    async def _conversation(self, given: str, undo: Undo | None) -> Found:
        """Find a conversation by id or name. An unknown name creates one, for this turn only."""
        manager = self.conversation_manager
        if is_uuid(given):
            return Found(given, undo)
        try:
            return Found((await manager.get_conversation(given)).id, undo)
        except ConversationNotFound:
            record = await manager.update_metadata(given, channel=self._channel)
            return Found(record.id, partial(remove_if_unchanged, manager, record))

    async def _session(self, session_id: str) -> Found:
        manager = self.conversation_manager
        existing = await manager.session(session_id)
        if existing is not None:
            return Found(existing.id, record=existing)
        created = await manager.get_or_create_conversation(session_id, channel=self._channel)
        return Found(created.id, partial(remove_if_unchanged, manager, created))

    async def _session_of(self, sessions: Sessions, session_id: str, device: str | None) -> Found:
        existing = await sessions.get_conversation_id(session_id)
        if existing is not None:
            return Found(existing)
        options = {} if device is None else {"device": device}
        await sessions.create_session(session_id, self._channel, **options)
        conversation_id = await sessions.get_conversation_id(session_id)
        if conversation_id is None:
            raise InvalidInput(f"there is no session {shown(session_id)}", field="session_id")
        return Found(conversation_id, partial(end_session_quietly, sessions, session_id))

    async def _answer(self, query: "_Query", found: Found) -> Answer:
        manager, conversation_id = self.conversation_manager, found.conversation_id
        started = asyncio.get_running_loop().time()
        async with arrived_turn(manager, conversation_id, query.question, found.record) as turn:
            if turn.known is not None:
                return turn.known
            specialist = await self._specialist_for(turn.question, conversation_id)
            log.debug("%s answers in conversation %s", specialist.name, conversation_id)
            spent = asyncio.get_running_loop().time() - started
            return await run_turn(
                manager,
                conversation_id,
                specialist,
                turn,
                on_text=query.on_text,
                deadline=None if query.deadline is None else max(0.0, query.deadline - spent),
                progress=query.progress,
            )

    async def answer_unanswered(
        self, conversation_id: str, *, on_text: OnText | None = None
    ) -> list[Answer | Apology]:
        """Answer the open turns of a conversation, oldest first: questions whose agent failed or whose
        process ended. Return an answer or an apology for each. Turns that are being answered elsewhere are
        stored once. A turn whose process ended after a tool had effects is stored as incomplete, and nothing
        runs.
        """
        manager = self.conversation_manager
        answers: list[Answer | Apology] = []
        for turn in await manager.unanswered(conversation_id):
            # The question has an id, so a turn with effects is found and stored.
            question = turn.messages[0]
            answers.append(await self.answer_or_apology(question, "", conversation_id, on_text=on_text))
        return answers

    async def _specialist_for(self, question: Message, conversation_id: str) -> Specialist:
        default = next(iter(self._specialists.values()))
        # Nothing to choose: save the request to a routing model.
        if self._router is None or len(self._specialists) == 1:
            return default

        async def recent() -> Sequence[Message]:
            return await visible_messages(self.conversation_manager, conversation_id, default, [question])

        chosen = await self._choose(self._router, meaning_of(question).text, recent)
        if chosen is None:
            return self._specialists.get(await self._answered_last(conversation_id) or "", default)
        return self._specialists[chosen]

    async def _choose(self, router: Router, query: str, recent: Recent) -> str | None:
        """Return the name of a specialist; None when the router does not choose one in time."""
        descriptions = {name: specialist.description for name, specialist in self._specialists.items()}

        async def choose() -> str | None:
            return await router.choose(query, recent, descriptions)

        try:
            chosen = await within(self._router_deadline, choose())
        except TimeoutError:
            log.warning("the router took too long")
            return None
        if chosen is not None and chosen not in self._specialists:
            log.warning("the router named an unknown agent")
            return None
        return chosen

    async def _answered_last(self, conversation_id: str) -> str | None:
        """Return the name of the agent that answered last in a conversation."""
        try:
            record = await self.conversation_manager.get_conversation(conversation_id)
            start = max(0, record.message_count - _LATEST)
            latest = await self.conversation_manager.entries(conversation_id, _LATEST, start)
        except AforesaidError as error:
            log.warning("the agent that answered last is not known: %s", describe(error))
            return None
        return last_agent(entry.message for entry in reversed(latest))


# Messages that are examined for the agent that answered last: a turn with many tool calls.
_LATEST = 30


class _Query(NamedTuple):
    """A query with its options."""

    question: Message
    on_text: OnText | None
    deadline: float | None
    progress: TurnProgress


async def end_session_quietly(sessions: Sessions, session_id: str) -> None:
    """End a session that was created for a failed turn, and delete its conversation if that is empty."""
    try:
        await sessions.end_session(session_id)
    except AforesaidError as error:
        log.warning("an empty conversation could not be removed: %s", describe(error))


def _by_name(specialists: Sequence[Specialist]) -> dict[str, Specialist]:
    named = {specialist.name: specialist for specialist in specialists}
    if not named:
        raise InvalidInput("specialists must not be empty", field="specialists")
    if len(named) < len(specialists):
        raise InvalidInput("specialists must have distinct names", field="specialists")
    return named


def _question(query: str | Message, content_type: ContentType) -> Message:
    question = as_question(query, field="query")
    return question if isinstance(query, Message) else question.with_(content_type=content_type)
