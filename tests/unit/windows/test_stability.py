"""Between two cuts a context only grows at its end: what a provider's prompt cache lives on."""

from collections import Counter
from collections.abc import Iterator

import pytest
from benchmarks.prompt_cache import SCHEMES, SHAPES, replayed
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.contracts import Entry
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message, starts_turn
from aforesaid.windows import WindowPolicy, build_window
from aforesaid.windows.selection import Limit, find_cut, roundness
from tests.examples import examples
from tests.unit.windows.logs import History, assistant, histories, log, said, system, user, words

pytestmark = pytest.mark.slow


def contexts(entries: list[Entry], ends: list[int], policy: WindowPolicy) -> Iterator[Context]:
    """The context at each of these moments."""
    return (build_window(entries[:end], policy, cost=words) for end in ends)


def is_extension(later: tuple[Message, ...], earlier: tuple[Message, ...]) -> bool:
    return later[: len(earlier)] == earlier


def shared(later: tuple[Message, ...], earlier: tuple[Message, ...]) -> int:
    pairs = zip(later, earlier, strict=False)
    return next((at for at, pair in enumerate(pairs) if pair[0] != pair[1]), min(len(later), len(earlier)))


def turn_ends(entries: list[Entry]) -> list[int]:
    """Where the log is at rest: before each question, and at its end."""
    starts = [at for at, entry in enumerate(entries) if starts_turn(entry.message)]
    return [*starts[1:], len(entries)]


def cuts_from(before: Context, context: Context) -> bool:
    """Whether more was left out than before, ephemeral messages aside."""
    # A message may be left out in two halves: its results, and the question next to them.
    gone = Counter(line.sequence for line in before.report.left_out)
    now = Counter(line.sequence for line in context.report.left_out if line.reason != "ephemeral")
    return any(count > gone[sequence] for sequence, count in now.items())


untagged = histories("at rest", turns=(10, 25), troubled=False, tagged=False)


@given(
    history=untagged,
    budget=st.integers(100, 350),
    ratio=st.sampled_from((0.5, 0.75)),
)
@examples(100)
def test_each_context_goes_on_from_the_one_before_or_leaves_out_more(
    history: History, budget: int, ratio: float
) -> None:
    entries = history.entries
    policy = WindowPolicy(max_tokens=budget, retention_ratio=ratio)
    before = Context()
    for context in contexts(entries, turn_ends(entries), policy):
        if not is_extension(context.messages, before.messages):
            assert len(context.report.left_out) > len(before.report.left_out)
        before = context


@given(history=untagged, budget=st.integers(100, 350))
@examples(20)
def test_the_stable_prefix_is_what_stays_until_the_next_cut(history: History, budget: int) -> None:
    entries = history.entries
    policy = WindowPolicy(max_tokens=budget)
    before = Context()
    for context in contexts(entries, list(range(1, len(entries) + 1)), policy):
        # A result may be shorter than the words that stood in for it: then a cut may be undone.
        if not cuts_from(before, context) and not before.report.interrupted:
            assert shared(context.messages, before.messages) >= before.report.stable_prefix
        before = context


@given(
    history=histories("at rest", turns=(8, 14), tagged=False),
    limits=st.sampled_from(({"max_messages": 3}, {"max_messages": 8}, {"max_turns": 3})),
    tokens=st.sampled_from((None, None, 200)),
    ratio=st.sampled_from((0.5, 0.75)),
)
@examples(40)
def test_the_stable_prefix_holds_where_counts_are_cut_in_blocks(
    history: History, limits: dict[str, int], tokens: int | None, ratio: float
) -> None:
    policy = WindowPolicy(for_request=True, max_tokens=tokens, count_retention_ratio=ratio, **limits)  # type: ignore[arg-type]
    before = Context()
    entries = history.entries
    for context in contexts(entries, list(range(1, len(entries) + 1)), policy):
        if not cuts_from(before, context) and not before.report.interrupted:
            assert shared(context.messages, before.messages) >= before.report.stable_prefix
        before = context


def test_important_messages_from_before_the_cut_stand_still_between_cuts() -> None:
    marked = [("important",), (), (), (), (), ()]
    pairs = ((user(f"question {n}", *marked[n % 6]), assistant(f"answer {n}")) for n in range(200))
    entries = log(*(message for pair in pairs for message in pair))
    before, cuts = Context(), 0
    policy = WindowPolicy(max_tokens=200, look_back=64)
    for context in contexts(entries, turn_ends(entries), policy):
        assert cuts_from(before, context) or is_extension(context.messages, before.messages)
        cuts += cuts_from(before, context)
        before = context
    assert cuts < 200 / 4
    assert sum("important" in message.tags for message in before.messages) > 64 / 12


def test_a_growing_chat_is_cut_about_as_rarely_as_with_a_memory() -> None:
    for offset in (0, 1):  # questions at odd numbers, then at even ones
        messages = [user(f"question {n}") if n % 2 else assistant(f"answer {n}") for n in range(1, 601)]
        entries = log(*([system("you are a house")] * offset), *messages)
        policy = WindowPolicy(max_tokens=300)  # 100 messages of three words
        windows = [context.messages for context in contexts(entries, turn_ends(entries), policy)]
        pairs = zip(windows[1:], windows, strict=False)
        cuts = sum(not is_extension(later, earlier) for later, earlier in pairs)
        remembered = (600 - 100) / 25  # each frees a quarter
        assert remembered * 0.9 <= cuts <= remembered * 2


def test_an_ephemeral_message_costs_no_more_of_the_prefix_than_the_turn_it_is_in() -> None:
    fleeting = [("ephemeral",), (), ()]
    pairs = ((user(f"question {n}"), assistant(f"answer {n}", *fleeting[n % 3])) for n in range(200))
    entries = log(*(message for pair in pairs for message in pair))
    windows = [
        context.messages for context in contexts(entries, turn_ends(entries), WindowPolicy(max_tokens=150))
    ]
    cuts = [
        later
        for later, earlier in zip(windows[1:], windows, strict=False)
        if shared(later, earlier) < len(earlier) - 1
    ]
    assert len(cuts) < 200 / 5


@pytest.mark.parametrize("field", ["max_turns", "max_messages"])
def test_counts_are_cut_in_blocks_when_asked(field: str) -> None:
    entries = log(*(user(f"question {n}") if n % 2 else assistant(f"answer {n}") for n in range(1, 401)))
    policy = WindowPolicy(for_request=True, **{field: 40}, count_retention_ratio=0.75)  # type: ignore[arg-type]
    exact = WindowPolicy(for_request=True, **{field: 40})  # type: ignore[arg-type]
    for chosen, most_cuts in ((policy, 50), (exact, 200)):
        windows = [context.messages for context in contexts(entries, turn_ends(entries), chosen)]
        pairs = zip(windows[1:], windows, strict=False)
        cuts = sum(not is_extension(later, earlier) for later, earlier in pairs)
        assert most_cuts / 4 < cuts <= most_cuts


def test_a_window_that_slides_has_no_stable_prefix_but_its_head() -> None:
    entries = log(*(user(f"question {n}") for n in range(9)))
    assert (
        build_window(entries, WindowPolicy(for_request=True, max_messages=4), cost=words).report.stable_prefix
        == 0
    )
    assert (
        build_window(entries, WindowPolicy(for_request=True, max_messages=9), cost=words).report.stable_prefix
        == 9
    )


class TestCut:
    def test_a_start_is_as_round_as_the_roundest_number_that_it_is_the_first_after(self) -> None:
        assert roundness(7, 8) > roundness(8, 9)
        assert roundness(60, 65) > roundness(65, 70) < roundness(90, 97)

    def test_the_roundest_start_in_the_zone_is_taken(self) -> None:
        def start(most: int) -> int | None:
            cut = find_cut(
                range(100),
                total=lambda at: 100 - at,
                limit=Limit(maximum=most, ratio=0.75),
                rank=lambda at: roundness(at - 1, at),
            )
            return None if cut is None else cut.start

        assert start(40) == 64  # of 60 to 70
        assert start(16) == 88  # of 84 to 88
        assert start(0) is None

    def test_with_no_start_in_the_zone_the_first_that_fits_is_taken(self) -> None:
        cut = find_cut(
            [0, 90],
            total=lambda at: 100 - at,
            limit=Limit(maximum=40, ratio=0.75),
            rank=lambda at: roundness(at - 1, at),
        )
        assert cut is not None
        assert cut.start == 90

    def test_a_cut_leaves_the_turn_that_starts_at_the_roundest_number(self) -> None:
        entries = log(*(user(f"q{n}") if n % 2 == 0 else assistant(f"a{n}") for n in range(1, 41)))
        context = build_window(entries, WindowPolicy(max_tokens=40), cost=words)
        assert said(context.messages)[0] == "q24"  # 24 of the even numbers from 22 to 26


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_most_of_a_request_was_in_the_one_before_also_once_the_window_is_full(shape: str) -> None:
    whole, full = replayed(SHAPES[shape], SCHEMES["in blocks"], turns=150)
    _, oldest_first = replayed(SHAPES[shape], SCHEMES["FIFO"], turns=150)
    assert full.requests == oldest_first.requests > 80
    assert min(whole.share, full.share) >= 70 > 2 * oldest_first.share
