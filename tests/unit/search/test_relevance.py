"""Relevance: nothing found is a result, and the same number means the same everywhere."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aforesaid
from aforesaid.errors import InvalidInput
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message, Role
from aforesaid.search.encoders import UniversalEncoder, encoder_named
from aforesaid.search.relevance import BUILT_IN, RELATED, CosineScale, Relevance, scale_of
from aforesaid.search.statements import is_acknowledgement, only_asks
from tests.embedders import WordEncoder
from tests.unit.search.test_ranking import Vectors, match, ranked

_installed = encoder_named("universal")
assert isinstance(_installed, UniversalEncoder)
ENCODER: UniversalEncoder = _installed

HOUSEHOLD: tuple[tuple[Role, str], ...] = (
    ("user", "I am allergic to nuts, please remember that for recipes."),
    ("assistant", "I will leave nuts out of every recipe."),
    ("user", "OK"),
    ("user", "Turn the heating in the bathroom to 22 degrees at six."),
    ("assistant", "The bathroom heating is set to 22 degrees from six o'clock."),
    ("user", "Thanks!"),
    ("user", "The plumber comes on Thursday to repair the kitchen tap."),
    ("assistant", "Noted: plumber on Thursday for the kitchen tap."),
    ("user", "Which bin is collected tomorrow?"),
    ("assistant", "The paper bin is collected tomorrow morning."),
    ("user", "Yes please"),
    ("user", "My sister Helen arrives on Saturday with the four o'clock train."),
)


@pytest.fixture(params=["hybrid", "words"])
async def household(request: pytest.FixtureRequest) -> AsyncIterator[ConversationManager]:
    encoder = ENCODER if request.param == "hybrid" else None
    async with aforesaid.open("memory://", models=aforesaid.Models(embedder=encoder)) as memory:
        manager = memory.of("erin")
        conversation = await manager.get_or_create_conversation("s1")
        await manager.append(conversation.id, [Message(role=role, content=text) for role, text in HOUSEHOLD])
        if memory.search_resources.indexer is not None:
            await memory.search_resources.indexer.wait_until_idle()
        yield manager


async def texts(manager: ConversationManager, query: str, **options: object) -> list[str]:
    return [one.text for one in (await manager.search(query, **options)).passages]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "query",
    ["quantum physics", "How did the experiment with the laser go?", "Which football team won the cup?"],
)
async def test_what_was_never_mentioned_finds_nothing(household: ConversationManager, query: str) -> None:
    assert await texts(household, query) == []
    assert await household.search_history(query) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [("nut allergy", "allergic to nuts"), ("plumber", "plumber"), ("When does Helen arrive?", "Helen")],
)
async def test_what_was_said_is_found(household: ConversationManager, query: str, expected: str) -> None:
    found = await household.search(query)
    assert expected in found.passages[0].text
    assert 0.2 <= found.passages[0].relevance <= 1
    assert [one.relevance for one in found.passages] == sorted(
        (one.relevance for one in found.passages), reverse=True
    )


@pytest.mark.parametrize("household", ["hybrid"], indirect=True)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("what can I not eat?", "allergic to nuts"),
        ("water pipe is broken", "tap"),
        ("when is garbage day?", "bin"),
    ],
)
async def test_a_paraphrase_is_found(household: ConversationManager, query: str, expected: str) -> None:
    assert any(expected in text for text in await texts(household, query))


async def test_no_floor_returns_every_match_but_never_an_acknowledgement(
    household: ConversationManager,
) -> None:
    found = await texts(household, "quantum physics of the kitchen tap", max_results=20, min_relevance=0)
    assert found
    assert not {"OK", "Thanks!", "Yes please"} & set(found)


async def test_what_is_about_something_else_is_not_quoted(household: ConversationManager) -> None:
    found = await texts(household, "When does the plumber come?", max_results=10)
    assert "plumber" in found[0]
    assert not [text for text in found if "nuts" in text]


async def test_a_high_floor_drops_more(household: ConversationManager) -> None:
    every = (await household.search("plumber on Thursday", 20, min_relevance=0)).passages
    floor = every[0].relevance
    kept = (await household.search("plumber on Thursday", 20, min_relevance=floor)).passages
    assert 0 < len(kept) < len(every)
    assert all(one.relevance >= floor for one in kept)


@pytest.mark.parametrize("value", [-0.1, 1.1, "much", True, float("nan")])
async def test_a_floor_outside_0_to_1_is_refused(household: ConversationManager, value: object) -> None:
    with pytest.raises(InvalidInput, match="min_relevance"):
        await household.search_history("plumber", min_relevance=value)  # type: ignore[arg-type]


async def test_a_statement_ranks_above_a_question_that_only_asks(household: ConversationManager) -> None:
    other = await household.get_or_create_conversation("s2")
    for text in ("Do I have a nut allergy?", "Nut allergy?"):
        await household.append(other.id, [Message(role="user", content=text)])
    found = await texts(household, "Do I have an allergy to nuts?", max_results=5)
    assert "I am allergic to nuts" in found[0]


@pytest.mark.parametrize("text", ["OK", "ok!", "Thanks!", "Yes, please.", "👍", "Danke", "Oui, merci", "..."])
def test_acknowledgements(text: str) -> None:
    assert is_acknowledgement(text, ("nut",))


@pytest.mark.parametrize("text", ["OK, the nuts are gone", "Thanks to Helen", "Thursday", "Yes, at 7"])
def test_short_statements_are_no_acknowledgements(text: str) -> None:
    assert not is_acknowledgement(text, ("nut",))


def test_an_acknowledgement_that_is_asked_for_is_found() -> None:
    assert not is_acknowledgement("Thanks!", ("thank",))


def test_what_only_asks() -> None:
    terms = ("nut", "allergi")
    assert only_asks("Do I have a nut allergy?", terms)
    assert only_asks("Nuts? Is there an allergy?", terms)
    assert not only_asks("I have a nut allergy.", terms)
    assert not only_asks("What is the weather in Topeka?", ("topeka",))
    assert not only_asks("I have a nut allergy. What can I eat?", terms)
    assert not only_asks("Which restaurant serves dessert near the station without any nuts?", terms)


counts = st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=12)


@given(counts, st.booleans())
def test_relevance_lies_between_0_and_1_and_follows_the_order(
    found: list[tuple[int, ...]], by_meaning: bool
) -> None:
    vectors = Vectors({1: 0.9, 3: 0.1}) if by_meaning else None
    ranking = ranked(*(match(at, *each) for at, each in enumerate(found, 1)), terms=2, vectors=vectors)
    relevance = Relevance(ranking, ranking.ordered)
    values = [relevance.at_most(one.score) for one in ranking.ordered]
    assert all(0 <= value <= 1 for value in values)
    assert values == sorted(values, reverse=True)
    assert all(relevance(one) <= value for one, value in zip(ranking.ordered, values, strict=True))


def test_a_message_with_every_term_is_relevant_in_any_history() -> None:
    ranking = ranked(match(1, 1, 0))
    assert Relevance(ranking, ranking.ordered)(ranking.ordered[0]) > 0.5


def test_the_cosines_of_another_encoder_are_converted() -> None:
    narrow = CosineScale(unrelated=0.7, related=0.9)
    assert narrow.convert(0.7) == pytest.approx(BUILT_IN.unrelated)
    assert narrow.convert(0.9) == pytest.approx(BUILT_IN.related)
    wide = CosineScale(unrelated=0.1, related=0.9)
    assert wide.convert(0.9) - wide.convert(0.1) == pytest.approx(0.8)
    flat = CosineScale(unrelated=0.5, related=0.5)
    assert flat.convert(0.7) == 0.7


def test_the_scale_of_the_built_in_encoder_is_the_one_in_use() -> None:
    measured = scale_of(ENCODER.embed([text for pair in RELATED for text in pair]))
    assert measured.related == pytest.approx(BUILT_IN.related, abs=0.01)
    assert measured.unrelated == pytest.approx(BUILT_IN.unrelated, abs=0.01)
    assert scale_of(WordEncoder().embed([text for pair in RELATED for text in pair])) != measured
