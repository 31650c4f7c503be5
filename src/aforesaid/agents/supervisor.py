"""Supervisor: route a query to a specialist and store the turn."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from aforesaid._internal.arguments import validated
from aforesaid.agents.loop import Answer, as_question
from aforesaid.agents.stored_turns import (
    Specialist,
    Undo,
    answer_turn,
    open_question,
    remove_if_unchanged,
    running_turn,
    visible_messages,
)
from aforesaid.agents.tools import Tool, ToolRegistry, validate_arguments
from aforesaid.contracts import Agent, Ask, OnText, Reply
from aforesaid.dialects import meaning_of
from aforesaid.errors import (
    AforesaidError,
    AgentRateLimited,
    AgentRefused,
    AgentUnavailable,
    ConversationNotFound,
    InvalidInput,
    RequestTooLong,
    TooManySteps,
    shown,
)
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.conversations import Channel
from aforesaid.model.ids import is_uuid, parse_conversation
from aforesaid.model.messages import ContentType, Message
from aforesaid.telemetry import describe

# Routers choose the agent that answers: by rule or with a model.


log = logging.getLogger("aforesaid.agents")

Recent = Callable[[], Awaitable[Sequence[Message]]]
"""Loads the conversation so far, ending with the question. Rules do not need it and do not pay for it."""


class Router(Protocol):
    """Chooses one of several agents."""

    async def choose(self, query: str, recent: Recent, agents: Mapping[str, str]) -> str | None:
        """Return the name of one agent, or None for the default. `agents` maps names to descriptions."""
        ...


@validated
class RuleRouter:
    """Chooses by regular expressions, searched case-insensitively in the query. The first match wins."""

    def __init__(self, rules: Mapping[str, str]) -> None:
        self._rules = [(_pattern(pattern), name) for pattern, name in rules.items()]

    async def choose(self, query: str, recent: Recent, agents: Mapping[str, str]) -> str | None:
        return next((name for pattern, name in self._rules if pattern.search(query)), None)


@validated
class ModelRouter:
    """Lets a model choose by the agents' descriptions. An error or an unknown name selects the default."""

    def __init__(self, agent: Agent, *, instructions: str = "") -> None:
        self._agent = agent
        self._instructions = instructions or _INSTRUCTIONS

    async def choose(self, query: str, recent: Recent, agents: Mapping[str, str]) -> str | None:
        tool = _route_to(agents)
        definitions = ToolRegistry([tool]).definitions(self._agent.dialect)
        lines = [f"- {name}: {description}" for name, description in agents.items()]
        ask = Ask(
            messages=_words_only(await recent()),
            system="\n".join([self._instructions, *lines]),
            tools=tuple(definitions),
        )
        try:
            return _chosen(await self._agent.reply(ask), tool, agents)
        except Exception as error:  # noqa: BLE001  a plug-in may raise anything; fall back to the default
            log.warning("the router failed, the default agent answers: %s", describe(error))
            return None


_INSTRUCTIONS = (
    "You decide which agent answers the user's last message. Do not answer it yourself: "
    "call route_to with the name of the agent. The agents:"
)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise InvalidInput(
            f"a rule must be a regular expression ({error}); got {shown(text)}", field="rules", value=text
        ) from None


def _route_to(agents: Mapping[str, str]) -> Tool:
    async def run(agent_name: str) -> str:
        return agent_name

    return Tool(
        name="route_to",
        description="Choose the agent that answers.",
        parameters={
            "type": "object",
            "properties": {"agent_name": {"type": "string", "enum": list(agents)}},
            "required": ["agent_name"],
            "additionalProperties": False,
        },
        run=run,
    )


def _words_only(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return only the texts of users and assistants: this model does not have the conversation's tools."""
    texts = [(message.role, meaning_of(message).text.strip()) for message in messages]
    return tuple(
        Message(role=role, content=text) for role, text in texts if text and role in ("user", "assistant")
    )


def _chosen(reply: Reply, tool: Tool, agents: Mapping[str, str]) -> str | None:
    meanings = [meaning_of(message) for message in reply.messages]
    for call in (call for meaning in meanings for call in meaning.calls if call.name == tool.name):
        try:
            return str(validate_arguments(tool, call.arguments)["agent_name"])
        except InvalidInput as error:
            log.warning("the router's tool call is invalid: %s", describe(error))
    # A model without tools names the agent in words.
    words = " ".join(meaning.text for meaning in meanings)
    named = [name for name in agents if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", words)]
    return named[0] if len(named) == 1 else None


_WORDS: tuple[tuple[type[BaseException], str], ...] = (
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

    async def create_session(self, session_id: str, channel: Channel = "voice") -> Any: ...

    async def end_session(self, session_id: str) -> Any: ...


class Apology(NamedTuple):
    """The text for the user when a turn failed. The history is unchanged."""

    text: str
    error: Exception


@validated
class SupervisorAgent:
    """Answers with one of several specialists.

    - `specialists`: the first one is the default, used when the router returns None or an unknown name.
    - `sessions`: maps sessions to conversations; by default the manager.
    - `apology`: returns the text for the user when a turn fails.
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
    ) -> None:
        self.conversation_manager = conversation_manager
        self._specialists = _by_name(specialists)
        self._router = router
        self._sessions = sessions
        self._channel: Channel = channel
        self.apology = apology

    async def process_query(
        self,
        query: str | Message,
        session_id: str,
        conversation_id: str | None = None,
        *,
        content_type: ContentType = "text",
        on_text: OnText | None = None,
    ) -> str:
        """Answer a query and store the whole turn with `agent_name`. Return the answer as text.

        `conversation_id` selects the conversation; by default it is the session's, created on demand. When
        the turn fails, the history stays unchanged, the query stays as an open turn (`answer_unanswered`),
        and the text is an apology. An answer that cannot be stored is returned and queued;
        `answer_or_apology` reports that in `Answer.not_stored`.
        """
        question = _question(query, content_type)
        # A wrong id is the caller's mistake and raises; later errors become an apology.
        if conversation_id is not None:
            await self.conversation_manager.get_conversation(conversation_id)
        return (await self.answer_or_apology(question, session_id, conversation_id, on_text=on_text)).text

    async def answer_or_apology(
        self,
        query: str | Message,
        session_id: str,
        conversation_id: str | None = None,
        *,
        on_text: OnText | None = None,
        undo: Undo | None = None,
    ) -> "Answer | Apology":
        """Return the answer, or an apology with the error when the turn failed."""
        try:
            return await self.answer_query(query, session_id, conversation_id, on_text=on_text, undo=undo)
        except AforesaidError as error:
            log.warning("a turn failed and was not stored: %s", describe(error))
            return Apology(text=self.apology(error), error=error)
        except Exception as error:  # a plug-in may raise anything; the user gets an apology
            log.exception("a turn failed and was not stored")
            return Apology(text=self.apology(error), error=error)

    async def answer_query(
        self,
        query: str | Message,
        session_id: str,
        conversation_id: str | None = None,
        *,
        on_text: OnText | None = None,
        undo: Undo | None = None,
    ) -> Answer:
        """Return the answer with the messages of its turn. Errors are raised and leave the question
        unanswered and the log unchanged.

        `undo` removes the conversation that was created for this turn. It is called when the turn fails
        and no other turn runs there.
        """
        question = _question(query, "text")
        if conversation_id is not None:
            return await self._answer_in(question, conversation_id, on_text, undo)
        if self._sessions is not None:
            return await self._answer_with(self._sessions, question, session_id, on_text)
        return await self._answer_in_session(question, session_id, on_text)

    async def _answer_in(
        self, question: Message, conversation_id: str, on_text: OnText | None, undo: Undo | None
    ) -> Answer:
        """Answer in a conversation of this id or name. An unknown name creates one, for this turn only."""
        given, manager = parse_conversation(conversation_id), self.conversation_manager
        if is_uuid(given):
            return await self._answer(question, given, on_text, undo=undo)
        try:
            record = await manager.get_conversation(given)
        except ConversationNotFound:
            record = await manager.update_metadata(given, channel=self._channel)
            undo = partial(remove_if_unchanged, manager, record)
        return await self._answer(question, record.id, on_text, undo=undo)

    async def _answer_in_session(self, question: Message, session_id: str, on_text: OnText | None) -> Answer:
        manager = self.conversation_manager
        existing = await manager.session(session_id)
        if existing is not None:
            return await self._answer(question, existing.id, on_text)
        created = await manager.get_or_create_conversation(session_id, channel=self._channel)
        return await self._answer(
            question, created.id, on_text, undo=partial(remove_if_unchanged, manager, created)
        )

    async def _answer_with(
        self, sessions: Sessions, question: Message, session_id: str, on_text: OnText | None
    ) -> Answer:
        existing = await sessions.get_conversation_id(session_id)
        if existing is not None:
            return await self._answer(question, existing, on_text)
        await sessions.create_session(session_id, channel=self._channel)
        conversation_id = await sessions.get_conversation_id(session_id)
        if conversation_id is None:
            raise InvalidInput(f"there is no session {shown(session_id)}", field="session_id")
        undo = partial(end_session_quietly, sessions, session_id)
        return await self._answer(question, conversation_id, on_text, undo=undo)

    async def _answer(
        self,
        question: Message,
        conversation_id: str,
        on_text: OnText | None,
        *,
        undo: Undo | None = None,
    ) -> Answer:
        async with running_turn(conversation_id, undo=undo):
            manager = self.conversation_manager
            question = manager.intake.completed(question)
            await open_question(manager, conversation_id, question)  # a router may fail, too
            specialist = await self._specialist_for(question, conversation_id)
            log.debug("%s answers in conversation %s", specialist.name, conversation_id)
            return await answer_turn(
                manager, conversation_id, specialist, question, on_text=on_text, is_open=True
            )

    async def answer_unanswered(
        self, conversation_id: str, *, on_text: OnText | None = None
    ) -> list[Answer | Apology]:
        """Answer the open turns of a conversation, oldest first: questions whose agent failed or whose
        process ended. Return an answer or an apology for each. Turns that are being answered elsewhere are
        stored once.
        """
        manager = self.conversation_manager
        answers: list[Answer | Apology] = []
        for turn in await manager.unanswered(conversation_id):
            # The supervisor opens a turn with the question only.
            question = turn.messages[0]
            answers.append(await self.answer_or_apology(question, "", conversation_id, on_text=on_text))
        return answers

    async def _specialist_for(self, question: Message, conversation_id: str) -> Specialist:
        default = next(iter(self._specialists.values()))
        # Nothing to choose: save the request to a routing model.
        if self._router is None or len(self._specialists) == 1:
            return default

        def recent() -> Awaitable[Sequence[Message]]:
            return visible_messages(self.conversation_manager, conversation_id, default, [question])

        descriptions = {name: specialist.description for name, specialist in self._specialists.items()}
        chosen = await self._router.choose(meaning_of(question).text, recent, descriptions)
        if chosen is not None and chosen not in self._specialists:
            log.warning("the router named an unknown agent, the default answers")
        return self._specialists.get(chosen or "", default)


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
