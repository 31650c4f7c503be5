"""A turn in progress: what an agent has said and done so far, and how to store it when it breaks off.

A turn whose tools had effects, or whose words were heard, is stored although it failed: otherwise the model
does not know what happened, and repeats it. The stored part is a valid request: each call has a result, and
an assistant message says where the turn broke off.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from aforesaid._internal.arguments import validated
from aforesaid.contracts import Reply, Usage
from aforesaid.dialects import ToolCall, meaning_of, tool_result
from aforesaid.errors import AgentRefused, AgentTimedOut, AgentUnavailable, InvalidInput, shown
from aforesaid.model.ids import storable_text
from aforesaid.model.messages import Message, Speech
from aforesaid.spoken_answers import word_end

# Tags of the last message of a turn that broke off.
INCOMPLETE = "incomplete"
INTERRUPTED = "interrupted"

UNKNOWN_RESULT = "The result is unknown: the call was cut off. It may have taken effect."
NOT_MADE = "The call was not made."

Record = Callable[[Sequence[Message]], Awaitable[None]]
"""Makes the messages of a turn durable before and after a tool with effects runs."""


@validated
class TurnProgress:
    """What a turn has done so far. `interrupt` records that the user cut it off; cancel its task then."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        """The complete messages: question, replies, results."""
        self.usage = Usage()
        self.words: list[str] = []
        """The texts of the answer after the last tool call."""
        self.text = ""
        """All words that were streamed."""
        self.is_spoken = True
        """Whether streamed words reach the user at once, so that a turn that fails was heard in part."""
        self.effects: list[str] = []
        """Names of tools that ran and are not repeatable."""
        self.results: dict[str, Message] = {}
        """Results of calls with effects, by id, name and arguments."""
        self.is_kept = False
        """Whether the turn broke off and was stored, or queued, with what it had done."""
        self.is_over = False
        self.heard: int | None = None
        self.record: Record | None = None
        self._complete_text = 0
        """How much of `text` belongs to complete messages."""

    @property
    def interrupted(self) -> bool:
        """Whether the user cut the turn off."""
        return self.heard is not None

    def interrupt(self, heard: int) -> None:
        """Record how many characters of `text` were heard. Only the first call has an effect."""
        if isinstance(heard, bool) or not isinstance(heard, int) or heard < 0:
            raise InvalidInput(
                f"heard must be a number of characters, 0 or more; got {shown(heard)}",
                field="heard",
                value=heard,
            )
        if self.heard is None and not self.is_over:
            self.heard = heard

    def begin(self, question: Message) -> None:
        self.messages = [question]

    def add_text(self, piece: str) -> None:
        self.text += piece

    def add_reply(self, reply: Reply, messages: Sequence[Message]) -> list[ToolCall]:
        """Add a reply and return the tool calls that need results."""
        meanings = [meaning_of(message) for message in messages]
        self.messages += messages
        self._complete_text = len(self.text)
        self.usage += reply.usage or Usage()
        self.words += [meaning.text for meaning in meanings if meaning.text.strip()]
        calls = [call for meaning in meanings for call in meaning.calls]
        if calls:
            self.words.clear()  # text before a tool call is not part of the answer
        return calls

    def tool_started(self, name: str) -> None:
        """Record that a tool with effects runs. A turn that is over starts no more."""
        self.check_running()
        self.effects.append(name)

    def check_running(self) -> None:
        """Raise `AgentUnavailable` in a turn that was given up: its agent may ignore the cancellation."""
        if self.is_over:
            raise AgentUnavailable("the turn is over")

    async def make_durable(self) -> None:
        if self.record is not None:
            await self.record(tuple(self.messages))

    def must_be_kept(self, error: BaseException) -> bool:
        """Return whether the turn must be stored although it broke off."""
        # A provider that sees a refused question again refuses the next one, too.
        was_heard = self.is_spoken and bool(self.text.strip()) and not isinstance(error, AgentRefused)
        return self.interrupted or bool(self.effects) or was_heard

    def broken_off(self, error: BaseException, *, agent_name: str | None) -> tuple[Message, ...]:
        """Return the turn so far as a valid turn that says where it broke off."""
        # A provider withheld these words: they must not be sent to it again.
        words = "" if isinstance(error, AgentRefused) else self.text[self._complete_text :]
        turn = with_all_results(self.messages)
        if self.interrupted:
            return (*turn, *self._interrupted_answer(words, agent_name))
        return (*turn, _closing(words, _reason(error), self._unseen_effects(), agent_name))

    def _interrupted_answer(self, words: str, agent_name: str | None) -> Iterable[Message]:
        heard = max(0, (self.heard or 0) - self._complete_text)
        if not words.strip():
            # A question alone is valid. After results, the next question would look like a part of them.
            if len(self.messages) > 1:
                yield _closing("", "the user interrupted", (), agent_name, tags=(INTERRUPTED,))
            return
        speech = None
        if storable_text(words):
            speech = Speech(spoken=words, heard=None if heard >= len(words) else word_end(words, heard))
        yield Message(
            role="assistant", content=words, tags=(INTERRUPTED,), speech=speech, agent_name=agent_name
        )

    def _unseen_effects(self) -> Sequence[str]:
        """Return the tools that ran without a message about it: the loop of another project ran them."""
        seen = {call.name for message in self.messages for call in meaning_of(message).calls}
        return tuple(dict.fromkeys(name for name in self.effects if name not in seen))


def with_all_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages of a turn with a result for each call. A missing result is unknown."""
    complete: list[Message] = []
    waiting: dict[str, Message] = {}
    for message in messages:
        meaning = meaning_of(message)
        # One reply may be several messages; the next one follows results.
        if message.role == "assistant" and complete and complete[-1].role != "assistant":
            complete += waiting.values()
            waiting = {}
        complete.append(message)
        # Ids are compared within one reply only: some models use them again in the next one.
        waiting |= {call.id: _unknown(message.dialect, call) for call in meaning.calls}
        for result in meaning.results:
            waiting.pop(result.call_id, None)
    return (*complete, *waiting.values())


def results_of_cut_off_calls(
    calls: Sequence[ToolCall], known: Mapping[int, Message], started: Iterable[int], dialect: str
) -> list[Message]:
    """Return a result for each call of a reply whose turn was cut off while its tools ran."""
    running = set(started)

    def result(number: int, call: ToolCall) -> Message:
        if number in known:
            return known[number]
        return _unknown(dialect, call) if number in running else _result(dialect, call, NOT_MADE)

    return [result(number, call) for number, call in enumerate(calls)]


def settled(messages: Sequence[Message], *, agent_name: str | None = None) -> tuple[Message, ...]:
    """Return a turn whose process ended, as a valid turn that says so."""
    return (*with_all_results(messages), _closing("", "the process ended", (), agent_name))


def _unknown(dialect: str, call: ToolCall) -> Message:
    return _result(dialect, call, UNKNOWN_RESULT)


def _result(dialect: str, call: ToolCall, text: str) -> Message:
    return tool_result(dialect, call_id=call.id, name=call.name, text=text, is_error=True)


def _closing(
    words: str, reason: str, effects: Sequence[str], agent_name: str | None, *, tags: Sequence[str] = ()
) -> Message:
    """Return the assistant message that ends a turn that broke off."""
    ran = f"; {', '.join(effects)} ran before" if effects else ""
    shown_words = words.rstrip() if storable_text(words) else ""
    return Message(
        role="assistant",
        content=f"{shown_words} [incomplete: {reason}{ran}]".lstrip(),
        tags=tuple(tags) or (INCOMPLETE,),
        agent_name=agent_name,
    )


_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (AgentTimedOut, "the time limit was reached"),
    (AgentRefused, "the answer was withheld"),
    (asyncio.CancelledError, "the turn was cancelled"),
)


def _reason(error: BaseException) -> str:
    return next((words for kind, words in _REASONS if isinstance(error, kind)), "the model did not answer")


def answer_text(message: Message) -> str:
    """Return the words of an answer, without the mark of one that broke off."""
    text: Any = meaning_of(message).text
    return str(text).rpartition("[incomplete:")[0].rstrip() if INCOMPLETE in message.tags else str(text)
