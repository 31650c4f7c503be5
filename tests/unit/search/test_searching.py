"""Searching what was said: passages that can be cited, filters, budgets, browsing."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

import aforesaid
from aforesaid.errors import ConversationNotFound, InvalidInput
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.search.passages import ago, excerpt, mark_matches
from aforesaid.testing import FixedClock

NOW = datetime(2026, 3, 11, 12, tzinfo=UTC)
CET = timezone(timedelta(hours=1))


@pytest.fixture
async def memory() -> AsyncIterator[aforesaid.Memory]:
    async with aforesaid.open(
        "memory://",
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None),
        clock=FixedClock(NOW),
    ) as memory:
        yield memory


@pytest.fixture
async def erin(memory: aforesaid.Memory) -> ConversationManager:
    """Two conversations: last Tuesday's weather, and today's dinner."""
    erin = memory.of("erin")
    weather = await erin.get_or_create_conversation("kitchen", channel="voice")
    await erin.update_metadata(weather.id, subject="Weather", tags=["outside"])
    await _say(
        erin,
        weather.id,
        NOW - timedelta(days=1),
        ("user", "What is the weather in Topeka?"),
        ("assistant", "Sunny, 20 degrees."),
        ("user", "And will it rain at the weekend?"),
        ("assistant", "Some showers on Sunday."),
    )
    dinner = await erin.get_or_create_conversation("phone", channel="text")
    await _say(
        erin,
        dinner.id,
        NOW - timedelta(minutes=5),
        ("user", "What goes with leeks?"),
        ("assistant", "Potatoes and cream."),
    )
    return erin


async def _say(
    manager: ConversationManager, conversation_id: str, start: datetime, *said: tuple[str, str]
) -> None:
    for at, (role, text) in enumerate(said):
        message = Message(role=role, content=text, timestamp=start + timedelta(seconds=at))  # type: ignore[arg-type]
        await manager.append(conversation_id, [message])


async def test_a_snippet_says_who_when_where_and_what(erin: ConversationManager) -> None:
    (snippet,) = await erin.search_history("weather in Topeka", 1, timezone=CET)
    heading, said, reply = snippet.splitlines()
    assert heading.startswith("[Tuesday 10 March 2026, 13:00:00 (yesterday) · “Weather” · conversation ")
    assert said == "User: What is the weather in Topeka?"
    assert reply == "  … Assistant: Sunny, 20 degrees."


async def test_a_client_is_whom_it_is_about_and_not_who_speaks(erin: ConversationManager) -> None:
    topeka = (await erin.search("weather in Topeka", 1)).passages[0].conversation_id
    mary = await erin.clients.add("Mary Johnson")
    await erin.associate_client(topeka, mary.id, mary.name)
    (snippet,) = await erin.search_history("weather in Topeka", 1, timezone=CET)
    heading, said, _ = snippet.splitlines()
    assert "· “Weather” · client Mary Johnson · conversation" in heading
    assert said == "User: What is the weather in Topeka?"


async def test_an_answer_comes_with_its_question(erin: ConversationManager) -> None:
    (passage,) = (await erin.search("potatoes", 1)).passages
    assert passage.text == "Potatoes and cream."
    assert passage.before is not None
    assert passage.before.text == "What goes with leeks?"


@pytest.mark.parametrize(("earlier", "later"), [(0, 20), (4, 3)])
async def test_a_question_comes_with_its_answer_however_it_goes_on(
    erin: ConversationManager, earlier: int, later: int
) -> None:
    """However fast; and where a message is not the one that its number says, since earlier ones came late."""
    hall = await erin.get_or_create_conversation("hall")
    said = [("user", "Lock the gate"), ("assistant", "It is locked."), *[("user", "Thanks")] * later]
    await _say(erin, hall.id, NOW - timedelta(minutes=3), *said)
    await _say(erin, hall.id, NOW - timedelta(hours=3), *[("user", "Hello")] * earlier)
    (passage,) = (await erin.search("lock the gate", 1, role="user")).passages
    assert passage.text == "Lock the gate"
    assert passage.after is not None
    assert passage.after.text == "It is locked."


async def test_what_is_a_result_by_itself_is_not_repeated_beside_another(erin: ConversationManager) -> None:
    passages = (await erin.search("leeks potatoes cream", 2)).passages
    assert [passage.text for passage in passages] == ["What goes with leeks?", "Potatoes and cream."] or [
        passage.text for passage in passages
    ] == ["Potatoes and cream.", "What goes with leeks?"]
    assert not any(passage.before or passage.after for passage in passages)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"role": "assistant"}, {"Sunny, 20 degrees.", "Some showers on Sunday.", "Potatoes and cream."}),
        ({"channel": "text"}, {"What goes with leeks?", "Potatoes and cream."}),
        (
            {"tag": "outside", "role": "user"},
            {"What is the weather in Topeka?", "And will it rain at the weekend?"},
        ),
        ({"date_from": NOW - timedelta(hours=1)}, {"What goes with leeks?", "Potatoes and cream."}),
        ({"date_to": "2026-03-10T12:00:00+00:00"}, {"What is the weather in Topeka?"}),
    ],
)
async def test_every_filter_applies_with_and_without_a_query(
    erin: ConversationManager, filters: dict[str, object], expected: set[str]
) -> None:
    browsed = await erin.search("", 10, **filters)  # type: ignore[arg-type]
    assert {passage.text for passage in browsed.passages} == expected
    asked = await erin.search("weather rain showers sunny leeks potatoes", 10, **filters)  # type: ignore[arg-type]
    assert {passage.text for passage in asked.passages} == expected


async def test_an_empty_query_shows_the_latest_first(erin: ConversationManager) -> None:
    texts = [passage.text for passage in (await erin.search("", 3)).passages]
    assert texts == ["Potatoes and cream.", "What goes with leeks?", "Some showers on Sunday."]


@pytest.mark.parametrize("question", ["yesterday", "What did we talk about last Tuesday?", "2026-03-10"])
async def test_a_question_that_names_only_a_day_shows_that_day(
    erin: ConversationManager, question: str
) -> None:
    texts = {passage.text for passage in (await erin.search(question, 10, timezone=UTC)).passages}
    assert "Sunny, 20 degrees." in texts
    assert "What goes with leeks?" not in texts


async def test_a_budget_of_tokens_is_kept(erin: ConversationManager) -> None:
    counter = erin.intake.counter
    for budget in (1, 40, 80, 200):
        snippets = await erin.search_history("weather leeks rain", 10, max_tokens=budget)
        assert sum(counter.count_text(snippet) for snippet in snippets) <= budget
    assert len(await erin.search_history("weather leeks rain", 10, max_tokens=200)) > 1


async def test_the_parts_of_a_score_are_given_when_asked_for(erin: ConversationManager) -> None:
    plain, explained = await erin.search("Topeka", 1), await erin.search("Topeka", 1, explain=True)
    assert plain.passages[0].parts is None
    parts = explained.passages[0].parts
    assert parts is not None
    assert list(parts.matched) == ["topeka"]
    assert "score" in explained.render()[0]


async def test_without_an_encoder_the_result_says_so(erin: ConversationManager) -> None:
    findings = await erin.search("Topeka")
    assert not findings.by_meaning
    assert findings.note is not None
    assert "aforesaid[semantic]" in findings.note


async def test_what_is_gone_is_not_found(erin: ConversationManager) -> None:
    (passage,) = (await erin.search("Topeka", 1)).passages
    await erin.clear_history(passage.conversation_id)
    assert await erin.search_history("Topeka") == []
    await erin.append(passage.conversation_id, [Message(role="user", content="Topeka again")])
    assert len(await erin.search_history("Topeka")) == 1
    await erin.delete_conversation(passage.conversation_id)
    assert await erin.search_history("Topeka") == []


async def test_a_replaced_message_is_found_by_its_new_words_only(erin: ConversationManager) -> None:
    conversation = await erin.get_or_create_conversation("s")
    await erin.add_message(conversation.id, "user", "my number is 555", message_id="m1")
    assert await erin.search_history("555")
    await erin.store.replace(conversation.id, Message(role="user", content="[removed]", message_id="m1"))
    assert await erin.search_history("555") == []
    assert await erin.search_history("removed")


async def test_similar_conversations_share_what_is_special(erin: ConversationManager) -> None:
    ids = []
    for number, text in enumerate(("the violin needs strings", "violin strings for sale", "a leaking tap")):
        conversation = await erin.get_or_create_conversation(f"s{number}")
        await erin.add_message(conversation.id, "user", text)
        ids.append(conversation.id)
    alike = await erin.similar(ids[0])
    assert [each.id for each in alike][:1] == [ids[1]]
    assert ids[0] not in [each.id for each in alike]
    with pytest.raises(ConversationNotFound):
        await erin.similar("00000000-0000-4000-8000-000000000000")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"max_results": 0}, "max_results"),
        ({"role": "god"}, "role"),
        ({"channel": "smoke signals"}, "channel"),
        ({"date_from": "soon"}, "date_from"),
        ({"date_to": datetime(2026, 1, 1)}, "date_to"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"query": 5}, "query"),
        ({"tag": "\ud800"}, "tag"),
    ],
)
async def test_what_cannot_be_used_is_named(
    erin: ConversationManager, arguments: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await erin.search_history(**arguments)  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("back", "said"),
    [
        (timedelta(seconds=5), "just now"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(hours=3), "3 hours ago"),
        (timedelta(hours=13), "yesterday"),
        (timedelta(days=3), "3 days ago"),
        (timedelta(days=21), "3 weeks ago"),
        (timedelta(days=100), "3 months ago"),
        (timedelta(days=400), "1 year ago"),
        (-timedelta(days=1), "in the future"),
    ],
)
def test_times_are_said_as_people_say_them(back: timedelta, said: str) -> None:
    assert ago(NOW - back, now=NOW) == said


def test_a_long_message_is_quoted_where_it_matches() -> None:
    text = "Nothing here. " * 100 + "The key is under the red flowerpot. " + "And more. " * 100
    quoted = excerpt(text, ["kei", "flowerpot"], size=200)
    assert "The key is under the red flowerpot." in quoted
    assert quoted.startswith("… ")
    assert quoted.endswith(" …")
    assert quoted.strip("… ") in text
    assert len(quoted) <= 210


def test_matches_are_marked() -> None:
    assert mark_matches("Painted paintings, she paints", ["paint"], opening="<", closing=">") == (
        "<Painted> <paintings>, she <paints>"
    )


async def test_the_reply_beside_a_passage_is_what_was_said_without_the_arguments_of_its_call() -> None:
    erin = ConversationManager()
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"door": "back"}'}}
    asked = Message(role="user", content="Is the garden gate locked?")
    looking = Message(role="assistant", content="Let me look.", extra={"tool_calls": [call]})
    await erin.append((await erin.get_or_create_conversation("kitchen")).id, [asked, looking])
    (passage,) = (await erin.search("garden gate")).passages
    assert passage.after is not None
    assert passage.after.text == "Let me look."
