"""The agentic loop: ask, run the tools that were called, ask again, until there is an answer.

Below: the `Agent` contract, tools, dialects. Above: stored turns, the supervisor, the entity. The loop
keeps nothing and stores nothing: it gives back the whole turn, and whoever called it stores that, or
does not. So a loop that fails or is cancelled leaves no trace.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Self

from msgspec import Struct

from aforesaid._internal.arguments import validated
from aforesaid.agents.tools import Tool, ToolRegistry
from aforesaid.contracts import Agent, Appended, Ask, OnText, Reply, Usage
from aforesaid.dialects import ToolCall, meaning_of, read, tool_result
from aforesaid.dialects.call_ids import with_distinct_calls
from aforesaid.dialects.meaning import Text, is_blank
from aforesaid.dialects.parse import parts_of
from aforesaid.errors import InvalidInput, TooManySteps, shown
from aforesaid.intake.unstored_turns import NotStored
from aforesaid.model.contexts import Context
from aforesaid.model.ids import IdSource, new_id
from aforesaid.model.messages import Message
from aforesaid.telemetry import telemetry
from aforesaid.telemetry.instrumentation import error_kind
from aforesaid.telemetry.timing import timed

log = logging.getLogger("aforesaid.agents")

History = Context | Sequence[Message | Mapping[str, Any]]
"""What was said before: a context, messages, or dicts in any dialect."""

Tools = ToolRegistry | Iterable[Tool] | None
Window = Callable[[Sequence[Message]], Awaitable[Sequence[Message]]]
"""What an agent sees: given the turn so far, the messages to send, which end with it."""

CUT_OFF = "The call was cut off: the reply was too long. Call again with less."


class Answer(Struct, frozen=True, kw_only=True):
    """How a turn came out."""

    text: str
    """The answer in words."""
    messages: tuple[Message, ...]
    """The whole turn: the question, every call and result in the agent's dialect, the answer."""
    steps: int
    """How often the agent was asked."""
    usage: Usage = Usage()
    """What the provider counted, over all steps."""
    complete: bool = True
    """Whether the answer came to its end; False where the model ran out of room."""
    stored: Appended | None = None
    """What storing the turn did, where it was stored."""
    not_stored: NotStored | None = None
    """Why the turn is not stored, and whether it is queued, where storing it failed."""
    conversation_id: str | None = None
    """The conversation that the turn belongs to, where there is one."""


@validated
class AgenticLoop:
    """Runs an agent with its tools.

    `max_steps` 10: a question that takes more calls than that goes in circles; before the last one
    the agent is told to answer. `tool_timeout` 30 seconds: nobody waits longer for a voice.
    `at_once` 8: calls of one reply run together, but a model cannot start a hundred.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        instructions: str = "",
        max_steps: int = 10,
        tool_timeout: float | None = 30.0,
        at_once: int = 8,
        ids: IdSource = new_id,
    ) -> None:
        for field, value in (("max_steps", max_steps), ("at_once", at_once)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidInput(
                    f"{field} must be a whole number, 1 or more; got {shown(value)}", field=field, value=value
                )
        self.agent = agent
        self.instructions = instructions
        self._max_steps = max_steps
        self._tool_timeout = tool_timeout
        self._at_once = at_once
        self._ids = ids

    async def run(
        self,
        user_text: str | Message,
        chat_history: History = (),
        tools: Tools = None,
        *,
        on_text: OnText | None = None,
    ) -> Answer:
        """The answer to what the user said, with all messages of the turn.

        `chat_history` is sent as it is, so it should be a valid window: a manager's context is. With
        `on_text` the replies are streamed, and their words go there as they arrive. A tool that
        fails, hangs or does not exist is told to the model. Raises `AgentError`.
        """
        history = read_history(chat_history)

        async def window(turn: Sequence[Message]) -> Sequence[Message]:
            return (*history, *turn)

        return await self.run_in(window, self.question(user_text), as_registry(tools), on_text=on_text)

    async def stream(
        self, user_text: str | Message, chat_history: History = (), tools: Tools = None
    ) -> AsyncGenerator[str | Answer, None]:
        """The words as they arrive, and at the end the whole answer. Leaving early cancels the turn."""
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        running = asyncio.ensure_future(self.run(user_text, chat_history, tools, on_text=pieces.put_nowait))
        running.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            yield await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait({running})

    def instructed(self, more: str | None) -> Self:
        """This loop with more instructions behind its own."""
        if not more:
            return self
        other = copy(self)
        other.instructions = "\n\n".join(words for words in (self.instructions, more) if words)
        return other

    def question(self, user_text: str | Message) -> Message:
        """What the user said, as a message with an id."""
        said = as_question(user_text, field="user_text")
        return said if said.message_id else said.with_(message_id=self._ids())

    async def run_in(
        self,
        window: Window,
        question: Message,
        tools: ToolRegistry,
        *,
        instructions: str | None = None,
        on_text: OnText | None = None,
    ) -> Answer:
        """The same, with a window that is chosen anew before each step."""
        turn = _Turn(question)
        described = tuple(tools.definitions(self.agent.dialect))
        for step in range(1, self._max_steps + 1):
            ask = Ask(
                messages=tuple(await window(turn.messages)),
                system=self.instructions if instructions is None else instructions,
                tools=described,
                may_call=step < self._max_steps,
            )
            reply = await replied(self.agent, ask, on_text=on_text, step=step)
            # Before anything runs: a result must find its own call, in this step and in the log.
            calls = turn.add(reply, self._labelled(with_distinct_calls(reply.messages)))
            if not calls and reply.stop != "pause":
                return turn.answer(steps=step, complete=reply.stop != "length")
            if not ask.may_call:
                break
            turn.messages += self._labelled(await self._results(calls, reply, tools))
        raise TooManySteps(self._max_steps)

    async def _results(
        self, calls: Sequence[ToolCall], reply: Reply, tools: ToolRegistry
    ) -> Sequence[Message]:
        """The results of the calls, in their order; they run together."""
        places = asyncio.Semaphore(self._at_once)
        # Where the reply ran out of room, its last call may have lost some of its arguments.
        whole = calls[:-1] if reply.stop == "length" else calls

        async def result(call: ToolCall) -> Message:
            async with places:
                return await tools.answer(call, self.agent.dialect, within=self._tool_timeout)

        results = await asyncio.gather(*(result(call) for call in whole))
        return [*results, *(self._cut_off(call) for call in calls[len(whole) :])]

    def _cut_off(self, call: ToolCall) -> Message:
        return tool_result(self.agent.dialect, call_id=call.id, name=call.name, text=CUT_OFF, is_error=True)

    def _labelled(self, messages: Iterable[Message]) -> list[Message]:
        """Give each message an id, so that a turn stored twice is stored once. Only what the agent generated
        carries its name: tool results do not."""
        return [
            message.with_(
                agent_name=self.agent.name if message.role == "assistant" else None,
                message_id=message.message_id or self._ids(),
            )
            for message in messages
        ]


async def replied(agent: Agent, ask: Ask, *, on_text: OnText | None, step: int) -> Reply:
    """The agent's reply; how long it took and what it cost are counted under the agent's name."""
    seconds = telemetry.histogram("aforesaid_agent_step_seconds", agent=agent.name)
    try:
        with timed("agent.step", seconds, agent_name=agent.name, step=step):
            reply = await agent.reply(ask, on_text=on_text)
    except Exception as error:
        telemetry.counter("aforesaid_agent_errors_total", agent=agent.name, error=error_kind(error)).add()
        raise
    if reply.usage is not None:
        for direction, tokens in (("in", reply.usage.input_tokens), ("out", reply.usage.output_tokens)):
            telemetry.counter("aforesaid_agent_tokens_total", agent=agent.name, direction=direction).add(
                tokens
            )
    return reply


class _Turn:
    """A turn in the making."""

    def __init__(self, question: Message) -> None:
        self.messages = [question]
        self._usage = Usage()
        self._words: list[str] = []

    def add(self, reply: Reply, said: list[Message]) -> list[ToolCall]:
        """Add a reply; gives the calls that wait for their results."""
        meanings = [meaning_of(message) for message in said]
        self.messages += said
        self._usage += reply.usage or Usage()
        self._words += [meaning.text for meaning in meanings if meaning.text.strip()]
        calls = [call for meaning in meanings for call in meaning.calls]
        if calls:
            self._words.clear()  # what is said before a call announces it, and answers nothing
        return calls

    def answer(self, *, steps: int, complete: bool) -> Answer:
        return Answer(
            text="\n".join(self._words),
            messages=tuple(self.messages),
            steps=steps,
            usage=self._usage,
            complete=complete,
        )


def as_question(said: object, *, field: str) -> Message:
    """What was said to an assistant, as a message. Words, or blocks: nothing is no question."""
    question = Message(role="user", content=said) if isinstance(said, str) else said
    if not isinstance(question, Message) or _says_nothing(question):
        raise InvalidInput(f"{field} must be words; got {shown(said)}", field=field, value=said)
    return question


def _says_nothing(message: Message) -> bool:
    return all(isinstance(part, Text) and is_blank(part.text) for part in parts_of(message))


def read_history(history: History) -> tuple[Message, ...]:
    """The messages of a history, whatever it came as."""
    return history.messages if isinstance(history, Context) else tuple(read(list(history)))


def as_registry(tools: Tools) -> ToolRegistry:
    return tools if isinstance(tools, ToolRegistry) else ToolRegistry(tuple(tools or ()))
