"""Small logs, written down by hand, and policies at random."""

from random import Random
from typing import Any

from hypothesis import strategies as st

from aforesaid.contracts import Entry
from aforesaid.dialects import meaning_of, read
from aforesaid.model.messages import Message
from aforesaid.testing.histories import DIALECT_NAMES, STATES, State, entries_of, random_history
from aforesaid.windows import WindowPolicy

SOURCES = (*DIALECT_NAMES, "mixed")


def user(text: str, *tags: str) -> Message:
    return Message(role="user", content=text, tags=tags)


def assistant(text: str, *tags: str, agent: str | None = None) -> Message:
    return Message(role="assistant", content=text, tags=tags, agent_name=agent)


def system(text: str, *tags: str) -> Message:
    return Message(role="system", content=text, tags=tags)


def calls(*call_ids: str, agent: str | None = None, tags: tuple[str, ...] = ()) -> Message:
    """An assistant's message that calls tools, in the plain dialect."""
    asked = [{"id": call_id, "name": "lookup", "arguments": {}} for call_id in call_ids]
    document = {"role": "assistant", "content": "", "tool_calls": asked}
    return _one(document, "plain").with_(agent_name=agent, tags=tags)


def result(call_id: str, text: str = "found") -> Message:
    return _one({"role": "tool", "tool_call_id": call_id, "content": text}, "plain")


def blocks(role: str, *content: dict[str, Any]) -> Message:
    """An Anthropic message."""
    return _one({"role": role, "content": list(content)}, "anthropic")


def use(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "lookup", "input": {}}


def found(call_id: str, text: str = "found") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def item(**fields: Any) -> Message:
    """An item of the Responses dialect."""
    return _one(fields, "openai_responses")


def log(*messages: Message) -> list[Entry]:
    return entries_of(messages)


def _one(document: dict[str, Any], dialect: str) -> Message:
    (message,) = read(document, dialect=dialect)
    return message


def words(message: Message) -> int:
    """A cost that needs no tokenizer: one for the message, and one for each word in it."""
    inside = f"{message.content} {message.extra}" if message.extra else str(message.content)
    return 1 + len(inside.split())


def said(messages: tuple[Message, ...]) -> list[str]:
    """What the messages say, in short: their words, `name?` for a call and `name!` for a result."""
    return [_in_short(message) for message in messages]


def _in_short(message: Message) -> str:
    meaning = meaning_of(message)
    made = [f"{call.id}?" for call in meaning.calls] + [f"{answer.call_id}!" for answer in meaning.results]
    return " ".join(part for part in (meaning.text, *made) if part)


class History(list[Message]):
    """A random history, which a failing test shows as what it was made of."""

    def __init__(self, seed: int, **made_of: Any) -> None:
        super().__init__(random_history(Random(seed), **made_of))
        self.made_of = f"History({seed}, {', '.join(f'{key}={value!r}' for key, value in made_of.items())})"

    @property
    def entries(self) -> list[Entry]:
        return entries_of(self)

    def __repr__(self) -> str:
        return self.made_of


@st.composite
def histories(
    draw: st.DrawFn, /, state: State | None = None, *, turns: tuple[int, int] = (0, 12), **options: Any
) -> History:
    """A history of any kind."""
    return History(
        draw(st.integers(0, 2**32 - 1)),
        dialect=draw(st.sampled_from(SOURCES)),
        state=state or draw(st.sampled_from(STATES)),
        turns=draw(st.integers(*turns)),
        **options,
    )


def policies(**fixed: Any) -> st.SearchStrategy[WindowPolicy]:
    """Any combination of limits and filters, from far too small to far too large."""
    fields: dict[str, st.SearchStrategy[Any]] = {
        "max_turns": st.none() | st.integers(0, 6),
        "max_messages": st.none() | st.integers(0, 25),
        "max_tokens": st.none() | st.integers(1, 400),
        "prompt_tokens": st.sampled_from((0, 0, 10, 60)),
        "tools_tokens": st.sampled_from((0, 0, 10)),
        "preserve_system": st.booleans(),
        "for_request": st.sampled_from((True,)),
        "agent_name": st.sampled_from((None, None, "kitchen")),
        "tags": st.sampled_from(((), (), ("important",), ("output",), ("input", "system"))),
        "retention_ratio": st.sampled_from((0.25, 0.75, 1.0)),
        "count_retention_ratio": st.sampled_from((0.5, 1.0)),
        "look_back": st.sampled_from((0, 2, 64)),
    }
    return st.builds(WindowPolicy, **(fields | {name: st.just(value) for name, value in fixed.items()}))
