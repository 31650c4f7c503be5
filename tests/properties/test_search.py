"""Searching conversations: what is found, what a result holds, in which order, and what filters do."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from recollect.conversations import Conversation
from recollect.manager import ConversationManager
from recollect.search.analysis import terms_of
from tests.properties.worlds import World, examples, roles, value_of

WORDS = ("topeka", "bicycle", "leek", "garage", "violin", "harbour", "pepper", "candle", "märz", "猫")
DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)

words = st.sampled_from(WORDS)
sentences = st.lists(words, max_size=4).map(lambda chosen: " and the ".join(chosen) or "hm")


class Plan(Struct, frozen=True, kw_only=True):
    """A conversation to be made."""

    client_name: str | None
    subject: str | None
    said: list[tuple[Any, str]]
    client_id: str = "00000000-0000-4000-8000-000000000001"
    status: Any = "open"
    tags: list[str] = []
    day: int = 0

    def holds(self, word: str) -> bool:
        texts = [self.client_name or "", self.subject or "", *(text for _, text in self.said)]
        return any(word in text for text in texts)


plans = st.builds(
    Plan,
    client_name=st.none() | words,
    subject=st.none() | words.map(lambda word: f"About the {word}"),
    said=st.lists(st.tuples(roles, sentences), max_size=4),
    client_id=st.sampled_from([f"00000000-0000-4000-8000-00000000000{n}" for n in range(3)]),
    status=value_of("status"),
    tags=st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True),
    day=st.integers(0, 9),
)


async def made(manager: ConversationManager, plan: Plan, number: int) -> Conversation:
    conversation = await manager.get_or_create_conversation(f"s{number}")
    await manager.associate_client(conversation.id, plan.client_id, plan.client_name or "")
    for at, (role, text) in enumerate(plan.said):
        said_at = DAY + timedelta(days=plan.day, minutes=at)
        await manager.add_message(conversation.id, role, text, timestamp=said_at)
    return await manager.update_metadata(
        conversation.id, status=plan.status, subject=plan.subject, tags=plan.tags
    )


# Feature: conversation-context, Property 26: Search by multiple criteria
@examples
@given(planned=st.lists(plans, max_size=5), word=words)
def test_a_word_in_name_subject_or_content_is_found(world: World, planned: list[Plan], word: str) -> None:
    async def play(erin: ConversationManager) -> None:
        ids = [(await made(erin, plan, number)).id for number, plan in enumerate(planned)]
        found = await erin.search_conversations(word)
        expected = {each for each, plan in zip(ids, planned, strict=True) if plan.holds(word)}
        assert {each.id for each in found} == expected

    world.play(play)


# Feature: conversation-context, Property 27: Search result structure
@examples
@given(plan=plans, word=words)
def test_a_result_has_metadata_and_marked_excerpts(world: World, plan: Plan, word: str) -> None:
    async def play(erin: ConversationManager) -> None:
        record = await made(erin, plan, 1)
        for found in await erin.search_conversations(word):
            assert (found.id, found.subject, found.client_name) == (
                record.id,
                record.subject,
                record.client_name,
            )
            assert (found["status"], found["created_at"]) == (record.status, record.created_at)
            assert found.metadata["tags"] == list(record.tags)
            said = [text for _, text in plan.said]
            assert all(one.text in said and f"**{word}**" in one.marked for one in found.excerpts)
            assert bool(found.excerpts) == any(word in text for text in said)
            assert found.to_dict()["id"] == record.id

    world.play(play)


# Feature: conversation-context, Property 29: Search result ranking
@examples
@given(planned=st.lists(plans, max_size=5), asked=st.lists(words, min_size=1, max_size=3, unique=True))
def test_results_come_by_relevance_then_the_latest_first(
    world: World, planned: list[Plan], asked: list[str]
) -> None:
    async def play(erin: ConversationManager) -> None:
        records = [await made(erin, plan, number) for number, plan in enumerate(planned)]
        active = {record.id: record.last_activity for record in records}
        found = await erin.search_conversations(" ".join(asked))
        order = [(-round(each.score, 9), -active[each.id].timestamp()) for each in found]
        assert order == sorted(order)
        assert [each.id for each in await erin.search_conversations()] == [
            record.id for record in (await erin.list()).conversations
        ]

    world.play(play)


# Feature: conversation-context, Property 30: Search filtering
@examples
@given(planned=st.lists(plans, min_size=1, max_size=5), data=st.data())
def test_every_filter_applies(world: World, planned: list[Plan], data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(planned))
    filters = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "client_id": st.just(chosen.client_id),
                "status": st.just(chosen.status),
                "tags": st.just(chosen.tags),
                "date_from": st.integers(0, 9).map(lambda day: DAY + timedelta(days=day)),
                "date_to": st.integers(0, 9).map(lambda day: DAY + timedelta(days=day, hours=1)),
            },
        )
    )
    query = data.draw(st.none() | words)

    async def play(erin: ConversationManager) -> None:
        records = [await made(erin, plan, number) for number, plan in enumerate(planned)]
        listed = {record.id for record in (await erin.list(**filters)).conversations}
        holding = {
            record.id
            for record, plan in zip(records, planned, strict=True)
            if query is None or plan.holds(query)
        }
        found = [each.id for each in await erin.search_conversations(query, **filters)]
        assert set(found) == listed & holding
        assert len(await erin.search_conversations(query, **filters, limit=1)) == min(1, len(found))

    world.play(play)


hostile = (
    st.text(st.characters(codec=None), max_size=60)
    | st.text(st.sampled_from("\"'()*^:-+~{}[]<>&|!\\/%_;\0 ab"), max_size=30)
    | st.sampled_from(
        (
            '"unbalanced',
            "a AND OR NOT b NEAR(c d)",
            "'; DROP TABLE messages; --",
            "secret:* & !x <-> y",
            "\ud800",
            "🎂🎂",
            "x" * 30_000,
            "word " * 10_000,
            "漢字" * 5_000,
            "%s %d {0} ${x}",
            "* col:value ^start",
        )
    )
)


@settings(examples, max_examples=200)
@given(query=hostile, secret=words)
def test_no_query_raises_and_none_reaches_another_owner(world: World, query: str, secret: str) -> None:
    async def play(erin: ConversationManager) -> None:
        mine = await made(erin, Plan(client_name="Erin", subject=None, said=[("user", "my own words")]), 1)
        theirs = world.memory.of(f"{mine.id}-other")
        other = await made(theirs, Plan(client_name=secret, subject=secret, said=[("user", secret)]), 1)
        try:
            for asked in (query, f"{query} {secret}"):
                found = await erin.search(asked, 5, explain=True)
                assert {passage.conversation_id for passage in found.passages} <= {mine.id}
                conversations = await erin.search_conversations(asked)
                assert {each.id for each in conversations} <= {mine.id}
                assert other.id not in str((found, conversations))
        finally:
            await theirs.delete_conversation(other.id)

    world.play(play)


@examples
@given(said=st.lists(sentences, min_size=1, max_size=6), word=words)
def test_every_message_with_a_word_is_found_and_quoted(world: World, said: list[str], word: str) -> None:
    async def play(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        for text in said:
            await erin.add_message(conversation.id, "user", text)
        found = (await erin.search(word, 10)).passages
        holding = [text for text in said if word in text]
        assert sorted(passage.text for passage in found if word in passage.text) == sorted(holding)
        assert all(set(terms_of(word)) & set(terms_of(passage.text)) for passage in found[: len(holding)])

    world.play(play)
