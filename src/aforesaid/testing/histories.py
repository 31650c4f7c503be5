"""Random agent histories in any dialect: tool loops with parallel calls, thinking, several agents, tags,
and errors.

Results may be interleaved, late, repeated or missing, and system messages may be in the middle. Pass a
`random.Random`, for example Hypothesis's.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Literal, get_args

from aforesaid.contracts import Entry
from aforesaid.dialects import ChatVariantName, read
from aforesaid.model.messages import Message

State = Literal["at rest", "mid-loop", "interrupted"]

STATES: tuple[State, ...] = ("at rest", "mid-loop", "interrupted")
DIALECT_NAMES = ("plain", "anthropic", "openai_chat", "openai_responses", "gemini", "bedrock")
TARGET_NAMES: tuple[str, ...] = (*DIALECT_NAMES, *get_args(ChatVariantName))
"""The dialects of requests: those of messages, and the variants of OpenAI's chat API."""

_START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
_CONVERSATION = "00000000-0000-7000-8000-000000000001"
_WORDS = ("the", "kitchen", "light", "is", "on", "and", "dinner", "needs", "more", "chicken", "rain", "comes")


def entries_of(messages: Sequence[Message]) -> list[Entry]:
    """Return the messages as entries: in order, one second apart, numbered from one."""
    return [
        Entry(
            conversation_id=_CONVERSATION,
            sequence=number,
            revision=number,
            stored_at=_START + timedelta(seconds=number),
            message=message.with_(timestamp=_START + timedelta(seconds=number)),
        )
        for number, message in enumerate(messages, start=1)
    ]


def random_history(
    random: Random,
    *,
    dialect: str,
    state: State,
    turns: int,
    troubled: bool = True,
    tagged: bool = True,
    same_ids: bool = False,
) -> list[Message]:
    """Return a history in one dialect, or in `mixed` ones, that ends in this state.

    - `troubled`: include late, missing, repeated and orphaned results, and messages between a call and its
      result.
    - `tagged`: include important and ephemeral messages.
    - `same_ids`: restart call ids in every turn.
    """
    history = _History(random, dialect=dialect, troubled=troubled, tagged=tagged, same_ids=same_ids)
    history.opening()
    for _ in range(turns):
        history.turn()
    history.ending(state)
    return history.messages


class _History:
    """A history being generated."""

    def __init__(self, random: Random, *, dialect: str, troubled: bool, tagged: bool, same_ids: bool) -> None:
        self.random = random
        self.dialect = dialect
        self.troubled = troubled
        self.tagged = tagged
        self.same_ids = same_ids
        self.messages: list[Message] = []
        # Calls whose results come later, after other messages.
        self.owed: list[tuple[str, str, str]] = []
        self.calls = 0
        # The dialect of the current turn: a turn never changes its dialect, a conversation may.
        self.speaking = "plain" if dialect == "mixed" else dialect
        # Gemini returns calls without ids on some servers, which pairs them by order.
        self.with_ids = not same_ids

    # The shape

    def opening(self) -> None:
        # Weighted: most conversations have at most one system prompt.
        for _ in range(self.random.choice((0, 0, 1, 1, 2))):
            self.say("system")
        if self.chance(0.1):
            self.say("assistant", agent="kitchen")

    def turn(self) -> None:
        self.begin()
        for _ in range(self.random.choice((0, 0, 1, 1, 2, 4))):
            self.loop_step()
        self.between()
        if self.chance(0.9):
            self.answer()

    def ending(self, state: State) -> None:
        if state == "at rest":
            self.random.choice((self.begin, self.answer))()
            return
        self.begin()
        for _ in range(self.random.choice((0, 1, 3))):
            self.loop_step()
        agent = self.agent()
        calls = self.call(agent, self.random.randint(1, 3))
        # Otherwise the history ends with at least one call that has no result.
        answered = calls if state == "mid-loop" else calls[: self.random.randrange(len(calls))]
        self.bring(answered, agent)

    def loop_step(self) -> None:
        agent = self.agent()
        calls = self.call(agent, self.random.choice((1, 1, 2, 3)))
        # Parallel tools finish in any order.
        self.random.shuffle(calls)
        if self.trouble(0.2):
            self.between()
        if self.trouble(0.15) and calls:
            # A result that is late.
            self.owed.append((*calls.pop(), agent))
        if self.trouble(0.1) and calls:
            calls.pop()
        if self.trouble(0.15) and calls:
            # A result that was delivered twice.
            calls.append(self.random.choice(calls))
        self.bring(calls, agent)

    def begin(self) -> None:
        self.speaking = self.random.choice(DIALECT_NAMES) if self.dialect == "mixed" else self.dialect
        # Some providers restart their call ids, so equal ids in one log belong to different calls.
        self.calls = 0 if self.same_ids else self.calls
        self.say("user")

    def answer(self) -> None:
        agent = self.agent()
        if self.speaking == "openai_responses" and self.chance(0.3):
            self.add({"type": "reasoning", "id": self.new_id("rs"), "summary": []}, agent=agent)
        self.say("assistant", agent=agent)

    def between(self) -> None:
        """Add messages that may occur while no result is pending."""
        if self.trouble(0.15):
            self.say("system")
        if self.trouble(0.1):
            self.say("user")
        if self.trouble(0.1):
            self.say("assistant", agent=self.agent())
        if self.trouble(0.4) and self.owed:
            call_id, name, agent = self.owed.pop()
            self.bring([(call_id, name)], agent)
        if self.trouble(0.05):
            # A result without a call, as after an import of half a conversation.
            self.bring([(self.new_id("nobody"), "lookup")], self.agent())

    # The words

    def say(self, role: str, *, agent: str | None = None) -> None:
        text = self.text()
        document: dict[str, Any] = {"role": role, "content": text}
        if self.speaking == "gemini" and role != "system":
            document = {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]}
        if self.speaking == "bedrock":
            document["content"] = [{"text": text}]
        if self.speaking == "anthropic" and self.chance(0.5):
            document["content"] = [{"type": "text", "text": text}]
        if self.speaking == "openai_responses" and role == "assistant":
            document["content"] = [{"type": "output_text", "text": text, "annotations": []}]
            if self.chance(0.8):
                document |= {"type": "message", "id": self.new_id("msg"), "status": "completed"}
        self.add(document, agent=agent)

    def call(self, agent: str, count: int) -> list[tuple[str, str]]:
        calls = [(self.new_id("call"), self.random.choice(("lookup", "switch"))) for _ in range(count)]
        match self.speaking:
            case "anthropic":
                self.add({"role": "assistant", "content": self.anthropic_blocks(calls)}, agent=agent)
            case "openai_responses":
                self.add_items(calls, agent)
            case "gemini":
                self.add({"role": "model", "parts": self.gemini_parts(calls)}, agent=agent)
            case "bedrock":
                self.add({"role": "assistant", "content": self.bedrock_blocks(calls)}, agent=agent)
            case "openai_chat":
                self.add(
                    {"role": "assistant", "content": None, "tool_calls": _chat_calls(calls)}, agent=agent
                )
            case _:
                asked = [{"id": call_id, "name": name, "arguments": {"q": name}} for call_id, name in calls]
                self.add({"role": "assistant", "content": self.text(), "tool_calls": asked}, agent=agent)
        return calls

    def anthropic_blocks(self, calls: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if self.chance(0.3):
            blocks.append({"type": "thinking", "thinking": self.text(), "signature": "c2ln"})
        if self.chance(0.4):
            blocks.append({"type": "text", "text": self.text()})
        return blocks + [
            {"type": "tool_use", "id": call_id, "name": name, "input": {"q": name}} for call_id, name in calls
        ]

    def gemini_parts(self, calls: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Return calls with or without ids, as Gemini's own and its Vertex interface return them."""
        parts: list[dict[str, Any]] = [{"text": self.text(), "thought": True}] if self.chance(0.3) else []
        if self.chance(0.4):
            parts.append({"text": self.text()})
        for call_id, name in calls:
            identity = {"id": call_id} if self.with_ids else {}
            parts.append({"functionCall": {**identity, "name": name, "args": {"q": name}}})
        if self.chance(0.5):
            parts[-len(calls)]["thoughtSignature"] = "c2ln"
        return parts

    def bedrock_blocks(self, calls: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if self.chance(0.3):
            reasoning = {"reasoningText": {"text": self.text(), "signature": "c2ln"}}
            blocks.append({"reasoningContent": reasoning})
        if self.chance(0.4):
            blocks.append({"text": self.text()})
        return blocks + [
            {"toolUse": {"toolUseId": call_id, "name": name, "input": {"q": name}}} for call_id, name in calls
        ]

    def keyed_results(self, calls: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        if self.speaking == "bedrock":
            return [
                {"toolResult": {"toolUseId": call_id, "content": [{"text": self.text()}]}}
                for call_id, _ in calls
            ]
        return [
            {
                "functionResponse": {
                    **({"id": call_id} if self.with_ids else {}),
                    "name": name,
                    "response": {"output": self.text()},
                }
            }
            for call_id, name in calls
        ]

    def add_items(self, calls: Sequence[tuple[str, str]], agent: str) -> None:
        if self.chance(0.4):
            self.add({"type": "reasoning", "id": self.new_id("rs"), "summary": []}, agent=agent)
        if self.chance(0.2):
            self.say("assistant", agent=agent)
        for call_id, name in calls:
            item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": '{"q": 1}'}
            self.add(item, agent=agent)

    def bring(self, calls: Sequence[tuple[str, str]], agent: str) -> None:
        if self.speaking == "anthropic":
            self.bring_blocks(calls)
            return
        if self.speaking in ("gemini", "bedrock"):
            if calls:
                field = "parts" if self.speaking == "gemini" else "content"
                self.add({"role": "user", field: self.keyed_results(calls)})
            return
        for call_id, _ in calls:
            # Some results are long enough to be shortened.
            text = self.text() * self.random.choice((1, 1, 8))
            if self.speaking == "openai_responses":
                self.add({"type": "function_call_output", "call_id": call_id, "output": text}, agent=agent)
            else:
                self.add({"role": "tool", "tool_call_id": call_id, "content": text})

    def bring_blocks(self, calls: Sequence[tuple[str, str]]) -> None:
        """Add results in one or several user messages, some next to text of the user."""
        blocks = [
            {
                "type": "tool_result",
                "tool_use_id": call_id,
                "content": self.text() * self.random.choice((1, 8)),
            }
            for call_id, _ in calls
        ]
        if self.trouble(0.2):
            for block in blocks:
                self.add({"role": "user", "content": [block]})
        elif blocks:
            text = [{"type": "text", "text": self.text()}] if self.trouble(0.2) else []
            self.add({"role": "user", "content": [*blocks, *text]})

    def add(self, document: dict[str, Any], *, agent: str | None = None) -> None:
        tags = self.random.choice(((),) * 8 + (("important",), ("ephemeral",))) if self.tagged else ()
        for message in read(document, dialect=self.speaking):
            self.messages.append(message.with_(agent_name=agent, tags=tags))

    # Chance

    def text(self) -> str:
        return " ".join(self.random.choices(_WORDS, k=self.random.randint(1, 12)))

    def agent(self) -> str:
        return self.random.choice(("kitchen", "garden"))

    def new_id(self, prefix: str) -> str:
        self.calls += 1
        return f"{prefix}_{self.calls}"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def trouble(self, share: float) -> bool:
        return self.troubled and self.chance(share)


def _chat_calls(calls: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": '{"q": 1}'}}
        for call_id, name in calls
    ]
