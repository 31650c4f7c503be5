"""Agentic loop: ask an agent, run its tool calls, and ask again until it answers.

The loop stores nothing. It returns the whole turn, which the caller stores. What a loop that fails or is
cancelled has done is in its `TurnProgress`.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Protocol, Self, runtime_checkable

from msgspec import Struct

from aforesaid._internal.arguments import validated
from aforesaid.agents.progress import TurnProgress, results_of_cut_off_calls
from aforesaid.agents.tools import ToolRegistry, ToolSource
from aforesaid.contracts import Agent, Appended, Ask, OnText, Reply, Usage
from aforesaid.dialects import ToolCall, meaning_of, read, tool_result, write
from aforesaid.dialects.call_ids import with_valid_call_ids
from aforesaid.dialects.parse import Text, is_blank, parts_of
from aforesaid.errors import InvalidInput, TooManySteps, shown
from aforesaid.intake.unstored_turns import NotStored
from aforesaid.model.contexts import Context
from aforesaid.model.ids import IdSource, new_id
from aforesaid.model.messages import Message
from aforesaid.telemetry import telemetry
from aforesaid.telemetry.events import error_kind, timed

log = logging.getLogger("aforesaid.agents")

# Earlier messages: a context, messages, or dicts in any dialect.
History = Context | Sequence[Message | Mapping[str, Any]]

Tools = ToolRegistry | Iterable[ToolSource] | None
Window = Callable[[Sequence[Message]], Awaitable[Sequence[Message]]]
"""Returns the messages to send; they end with the turn so far."""

CUT_OFF = "The call was cut off because the reply was too long. Call again with shorter arguments."


class Answer(Struct, frozen=True, kw_only=True):
    """The result of a turn."""

    text: str
    """The final answer as text."""
    messages: tuple[Message, ...]
    """The whole turn: question, tool calls and results in the agent's dialect, answer."""
    steps: int
    """Number of requests to the agent."""
    usage: Usage = Usage()
    """Token usage reported by the provider, over all steps."""
    complete: bool = True
    """False when the model reached its output limit, or for a stored turn that broke off."""
    stored: Appended | None = None
    """The result of storing the turn, if it was stored."""
    not_stored: NotStored | None = None
    """Why storing the turn failed and whether it is queued."""
    conversation_id: str | None = None
    """The turn's conversation, if any."""
    repeated: bool = False
    """Whether the question was answered before, and this is the stored answer."""


@validated
class AgenticLoop:
    """Runs an agent with its tools.

    `max_steps` 10: a question that needs more requests usually loops; the last request allows no tool calls.
    `tool_timeout` 30 seconds: longer is unusable in a voice dialogue. `at_once` 8: tool calls of one reply
    run concurrently, at most eight at a time.
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
        progress: TurnProgress | None = None,
    ) -> Answer:
        """Answer a user's message and return all messages of the turn.

        `chat_history` is sent unchanged, so it must be a valid window, such as a manager's context. With
        `on_text`, replies are streamed to that callback. A tool that fails, times out or does not exist
        becomes an error result for the model. `progress` has what was done when the turn fails. Raises
        `AgentError`.
        """
        history = read_history(chat_history)

        async def window(turn: Sequence[Message]) -> Sequence[Message]:
            return (*history, *turn)

        return await self.run_in(
            window, self.question(user_text), as_registry(tools), on_text=on_text, progress=progress
        )

    async def stream(
        self, user_text: str | Message, chat_history: History = (), tools: Tools = None
    ) -> AsyncGenerator[str | Answer, None]:
        """Yield the text as it arrives, then the whole answer. Closing the generator early cancels the
        turn.
        """
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        running = asyncio.ensure_future(self.run(user_text, chat_history, tools, on_text=pieces.put_nowait))
        # The queue also ends when the turn fails; `await running` below raises its error.
        running.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            yield await running
        finally:
            if not running.done():
                running.cancel()
                # Wait for the cancelled turn, so that no tool runs after the generator is closed.
                await asyncio.wait({running})

    def with_instructions(self, more: str | None) -> Self:
        """Return a copy with additional instructions."""
        if not more:
            return self
        other = copy(self)
        other.instructions = "\n\n".join(words for words in (self.instructions, more) if words)
        return other

    def question(self, user_text: str | Message) -> Message:
        """Return the user's message with an id."""
        question = as_question(user_text, field="user_text")
        return question if question.message_id else question.with_(message_id=self._ids())

    async def run_in(
        self,
        window: Window,
        question: Message,
        tools: ToolRegistry,
        *,
        instructions: str | None = None,
        on_text: OnText | None = None,
        progress: TurnProgress | None = None,
    ) -> Answer:
        """Run the loop with a window that is rebuilt before each step."""
        turn = TurnProgress() if progress is None else progress
        turn.begin(question)
        definitions = tuple(tools.definitions(self.agent.dialect))
        for step in range(1, self._max_steps + 1):
            ask = Ask(
                messages=tuple(await window(turn.messages)),
                system=self.instructions if instructions is None else instructions,
                tools=definitions,
                # The last request allows no calls: their results could not be sent any more.
                may_call=step < self._max_steps,
            )
            reply = await ask_agent(self.agent, ask, on_text=on_text, step=step)
            # Make ids distinct before tools run: each result must match one call, here and in the log.
            turn.check_running()
            calls = turn.add_reply(reply, self._with_ids(with_valid_call_ids(reply.messages)[0]))
            # A pause (Anthropic's server tools) has no answer yet; the next request continues it.
            if not calls and reply.stop != "pause":
                return _answer(turn, steps=step, complete=reply.stop != "length")
            if not ask.may_call:
                known = results_of_cut_off_calls(calls, {}, (), self.agent.dialect)
                turn.messages += self._with_ids(known)
                break
            await self._run_tools(turn, calls, reply, tools)
        raise TooManySteps(self._max_steps)

    async def _run_tools(
        self, turn: TurnProgress, calls: Sequence[ToolCall], reply: Reply, tools: ToolRegistry
    ) -> None:
        """Run the calls and add their results. What has effects is durable before it runs, and its result
        afterwards: the process may end at any time.
        """
        has_effects = any(tools.has_effects(call.name) for call in calls)
        if has_effects:
            await turn.make_durable()
        await self._add_results(turn, calls, reply, tools)
        if has_effects:
            await turn.make_durable()

    async def _add_results(
        self, turn: TurnProgress, calls: Sequence[ToolCall], reply: Reply, tools: ToolRegistry
    ) -> None:
        """Run the calls concurrently and add their results in call order."""
        slots = asyncio.Semaphore(self._at_once)
        # At the output limit, the arguments of the last call may be incomplete.
        whole = calls[:-1] if reply.stop == "length" else calls
        results: dict[int, Message] = {}
        started: set[int] = set()

        async def run(number: int, call: ToolCall) -> None:
            # A provider that repeats a response repeats its calls. Their effects must not happen again.
            key = json.dumps([call.id, call.name, call.arguments], sort_keys=True, default=str)
            if (before := turn.results.get(key)) is not None:
                results[number] = before.with_(message_id=None)
                return
            async with slots:
                started.add(number)
                results[number] = await tools.answer(call, self.agent.dialect, within=self._tool_timeout)
            if tools.has_effects(call.name):
                turn.results[key] = results[number]

        try:
            await asyncio.gather(*(run(number, call) for number, call in enumerate(whole)))
        finally:
            # Also of a turn that is cancelled now: its completed calls must not be forgotten.
            known = results_of_cut_off_calls(whole, results, started, self.agent.dialect)
            turn.messages += self._with_ids([*known, *(self._cut_off(call) for call in calls[len(whole) :])])

    def _cut_off(self, call: ToolCall) -> Message:
        return tool_result(self.agent.dialect, call_id=call.id, name=call.name, text=CUT_OFF, is_error=True)

    def _with_ids(self, messages: Iterable[Message]) -> list[Message]:
        """Give each message an id, so that storing the turn again has no effect, and the agent's name to
        assistant messages.
        """
        return [
            message.with_(
                agent_name=self.agent.name if message.role == "assistant" else None,
                message_id=message.message_id or self._ids(),
            )
            for message in messages
        ]


async def ask_agent(agent: Agent, ask: Ask, *, on_text: OnText | None, step: int) -> Reply:
    """Return the agent's reply and record its duration, tokens and errors under the agent's name."""
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


def _answer(turn: TurnProgress, *, steps: int, complete: bool) -> Answer:
    return Answer(
        text="\n".join(turn.words),
        messages=tuple(turn.messages),
        steps=steps,
        usage=turn.usage,
        complete=complete,
    )


def as_question(value: object, *, field: str) -> Message:
    """Return a user's text or message as a message. Raise `InvalidInput` when it is blank."""
    question = Message(role="user", content=value) if isinstance(value, str) else value
    if not isinstance(question, Message) or _is_blank(question):
        raise InvalidInput(f"{field} must be non-blank text; got {shown(value)}", field=field, value=value)
    return question


def _is_blank(message: Message) -> bool:
    return all(isinstance(part, Text) and is_blank(part.text) for part in parts_of(message))


def read_history(history: History) -> tuple[Message, ...]:
    """Return a history's messages."""
    return history.messages if isinstance(history, Context) else tuple(read(list(history)))


def as_registry(tools: Tools) -> ToolRegistry:
    return tools if isinstance(tools, ToolRegistry) else ToolRegistry(tuple(tools or ()))


# Loops of other projects: anything with `run(user_text, chat_history, tools)`.


@runtime_checkable
class TurnRunner(Protocol):
    """A loop that answers a user's text after a history."""

    async def run(self, user_text: Any, chat_history: Any, tools: Any) -> Any:
        """Return the answer as text, or as an `Answer` with the messages of the turn."""
        ...


class HistoryLoop(AgenticLoop):
    """A loop that calls `run` of another one, with the window as `chat_history`."""

    def __init__(self, runner: TurnRunner, *, ids: IdSource = new_id) -> None:
        self._runner = runner
        self._ids = ids

    async def run_in(
        self,
        window: Window,
        question: Message,
        tools: ToolRegistry,
        *,
        instructions: str | None = None,
        on_text: OnText | None = None,
        progress: TurnProgress | None = None,
    ) -> Answer:
        turn = TurnProgress() if progress is None else progress
        turn.begin(question)
        *history, last = await window([question])
        answer = await self._run(history, last, tools, turn)
        if isinstance(answer, Answer):
            return answer
        reply = Message(role="assistant", content=str(answer), message_id=self._ids())
        return Answer(text=str(answer), messages=(question, reply), steps=1)

    async def _run(
        self, history: Sequence[Message], question: Message, tools: ToolRegistry, progress: TurnProgress
    ) -> Any:
        runner = self._runner
        if isinstance(runner, AgenticLoop):
            return await runner.run(question, chat_history=history, tools=tools, progress=progress)
        documents = write(history, "openai_chat").messages
        return await runner.run(user_text=meaning_of(question).text, chat_history=documents, tools=tools)
