"""Searching conversations: what is found, what a result holds, in which order, and what filters do."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from msgspec import Struct

from aforesaid.errors import DocumentConflict
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message
from aforesaid.search.analysis import terms_of
from tests.builders import Target, add_client, roles, value_of
from tests.examples import for_all

WORDS = ("topeka", "bicycle", "leek", "garage", "violin", "harbour", "pepper", "candle", "märz", "猫")
DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
CLIENT = "00000000-0000-4000-8000-000000000001"

words = st.sampled_from(WORDS)
sentences = st.lists(words, max_size=4).map(lambda chosen: " and the ".join(chosen) or "hm")


class Plan(Struct, frozen=True, kw_only=True):
    """A conversation to be made."""

    client_name: str | None
    subject: str | None
    said: list[tuple[Any, str]]
    client_id: str | None = None
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
    if plan.client_id is not None:
        with suppress(DocumentConflict):  # several plans have one client
            await add_client(manager, plan.client_id)
        await manager.associate_client(conversation.id, plan.client_id, plan.client_name or "")
    moments = [DAY + timedelta(days=plan.day, minutes=at) for at in range(len(plan.said))]
    await manager.append(
        conversation.id,
        [
            Message(role=role, content=text, timestamp=moment)
            for (role, text), moment in zip(plan.said, moments, strict=True)
        ],
    )
    if (plan.client_id, plan.subject, plan.status, plan.tags) == (None, None, "open", []):
        return conversation
    return await manager.update_metadata(
        conversation.id, status=plan.status, subject=plan.subject, tags=plan.tags
    )


# Feature: conversation-context, Property 26: Search by multiple criteria
@for_all(planned=st.lists(plans, max_size=3), word=words)
def test_a_word_in_name_subject_or_content_is_found(target: Target, planned: list[Plan], word: str) -> None:
    async def scenario(erin: ConversationManager) -> None:
        ids = [(await made(erin, plan, number)).id for number, plan in enumerate(planned)]
        found = await erin.search_conversations(word)
        expected = {each for each, plan in zip(ids, planned, strict=True) if plan.holds(word)}
        assert {each.id for each in found} == expected

    target.run(scenario)


# Feature: conversation-context, Property 27: Search result structure
@for_all(plan=plans, word=words)
def test_a_result_has_metadata_and_marked_excerpts(target: Target, plan: Plan, word: str) -> None:
    async def scenario(erin: ConversationManager) -> None:
        record = await made(erin, plan, 1)
        for found in await erin.search_conversations(word):
            assert (found.id, found.subject, found.client_name) == (
                record.id,
                record.subject,
                record.client_name,
            )
            assert (found["status"], found["created_at"]) == (record.status, record["created_at"])
            assert found["tags"] == list(record.tags)
            said = [text for _, text in plan.said]
            assert all(one.text in said and f"**{word}**" in one.marked for one in found.excerpts)
            assert bool(found.excerpts) == any(word in text for text in said)
            assert found.to_dict()["id"] == record.id

    target.run(scenario)


# Feature: conversation-context, Property 28: JSONB content search
@for_all(
    planned=st.lists(st.lists(st.tuples(roles, sentences), max_size=4), min_size=1, max_size=4),
    word=words,
    in_blocks=st.booleans(),
)
def test_a_word_in_any_message_finds_the_conversation(
    target: Target, planned: list[list[tuple[Any, str]]], word: str, in_blocks: bool
) -> None:
    async def scenario(erin: ConversationManager) -> None:
        expected = set()
        for number, said in enumerate(planned):
            conversation = await erin.get_or_create_conversation(f"s{number}")
            await erin.append(
                conversation.id,
                [
                    Message(role=role, content=[{"type": "text", "text": text}] if in_blocks else text)
                    for role, text in said
                ],
            )
            if any(word in text.split() for _, text in said):
                expected.add(conversation.id)
        found = await erin.search_conversations(word)
        assert {each.id for each in found} == expected
        assert all(word in excerpt.text for each in found for excerpt in each.excerpts)

    target.run(scenario)


FILLER = ("stone", "paper", "scissors", "window")


# Feature: conversation-context, Property 29: Search result ranking
@for_all(
    asked=st.lists(words, min_size=2, max_size=4, unique=True),
    shares=st.lists(st.integers(0, 4), min_size=2, max_size=6),
    days=st.permutations(range(6)),
)
def test_more_of_the_question_ranks_higher_and_the_latest_comes_first_among_equals(
    target: Target, asked: list[str], shares: list[int], days: list[int]
) -> None:
    """Conversation n holds the first `shares[n]` words of the question, in as many words as all others."""

    async def scenario(erin: ConversationManager) -> None:
        expected = []
        for number, (share, day) in enumerate(zip(shares, days, strict=False)):
            held = asked[:share]
            text = " ".join([*held, *FILLER[len(held) :]])
            record = await made(
                erin, Plan(client_name=None, subject=None, said=[("user", text)], day=day), number
            )
            if held:
                expected.append((-len(held), -day, record.id))
        found = await erin.search_conversations(" ".join(asked))
        assert [each.id for each in found] == [each for _, _, each in sorted(expected)]
        scores = [each.score for each in found]
        held_by = [-held for held, _, _ in sorted(expected)]
        for (above, more), (below, fewer) in pairwise(zip(scores, held_by, strict=True)):
            assert above > below if more > fewer else round(above, 9) == round(below, 9)
        assert [each.id for each in await erin.search_conversations()] == [
            record.id for record in (await erin.list()).conversations
        ]

    target.run(scenario)


class Filters(Struct, frozen=True, kw_only=True):
    """What a search may be restricted to, and the rule, independent of the product's own."""

    client_id: str | None = None
    status: str | None = None
    tags: tuple[str, ...] = ()
    from_day: int | None = None
    to_day: int | None = None

    def admits(self, plan: Plan) -> bool:
        """A plan without messages is active when it is made, long after the days of the plans."""
        day = plan.day if plan.said else LATER
        return (
            self.client_id in (None, plan.client_id)
            and self.status in (None, plan.status)
            and (not self.tags or any(tag in plan.tags for tag in self.tags))
            and (self.from_day is None or day >= self.from_day)
            and (self.to_day is None or day <= self.to_day)
        )

    def arguments(self) -> dict[str, Any]:
        given_filters = {
            "client_id": self.client_id,
            "status": self.status,
            "tags": self.tags or None,
            "date_from": None if self.from_day is None else DAY + timedelta(days=self.from_day),
            "date_to": None if self.to_day is None else DAY + timedelta(days=self.to_day, hours=1),
        }
        return {name: value for name, value in given_filters.items() if value is not None}


LATER = 10_000
filters = st.builds(
    Filters,
    client_id=st.none() | st.sampled_from([f"00000000-0000-4000-8000-00000000000{n}" for n in range(3)]),
    status=st.none() | value_of("status"),
    tags=st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True).map(tuple),
    from_day=st.none() | st.integers(0, 9),
    to_day=st.none() | st.integers(0, 9),
)


# Feature: conversation-context, Property 30: Search filtering
@for_all(planned=st.lists(plans, min_size=1, max_size=4), wanted=filters, query=st.none() | words)
def test_every_filter_applies(
    target: Target, planned: list[Plan], wanted: Filters, query: str | None
) -> None:
    async def scenario(erin: ConversationManager) -> None:
        records = [await made(erin, plan, number) for number, plan in enumerate(planned)]
        expected = {
            record.id
            for record, plan in zip(records, planned, strict=True)
            if wanted.admits(plan) and (query is None or plan.holds(query))
        }
        found = [each.id for each in await erin.search_conversations(query, **wanted.arguments())]
        assert set(found) == expected
        assert len(found) == len(expected)
        listed = (await erin.list(**wanted.arguments())).conversations
        assert {each.id for each in listed} == {
            record.id for record, plan in zip(records, planned, strict=True) if wanted.admits(plan)
        }
        limited = await erin.search_conversations(query, **wanted.arguments(), limit=1)
        assert len(limited) == min(1, len(found))

    target.run(scenario)


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


@for_all(query=hostile, secret=words)
def test_no_query_raises_and_none_reaches_another_owner(target: Target, query: str, secret: str) -> None:
    async def scenario(erin: ConversationManager) -> None:
        mine = await made(erin, Plan(client_name=None, subject=None, said=[("user", "my own words")]), 1)
        theirs = target.memory.of(f"{mine.id}-other")
        other = await made(
            theirs, Plan(client_name=secret, client_id=CLIENT, subject=secret, said=[("user", secret)]), 1
        )
        try:
            for asked in (query, f"{query} {secret}"):
                found = await erin.search(asked, 5, explain=True)
                assert {passage.conversation_id for passage in found.passages} <= {mine.id}
                conversations = await erin.search_conversations(asked)
                assert {each.id for each in conversations} <= {mine.id}
                assert other.id not in str((found, conversations))
        finally:
            await theirs.delete_conversation(other.id)

    target.run(scenario)


@for_all(said=st.lists(sentences, min_size=1, max_size=6), word=words)
def test_every_message_with_a_word_is_found_and_quoted(target: Target, said: list[str], word: str) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        await erin.append(conversation.id, [Message(role="user", content=text) for text in said])
        found = (await erin.search(word, 10)).passages
        holding = [text for text in said if word in text]
        assert sorted(passage.text for passage in found if word in passage.text) == sorted(holding)
        assert all(set(terms_of(word)) & set(terms_of(passage.text)) for passage in found[: len(holding)])

    target.run(scenario)
