"""The documented correctness properties of windows."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from aforesaid.contracts import Entry
from aforesaid.dialects import meaning_of
from aforesaid.model.messages import Message
from aforesaid.testing.histories import entries_of
from aforesaid.windows import WindowPolicy, build_window
from tests.examples import examples
from tests.unit.windows.logs import History, histories, words

AGENTS = ("kitchen", "garden", "music")

plain_logs = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(("user", "assistant")),
        content=st.text(min_size=1, max_size=8),
        agent_name=st.none() | st.sampled_from(AGENTS),
    ),
    min_size=1,
    max_size=60,
).map(entries_of)
tool_logs = histories(turns=(1, 12)).map(lambda history: history.entries)


# Feature: conversation-context, Property 12: Context window limiting
@given(entries=plain_logs | tool_logs, data=st.data())
@examples(300)
def test_a_window_of_n_messages_holds_exactly_the_n_most_recent(
    entries: list[Entry], data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, len(entries)))
    context = build_window(entries, WindowPolicy(max_messages=size), cost=words)
    assert list(context.messages) == [entry.message for entry in entries[-size:]]
    assert {line.reason for line in context.report.left_out} <= {"messages"}


# Feature: conversation-context, Property 31: Agent-specific context filtering
@given(entries=plain_logs, agent=st.sampled_from(AGENTS))
@examples(200)
def test_an_agents_view_holds_its_messages_and_the_users(entries: list[Entry], agent: str) -> None:
    context = build_window(entries, WindowPolicy(agent_name=agent), cost=words)
    expected = [e.message for e in entries if e.message.role == "user" or e.message.agent_name == agent]
    assert list(context.messages) == expected


# Feature: conversation-context, Property 12: Context window limiting
@given(history=histories(turns=(1, 12)), size=st.integers(1, 30), agent=st.sampled_from(AGENTS))
@examples(200)
def test_an_agents_window_is_the_end_of_its_whole_view(history: History, size: int, agent: str) -> None:
    whole = WindowPolicy(max_messages=10_000, agent_name=agent)
    part = WindowPolicy(max_messages=size, agent_name=agent)
    view = build_window(history.entries, whole, cost=words).messages
    assert build_window(history.entries, part, cost=words).messages == view[-size:]
    assert all(m.agent_name == agent for m in view if m.role == "assistant")


# Feature: conversation-context, Property 31: Agent-specific context filtering
@given(history=histories())
@examples(100)
def test_tool_results_belong_to_the_agent_that_called(history: History) -> None:
    context = build_window(history.entries, WindowPolicy(agent_name="kitchen"), cost=words)
    called: set[str] = set()
    for message in context.messages:
        meaning = meaning_of(message)
        called |= {call.id for call in meaning.calls}
        if message.role == "assistant":
            assert message.agent_name == "kitchen"
        assert {result.call_id for result in meaning.results} <= called


# Feature: conversation-context, Property 33: Dual context maintenance
@given(entries=plain_logs, seed=st.integers(0, 2**16))
@examples(200)
def test_the_full_history_and_every_agents_view_stand_side_by_side(entries: list[Entry], seed: int) -> None:
    views: dict[str | None, list[Message]] = {}
    for agent in Random(seed).sample((None, *AGENTS), k=4):
        views[agent] = list(build_window(entries, WindowPolicy(agent_name=agent), cost=words).messages)
    assert views[None] == [entry.message for entry in entries]
    for agent in AGENTS:
        assert views[agent] == [m for m in views[None] if m.role == "user" or m.agent_name == agent]
