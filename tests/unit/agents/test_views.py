"""What an agent sees of a conversation that it shares."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from aforesaid.agents.views import narrate_others
from aforesaid.dialects import meaning_of, write
from aforesaid.model.messages import Message
from aforesaid.testing.histories import DIALECT_NAMES, STATES, State, entries_of, random_history
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy, build_window
from tests.unit.windows.logs import words


def call(call_id: str, agent: str) -> Message:
    document = {"id": call_id, "name": "look", "arguments": {}}
    return Message(role="assistant", content="", extra={"tool_calls": [document]}, agent_name=agent)


def result(call_id: str, text: str) -> Message:
    return Message(role="tool", content=text, extra={"tool_call_id": call_id})


def test_a_result_goes_with_the_call_that_it_answers_not_with_its_id() -> None:
    history = [
        Message(role="user", content="A?"),
        call("call_0", "garden"),
        result("call_0", "theirs"),
        Message(role="user", content="B?"),
        call("call_0", "kitchen"),
        result("call_0", "mine"),
    ]
    seen = narrate_others(history, "kitchen")
    assert [message.content for message in seen if message.role == "tool"] == ["mine"]


def test_a_question_that_came_with_results_stays() -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "found"},
        {"type": "text", "text": "And now?"},
    ]
    history = [
        Message(role="user", content="A?"),
        call("c1", "garden"),
        Message(role="user", content=blocks, dialect="anthropic"),
    ]
    assert [meaning_of(message).text for message in narrate_others(history, "kitchen")] == ["A?", "And now?"]


@given(
    seed=st.integers(0, 2**32),
    source=st.sampled_from([*DIALECT_NAMES, "mixed"]),
    state=st.sampled_from(STATES),
    turns=st.integers(1, 5),
    same_ids=st.booleans(),
    agent=st.sampled_from(["kitchen", "garden", "cellar"]),
)
def test_a_narrated_window_is_valid_everywhere_and_loses_no_words(
    seed: int, source: str, state: State, turns: int, same_ids: bool, agent: str
) -> None:
    history = random_history(Random(seed), dialect=source, state=state, turns=turns, same_ids=same_ids)
    window = build_window(entries_of(history), WindowPolicy(), cost=lambda _: 1)
    seen = narrate_others(window.messages, agent)
    for dialect in DIALECT_NAMES:
        assert problems(write(seen, dialect), dialect) == []
    assert not any(meaning_of(message).calls and message.agent_name not in (None, agent) for message in seen)
    texts = [text for message in window.messages if (text := meaning_of(message).text.strip())]
    describe = "\n".join(meaning_of(message).text for message in seen)
    assert all(text in describe for text in texts)


@given(
    seed=st.integers(0, 2**32),
    source=st.sampled_from([*DIALECT_NAMES, "mixed"]),
    state=st.sampled_from(STATES),
    max_tokens=st.integers(1, 400),
    agent=st.sampled_from(["kitchen", "garden", "cellar"]),
)
def test_a_narrated_window_costs_no_more_than_its_report_says(
    seed: int, source: str, state: State, max_tokens: int, agent: str
) -> None:
    history = random_history(Random(seed), dialect=source, state=state, turns=8)
    policy = WindowPolicy(max_tokens=max_tokens, told_to=agent)
    window = build_window(entries_of(history), policy, cost=words)
    assert sum(map(words, narrate_others(window.messages, agent))) <= window.report.tokens.total
