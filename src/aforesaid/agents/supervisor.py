"""The supervisor: routes a query to a specialised agent and stores both sides. Below: answering, routing."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from aforesaid._internal.arguments import validated
from aforesaid.agents.apologies import apology_for
from aforesaid.agents.loop import Answer, as_question
from aforesaid.agents.new_conversations import TakeBack, answering, remove
from aforesaid.agents.routing import Router
from aforesaid.agents.stored_turns import Specialist, answer_turn, seen
from aforesaid.contracts import OnText
from aforesaid.dialects import meaning_of
from aforesaid.errors import AforesaidError, InvalidInput, shown
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Channel
from aforesaid.model.ids import parse_uuid
from aforesaid.model.messages import ContentType, Message
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.agents")


class Sessions(Protocol):
    """What the supervisor needs of a session manager."""

    async def get_conversation_id(self, session_id: str) -> str | None: ...

    async def create_session(self, session_id: str, channel: Channel = "voice") -> Any: ...

    async def end_session(self, session_id: str) -> Any: ...


class Apology(NamedTuple):
    """What a user hears instead of an answer. The history is as it was."""

    text: str
    error: Exception


@validated
class SupervisorAgent:
    """One voice for several agents.

    `specialists`: the first is the default one, which answers when the router names nobody.
    `sessions`: who knows a session's conversation; without, the manager does. `apology` gives what
    the user hears instead of an answer.
    """

    def __init__(
        self,
        conversation_manager: ConversationManager,
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
        """The answer, in words. The question and all that led to the answer are stored, with `agent_name`.

        `conversation_id` is the conversation to go on with; without it, the session's, made when it
        has none. When there is no answer, the history stays as it was, and the text is an apology. An answer
        that cannot be stored is returned and queued; `answer_or_apology` shows it in `Answer.not_stored`.
        """
        question = _question(query, content_type)
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
        take_back: TakeBack | None = None,
    ) -> "Answer | Apology":
        """The answer as a value; or, when anything fails, what the user hears instead, and why."""
        try:
            return await self.answer_query(
                query, session_id, conversation_id, on_text=on_text, take_back=take_back
            )
        except AforesaidError as error:
            log.warning("a turn failed and was not stored: %s", describe(error))
            return Apology(text=self.apology(error), error=error)
        except Exception as error:  # the edge: whatever an agent of somebody else's does, the user is told
            log.exception("a turn failed and was not stored")
            return Apology(text=self.apology(error), error=error)

    async def answer_query(
        self,
        query: str | Message,
        session_id: str,
        conversation_id: str | None = None,
        *,
        on_text: OnText | None = None,
        take_back: TakeBack | None = None,
    ) -> Answer:
        """The same as a value, with the messages of the turn; what fails raises, and leaves no trace.

        `take_back` undoes what was made for the turn, where its conversation was: called when the turn fails
        and nobody else is being answered there.
        """
        question = _question(query, "text")
        if conversation_id is not None:
            asked = parse_uuid(conversation_id, field="conversation_id")
            return await self._answer(question, asked, on_text, take_back=take_back)
        if self._sessions is not None:
            return await self._answer_with(self._sessions, question, session_id, on_text)
        return await self._answer_in_session(question, session_id, on_text)

    async def _answer_in_session(self, question: Message, session_id: str, on_text: OnText | None) -> Answer:
        manager = self.conversation_manager
        known = await manager.session(session_id)
        if known is not None:
            return await self._answer(question, known.id, on_text)
        made = await manager.get_or_create_conversation(session_id, channel=self._channel)
        return await self._answer(question, made.id, on_text, take_back=partial(remove, manager, made))

    async def _answer_with(
        self, sessions: Sessions, question: Message, session_id: str, on_text: OnText | None
    ) -> Answer:
        known = await sessions.get_conversation_id(session_id)
        if known is not None:
            return await self._answer(question, known, on_text)
        await sessions.create_session(session_id, channel=self._channel)
        conversation_id = await sessions.get_conversation_id(session_id)
        if conversation_id is None:
            raise InvalidInput(f"there is no session {shown(session_id)}", field="session_id")
        take_back = partial(end_quietly, sessions, session_id)
        return await self._answer(question, conversation_id, on_text, take_back=take_back)

    async def _answer(
        self,
        question: Message,
        conversation_id: str,
        on_text: OnText | None,
        *,
        take_back: TakeBack | None = None,
    ) -> Answer:
        async with answering(conversation_id, take_back=take_back):
            specialist = await self._specialist_for(question, conversation_id)
            log.debug("%s answers in conversation %s", specialist.name, conversation_id)
            return await answer_turn(
                self.conversation_manager, conversation_id, specialist, question, on_text=on_text
            )

    async def _specialist_for(self, question: Message, conversation_id: str) -> Specialist:
        default = next(iter(self._specialists.values()))
        if self._router is None or len(self._specialists) == 1:
            return default

        def recent() -> Awaitable[Sequence[Message]]:
            return seen(self.conversation_manager, conversation_id, default, [question])

        described = {name: specialist.description for name, specialist in self._specialists.items()}
        chosen = await self._router.choose(meaning_of(question).text, recent, described)
        if chosen is not None and chosen not in self._specialists:
            log.warning("the router named an agent that is not there")
        return self._specialists.get(chosen or "", default)


async def end_quietly(sessions: Sessions, session_id: str) -> None:
    """Take back a session that was begun for a turn which failed, and its conversation if that is empty."""
    try:
        await sessions.end_session(session_id)
    except AforesaidError as error:
        log.warning("an empty conversation stays behind: %s", describe(error))


def _by_name(specialists: Sequence[Specialist]) -> dict[str, Specialist]:
    named = {specialist.name: specialist for specialist in specialists}
    if not named:
        raise InvalidInput("a supervisor needs a specialist", field="specialists")
    if len(named) < len(specialists):
        raise InvalidInput("specialists need names of their own", field="specialists")
    return named


def _question(query: str | Message, content_type: ContentType) -> Message:
    question = as_question(query, field="query")
    return question if isinstance(query, Message) else question.with_(content_type=content_type)
