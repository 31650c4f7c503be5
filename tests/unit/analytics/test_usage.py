"""Numbers of requests, searches and notes: what they are, when they are written, and when they go."""

from datetime import UTC, datetime

import pytest

import aforesaid
from aforesaid.agents.loop import AgenticLoop
from aforesaid.agents.recall import RecallAgent
from aforesaid.agents.stored_turns import answer_turn
from aforesaid.agents.views import Specialist
from aforesaid.analytics.noted import ContextUse, Noted, SearchUse, Tally
from aforesaid.analytics.quotations import is_quoted
from aforesaid.analytics.records import ROWS
from aforesaid.analytics.usage import MANY, MOST, UsageLog, agent_turn
from aforesaid.errors import StoreUnavailable
from aforesaid.memory.manager import ConversationManager
from aforesaid.stores.memory import InMemoryBackend
from tests.doubles import Scripted
from tests.faults import Failing

FOUND = ["The roof of the old barn leaks near the chimney.", "Tea"]


def now() -> datetime:
    """Read at each use: midnight may pass while tests run."""
    return datetime.now(UTC)


def a_search(conversation_id: str | None = None, hits: int = 1) -> Noted:
    return Noted(conversation_id, now(), SearchUse(hits))


async def test_requests_searches_and_notes_are_counted_by_conversation() -> None:
    manager = ConversationManager()
    await manager.add_message("roof", "user", "The roof leaks.")
    roof = (await manager.get_conversation("roof")).id
    store, usage = manager.store, manager.usage
    for tokens, left_out in ((100, 5), (300, 15)):
        use = ContextUse(
            messages=4, stable=3, known=20, left_out=left_out, tokens=tokens, summary_tokens=40, notes=2
        )
        usage.note(store.owner, Noted(roof, now(), use))
    uncounted = ContextUse(messages=0, stable=0, known=0, left_out=0, tokens=None, summary_tokens=0, notes=0)
    usage.note(store.owner, Noted(roof, now(), uncounted))
    usage.note(store.owner, a_search(roof, hits=3))
    usage.note(store.owner, a_search(None, hits=0))
    usage.note(store.owner, Noted(None, now(), Tally("notes_made")))
    found = (await manager.analytics()).total
    names = ("requests", "searches", "notes_made", "notes_used")
    assert [found.counts[name] for name in names] == [3, 2, 1, 4]
    assert found.shares["left_out"] == 0.5
    assert found.shares["summary"] == 0.2
    assert found.shares["stable_prefix"] == 0.75
    assert found.shares["requests_with_notes"] == 0.6667
    assert found.shares["searches_without_result"] == 0.5
    assert found.distributions["left_out"].count == 2
    assert found.distributions["left_out"].buckets[2].count == 1
    assert found.distributions["request_tokens"].count == 2
    assert found.distributions["search_hits"].p99 == 3
    by_channel = await manager.analytics(by="channel")
    assert {one.value: one.counts["searches"] for one in by_channel.groups} == {"text": 1, None: 1}
    assert by_channel.total.counts == found.counts


async def test_a_percentage_is_at_most_a_hundred() -> None:
    manager = ConversationManager()
    await manager.add_message("roof", "user", "The roof leaks.")
    full = ContextUse(messages=5, stable=5, known=5, left_out=0, tokens=9, summary_tokens=0, notes=0)
    manager.usage.note(manager.owner, Noted(None, now(), full))
    assert (await manager.analytics()).total.distributions["stable_prefix"].p50 == 100


async def test_a_context_counts_if_it_is_a_request_of_a_turn() -> None:
    manager = ConversationManager()
    await manager.add_message("roof", "user", "The roof leaks.")
    await manager.load_context("roof")
    await manager.load_context("roof", for_request=True)
    assert (await manager.analytics()).total.counts["requests"] == 0
    async with manager.turn("roof") as turn:
        turn.user("When do you come?")
        await turn.load_context()
        await turn.request("plain")
    assert (await manager.analytics()).total.counts["requests"] == 2


async def test_listing_without_a_question_is_no_search_and_no_use_of_notes() -> None:
    manager = ConversationManager()
    await manager.remember("Erin prefers tea.")
    await manager.remember("Erin prefers tea.")
    await manager.search_history()
    await manager.recall()
    counts = (await manager.analytics()).total.counts
    assert (counts["searches"], counts["notes_made"], counts["notes_used"]) == (0, 1, 0)
    await manager.search_history("tea")
    await manager.recall("tea")
    counts = (await manager.analytics()).total.counts
    assert (counts["searches"], counts["notes_used"]) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "quotes"),
    [
        ("You said that the roof of the old barn leaks near it.", True),
        ("The barn is old and its roof needs work.", False),
        ("You like tea.", True),
        ("", False),
    ],
)
def test_a_quotation_repeats_four_content_words_or_the_whole_text(answer: str, quotes: bool) -> None:
    assert is_quoted(FOUND, answer) is quotes
    assert not is_quoted(["the of and"], answer)


async def test_an_answer_that_quotes_what_its_turn_found_is_counted_in_its_conversation() -> None:
    manager = ConversationManager()
    await manager.add_message("barn", "user", FOUND[0])
    recall = Specialist(loop=AgenticLoop(RecallAgent(manager)))
    await answer_turn(manager, "asked", recall, "What did I say about the roof of the barn?")
    found = (await manager.analytics(agent="recall")).total
    assert found.counts["searches"] == 1
    assert found.shares["quoted_searches"] == 1
    with agent_turn((await manager.get_conversation("asked")).id) as turn:
        await manager.search_history("barn roof")
    turn.answered("I do not know.")
    found = (await manager.analytics(agent="recall")).total
    assert found.shares["quoted_searches"] == 0.5
    await manager.search_history("barn roof")
    assert (await manager.analytics(agent="recall")).total.counts["searches"] == 2


async def test_numbers_that_were_written_first_get_the_labels_of_the_next_count() -> None:
    manager = ConversationManager()
    await manager.add_message("c", "user", "hello")
    await manager.add_message("c", "assistant", "Hello.", agent_name="bot")
    manager.usage.note(manager.owner, a_search((await manager.get_conversation("c")).id))
    await manager.usage.write_all()
    groups = (await manager.analytics(by="agent")).groups
    assert {one.value: one.counts["searches"] for one in groups} == {"bot": 1}


async def test_the_request_of_an_agent_counts_in_its_conversation() -> None:
    manager = ConversationManager()
    await answer_turn(manager, "c", Specialist(loop=AgenticLoop(Scripted("Hello."))), "Hi")
    assert (await manager.analytics(agent="assistant")).total.counts["requests"] == 1


async def test_an_erasure_takes_the_numbers_and_a_deletion_leaves_them() -> None:
    manager = ConversationManager()
    for name in ("erased", "deleted", "kept"):
        await manager.add_message(name, "user", "hello")
        manager.usage.note(manager.owner, a_search((await manager.get_conversation(name)).id))
    manager.usage.note(manager.owner, a_search())
    assert (await manager.analytics()).total.counts["searches"] == 4
    await manager.delete_conversation("deleted")
    await manager.erase("erased")
    assert (await manager.analytics()).total.counts["searches"] == 3
    await manager.recompute_analytics()
    assert (await manager.analytics()).total.counts["searches"] == 3
    await manager.recompute_analytics(keep_removed=False)
    found = (await manager.analytics()).total.counts
    assert (found["searches"], found["opened"]) == (2, 1)


async def test_what_is_noted_of_an_erased_conversation_or_owner_is_not_written() -> None:
    async with aforesaid.open("memory://") as memory:
        manager = memory.of("firm")
        for name in ("erased", "kept"):
            await manager.add_message(name, "user", "hello")
            memory.usage.note("firm", a_search((await manager.get_conversation(name)).id))
        await manager.erase("erased")
        await manager.add_message("erased", "user", "again")
        assert (await manager.analytics()).total.counts["searches"] == 1
        memory.usage.note("firm", a_search())
        await memory.of("neighbour").remember("Tea is in the tin.")
        memory.usage.note("neighbour", a_search())
        await manager.erase()
        await memory.usage.write_all()
        assert await manager.store.document_kinds() == []
        assert (await memory.of("neighbour").analytics()).total.counts["searches"] == 1


async def test_an_owner_whom_another_process_erased_does_not_come_back() -> None:
    backend = InMemoryBackend()
    usage = UsageLog(backend.of)
    manager = ConversationManager(backend.of("firm"), usage=usage)
    await manager.add_message("roof", "user", "The roof leaks.")
    await manager.search_history("roof")
    await ConversationManager(backend.of("firm")).erase()
    await usage.close()
    assert [owner async for owner in backend.owners()] == []


async def test_numbers_wait_while_the_store_is_down_and_are_written_once() -> None:
    backend = Failing(InMemoryBackend())
    usage = UsageLog(backend.of)
    manager = ConversationManager(backend.of("firm"), usage=usage)
    await manager.add_message("roof", "user", "The roof leaks.")
    await manager.search_history("anything")
    backend.down()
    with pytest.raises(StoreUnavailable):
        await manager.analytics()
    await usage.write_all()
    backend.up()
    for _ in range(2):
        assert (await manager.analytics()).total.counts["searches"] == 1


async def test_many_numbers_are_written_in_the_background_and_few_on_closing() -> None:
    backend = InMemoryBackend()
    usage = UsageLog(backend.of)
    await ConversationManager(backend.of("firm")).add_message("roof", "user", "The roof leaks.")
    for _ in range(MANY - 1):
        usage.note("firm", a_search())
    assert await backend.of("firm").documents(ROWS) == []
    usage.note("firm", a_search())
    await usage._background.done()
    usage.note("firm", a_search())
    await usage.close()
    [row] = await backend.of("firm").documents(ROWS)
    assert f'"searches":{MANY + 1}'.encode() in row.data


async def test_the_latest_numbers_are_kept_when_nothing_can_be_written() -> None:
    backend = Failing(InMemoryBackend())
    usage = UsageLog(backend.of)
    backend.down()
    for _ in range(MOST + MANY):
        usage.note("firm", a_search())
    assert len(usage._noted["firm"]) == MOST
    await usage.close()


async def test_loading_a_request_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = ConversationManager()
    await manager.add_message("roof", "user", "The roof leaks.")

    async def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a turn wrote a document")

    monkeypatch.setattr(type(manager.scope.store), "put_document", refuse)
    async with manager.turn("roof") as turn:
        turn.user("When?")
        await turn.request("plain")
        await manager.search_history("roof")
        turn.assistant("Friday.")
