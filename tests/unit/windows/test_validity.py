"""Every window is a request that every provider accepts, whatever the log and the policy."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from aforesaid.contracts import Entry
from aforesaid.dialects import OPENING, meaning_of
from aforesaid.errors import BudgetExceeded, NothingToSend
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message
from aforesaid.testing.histories import DIALECT_NAMES, STATES, State
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy, build_window, write_request
from tests.examples import examples
from tests.unit.windows.logs import History, calls, histories, log, policies, result, user, words


def check_valid(context: Context, entries: Sequence[Entry], policy: WindowPolicy) -> None:
    """A request for every provider; or, where no words pass the filter, an error before it is sent."""
    event("a request" if context.report.nothing_to_send is None else "nothing to send")
    for dialect in DIALECT_NAMES:
        if context.report.nothing_to_send is None:
            assert problems(write_request(context, dialect), dialect) == []
        else:
            with pytest.raises(NothingToSend, match="passes the filter by"):
                write_request(context, dialect)
    if context.report.nothing_to_send is not None:
        assert all(message.role == "system" for message in context.messages)
        assert not [entry for entry in entries if is_heard(entry.message, policy)]


def is_heard(message: Message, policy: WindowPolicy) -> bool:
    """Whether these are words of a user or an agent, and pass the filters on their own."""
    if message.role not in ("user", "assistant") or not meaning_of(message).text:
        return False
    own = {*message.tags, "input" if message.role == "user" else "output"}
    of_agent = message.role == "user" or policy.agent_name in (None, message.agent_name)
    return of_agent and (not policy.tags or not own.isdisjoint(policy.tags))


def check_budget(context: Context, policy: WindowPolicy) -> None:
    report = context.report
    assert report.tokens.prompt + report.tokens.tools == policy.outside
    first = next((message for message in context.messages if message.role != "system"), None)
    # Some dialects insert a user's message before the assistant's.
    opening = words(Message(role="user", content=OPENING)) if first and first.role == "assistant" else 0
    assert report.tokens.system + report.tokens.history - sum(map(words, context.messages)) in (0, opening)
    if policy.max_tokens is not None and report.tokens.total > policy.max_tokens:
        assert any("the budget is" in warning for warning in report.warnings)


def question(entries: Sequence[Entry]) -> str:
    """What the user asked last."""
    asked = [meaning_of(entry.message).text for entry in entries if entry.message.role == "user"]
    return [text for text in asked if text][-1]


def check(entries: list[Entry], policy: WindowPolicy, state: State) -> None:
    context = build_window(entries, policy, cost=words)
    check_valid(context, entries, policy)
    check_budget(context, policy)
    if state != "at rest" and not policy.tags and policy.agent_name is None:
        texts = [meaning_of(message).text for message in context.messages if message.role == "user"]
        assert question(entries) in texts


def for_any_history(count: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        return examples(count)(given(data=st.data(), policy=policies())(test))

    return decorated


@pytest.mark.parametrize("state", STATES)
@for_any_history(300)
def test_no_window_is_refused(state: State, data: st.DataObject, policy: WindowPolicy) -> None:
    check(data.draw(histories(state)).entries, policy, state)


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
@for_any_history(1000)
def test_no_window_of_a_thousand_is_refused(state: State, data: st.DataObject, policy: WindowPolicy) -> None:
    check(data.draw(histories(state)).entries, policy, state)


@given(history=histories(same_ids=True), policy=policies())
@examples(200)
def test_call_ids_that_come_again_in_every_turn_are_distinguished(
    history: History, policy: WindowPolicy
) -> None:
    check_valid(build_window(history.entries, policy, cost=words), history.entries, policy)


@given(call_id=st.sampled_from(("a", "")), results=st.integers(0, 3), policy=policies())
@examples(200)
def test_calls_of_one_message_with_one_id_are_distinguished(
    call_id: str, results: int, policy: WindowPolicy
) -> None:
    brought = [result(call_id, f"found {number}") for number in range(results)]
    entries = log(user("q"), calls(call_id, call_id), *brought, user("and?"), calls(call_id))
    check_valid(build_window(entries, policy, cost=words), entries, policy)


@given(history=histories(), policy=policies(oversize="error"))
@examples(200)
def test_a_window_that_may_not_be_too_large_is_within_its_budget_or_refused(
    history: History, policy: WindowPolicy
) -> None:
    try:
        context = build_window(history.entries, policy, cost=words)
    except BudgetExceeded as error:
        refused = error
    else:
        assert policy.max_tokens is None or context.report.tokens.total <= policy.max_tokens
        check_valid(context, history.entries, policy)
        return
    assert refused.needed > refused.budget == policy.max_tokens


@given(history=histories(), policy=policies(agent_name=None, tags=(), look_back=0, preserve_system=False))
@examples(200)
def test_every_message_is_in_the_window_or_in_the_report(history: History, policy: WindowPolicy) -> None:
    entries = history.entries
    context = build_window(entries, policy, cost=words)
    stamps = {message.timestamp for message in context.messages}
    left_out = {line.sequence for line in context.report.left_out}
    for entry in entries:
        assert entry.message.timestamp in stamps or entry.sequence in left_out
