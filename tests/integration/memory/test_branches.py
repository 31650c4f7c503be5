"""Branches as a user meets them: where they begin, what they share, merging, removal, and raw files."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.errors import (
    ConversationNotFound,
    InvalidInput,
    InvalidSetting,
    MergeConflict,
    MessageConflict,
    MessageNotFound,
    StoreDamaged,
)
from aforesaid.layers.branched import stored_itself
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.testing.contract.base import FixedClock
from aforesaid.windows import WindowPolicy

CALL = [{"type": "tool_use", "id": "t1", "name": "weather", "input": {}}]
RESULT = [{"type": "tool_result", "tool_use_id": "t1", "content": "rain"}]


def user(words: object, message_id: str | None = None, **fields: object) -> Message:
    return Message(role="user", content=words, message_id=message_id, **fields)  # type: ignore[arg-type]


def assistant(words: object, message_id: str | None = None, **fields: object) -> Message:
    return Message(role="assistant", content=words, message_id=message_id, **fields)  # type: ignore[arg-type]


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
async def memory(clock: FixedClock) -> AsyncIterator[aforesaid.Memory]:
    async with aforesaid.open(
        "memory://", clock=clock, retention=aforesaid.Retention(sweep_every=None)
    ) as memory:
        yield memory


@pytest.fixture
async def manager(memory: aforesaid.Memory, clock: FixedClock) -> ConversationManager:
    manager = memory.of("erin")
    for number in (1, 2):
        await manager.append(
            "dinner", [user(f"q{number}", f"q{number}"), assistant(f"a{number}", f"a{number}")]
        )
        clock.advance(timedelta(minutes=1))
    return manager


async def words(manager: ConversationManager, conversation_id: str) -> list[object]:
    return [entry.message.content for entry in await manager.entries(conversation_id, 100)]


class TestTheForkPoint:
    async def test_a_branch_at_a_question_ends_before_it(self, manager: ConversationManager) -> None:
        branch = await manager.fork("dinner", at="q2", subject="again")
        assert await words(manager, branch.id) == ["q1", "a1"]
        assert (branch.subject, branch.message_count, branch.unread_count) == ("again", 2, 0)

    async def test_a_branch_at_an_answer_contains_it(self, manager: ConversationManager) -> None:
        branch = await manager.fork("dinner", at="a1")
        assert await words(manager, branch.id) == ["q1", "a1"]

    async def test_a_branch_at_the_first_question_is_empty(self, manager: ConversationManager) -> None:
        branch = await manager.fork("dinner", at="q1")
        assert await words(manager, branch.id) == []
        await manager.append(branch.id, [user("else")])
        assert await words(manager, branch.id) == ["else"]

    async def test_a_branch_at_a_tool_call_contains_its_results(self, manager: ConversationManager) -> None:
        turn = [
            user("weather?", "w"),
            assistant(CALL, "call", dialect="anthropic"),
            user(RESULT, "result", dialect="anthropic"),
            assistant("rain", "rain"),
        ]
        await manager.append("dinner", turn)
        branch = await manager.fork("dinner", at="call")
        assert (await manager.entries(branch.id, 100))[-1].message.message_id == "result"

    async def test_a_call_without_a_result_is_no_fork_point(self, manager: ConversationManager) -> None:
        await manager.append("dinner", [user("weather?", "w"), assistant(CALL, "call", dialect="anthropic")])
        with pytest.raises(InvalidInput, match="a2") as refused:
            await manager.fork("dinner", at="call")
        assert refused.value.field == "at"
        assert len(await manager.branches("dinner")) == 1

    async def test_unknown_messages_and_conversations_are_refused(self, manager: ConversationManager) -> None:
        with pytest.raises(MessageNotFound):
            await manager.fork("dinner", at="nothing")
        with pytest.raises(ConversationNotFound):
            await manager.fork("lunch")

    async def test_a_repeated_request_makes_one_branch(self, manager: ConversationManager) -> None:
        forks = [manager.fork("dinner", request_id="r") for _ in range(5)]
        assert len({branch.id for branch in await asyncio.gather(*forks)}) == 1
        assert len(await manager.branches("dinner")) == 2

    async def test_a_branch_of_a_branch_in_the_shared_part_continues_the_root(
        self, manager: ConversationManager
    ) -> None:
        first = await manager.fork("dinner")
        await manager.append(first.id, [user("x"), assistant("y")])
        second = await manager.fork(first.id, at="a1")
        root = await manager.get_conversation("dinner")
        assert [one.conversation_id for one in second.lineage] == [root.id]

    async def test_histories_keep_no_branches(self) -> None:
        class Histories:
            async def load(self, conversation_id: str) -> list[dict[str, object]]:
                return []

            async def save(self, conversation_id: str, history: list[dict[str, object]]) -> None: ...

            async def delete(self, conversation_id: str) -> None: ...

            async def purge_expired(self) -> int:
                return 0

        with pytest.raises(InvalidSetting, match="no branches"):
            await ConversationManager(Histories()).fork("dinner")


class TestWhatIsShared:
    async def test_a_late_message_changes_no_past(
        self, manager: ConversationManager, clock: FixedClock
    ) -> None:
        branch = await manager.fork("dinner")
        await manager.append("dinner", [user("late", "late", timestamp=clock() - timedelta(minutes=2))])
        assert await words(manager, "dinner") == ["q1", "a1", "late", "q2", "a2"]
        assert await words(manager, branch.id) == ["q1", "a1", "q2", "a2"]

    async def test_a_late_message_is_not_in_a_branch_by_its_id_either(
        self, manager: ConversationManager, clock: FixedClock
    ) -> None:
        branch = await manager.fork("dinner")
        parent = await manager.append(
            "dinner", [user("late", "l", timestamp=clock() - timedelta(seconds=90))]
        )
        assert await manager.store.entry(branch.id, "l") is None
        with pytest.raises(MessageNotFound):
            await manager.redact(branch.id, "l")
        compared = await manager.compare(branch.id, parent.conversation.id)
        assert [each.content for each in compared.only_there] == ["late"]
        again = await manager.append(branch.id, [user("another", "l")])
        assert len(again.new) == 1

    async def test_a_retry_of_a_shared_message_stores_nothing(self, manager: ConversationManager) -> None:
        branch = await manager.fork("dinner")
        again = await manager.append(branch.id, [user("q1", "q1")])
        assert not again.new
        with pytest.raises(MessageConflict):
            await manager.append(branch.id, [user("other words", "q1")])
        assert await words(manager, branch.id) == ["q1", "a1", "q2", "a2"]

    async def test_five_forks_read_as_one_log(self, manager: ConversationManager) -> None:
        one, expected = "dinner", ["q1", "a1", "q2", "a2"]
        for number in range(5):
            one = (await manager.fork(one)).id
            await manager.append(one, [user(f"x{number}"), assistant(f"y{number}")])
            expected += [f"x{number}", f"y{number}"]
        assert await words(manager, one) == expected
        assert [message.content for message in (await manager.load_context(one)).messages] == expected

    async def test_a_redaction_is_seen_live_in_a_branch(self, manager: ConversationManager) -> None:
        branch = await manager.fork("dinner")
        await words(manager, branch.id)
        async with manager.watch(branch.id) as changes:
            await manager.redact("dinner", "q1")
            change = await asyncio.wait_for(anext(changes), 240)
        assert change.revision is not None
        assert change.revision > branch.revision
        assert "q1" not in await words(manager, branch.id)

    async def test_a_branch_redacts_a_shared_message_for_all(self, manager: ConversationManager) -> None:
        branch = await manager.fork("dinner")
        await manager.redact(branch.id, "a1")
        assert "a1" not in await words(manager, "dinner")
        assert "a1" not in await words(manager, branch.id)

    async def test_search_finds_a_shared_message_once(self, manager: ConversationManager) -> None:
        await manager.append("dinner", [user("leeks and potatoes", "leeks")])
        branch = await manager.fork("dinner")
        await manager.fork(branch.id)
        found = await manager.search("leeks")
        assert [passage.text for passage in found.passages].count("leeks and potatoes") == 1


class TestSummaries:
    """A branch begins with the summary of what it continues."""

    @pytest.fixture
    async def manager(self) -> AsyncIterator[ConversationManager]:
        models = aforesaid.Models(summarizer="extract", embedder=None)
        async with aforesaid.open("memory://", models=models) as memory:
            manager = memory.of("erin").with_policy(WindowPolicy(max_messages=4))
            for number in range(20):
                question = user(f"How much rhubarb do we need for {number} guests?", f"q{number}")
                await manager.append("dinner", [question, assistant(f"{number} pounds.", f"a{number}")])
            assert await manager.summarize("dinner")
            yield manager

    async def test_the_context_of_a_new_branch_is_that_of_its_parent(
        self, manager: ConversationManager
    ) -> None:
        first = await manager.fork("dinner")
        second = await manager.fork(first.id)
        contexts = [await manager.load_context(each) for each in ("dinner", first.id, second.id)]
        assert "rhubarb" in str(contexts[0].messages[0].content)
        assert contexts[0].messages == contexts[1].messages == contexts[2].messages
        assert contexts[0].report.tokens == contexts[1].report.tokens == contexts[2].report.tokens

    async def test_a_summary_of_later_messages_is_not_that_of_a_branch(
        self, manager: ConversationManager
    ) -> None:
        branch = await manager.fork("dinner", at="a2")
        assert await manager.summary(branch.id) is None

    async def test_a_branch_of_a_branch_takes_the_summary_of_the_root(
        self, manager: ConversationManager
    ) -> None:
        first = await manager.fork("dinner")
        await manager.append(first.id, [user(f"More for {number}?") for number in range(40)])
        assert (await manager.summarize(first.id)) != await manager.summary("dinner")
        second = await manager.fork(first.id, at="a19")
        assert await manager.summary(second.id) == await manager.summary("dinner")

    async def test_a_redaction_removes_the_summaries_of_all_branches(
        self, manager: ConversationManager
    ) -> None:
        branch = await manager.fork("dinner")
        await manager.redact("dinner", "q0")
        assert await manager.summary("dinner") is None
        assert await manager.summary(branch.id) is None

    async def test_a_redaction_while_a_branch_is_made_leaves_no_summary(
        self, manager: ConversationManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = manager.store
        put = store.put_document

        async def redacted_before(*args: Any, **fields: Any) -> Any:
            monkeypatch.undo()
            await manager.redact("dinner", "q0")
            return await put(*args, **fields)

        monkeypatch.setattr(store, "put_document", redacted_before)
        branch = await manager.fork("dinner")
        assert await manager.summary(branch.id) is None


class TestPages:
    async def test_a_page_of_a_branch_reads_that_page(
        self, manager: ConversationManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = [f"q{number}" for number in range(3, 903)]
        await manager.append("dinner", [user(each, each) for each in expected[:600]])
        first = await manager.fork("dinner")
        await manager.append(first.id, [user(each, each) for each in expected[600:]])
        second = await manager.fork(first.id)
        read = 0
        inner = type(stored_itself(manager.store))
        page, tail = inner.page, inner.tail

        async def counted(method: Any, *args: Any, **fields: Any) -> Any:
            nonlocal read
            found = await method(*args, **fields)
            read += len(found)
            return found

        monkeypatch.setattr(inner, "page", partialmethod(lambda *a, **f: counted(page, *a, **f)))
        monkeypatch.setattr(inner, "tail", partialmethod(lambda *a, **f: counted(tail, *a, **f)))
        found = await manager.messages(second.id, 10, 599)
        assert [one.message_id for one in found] == expected[595:605]
        assert read < 20

    async def test_a_late_message_moves_no_page_of_a_branch(self, manager: ConversationManager) -> None:
        await manager.append("dinner", [user(f"w{number}") for number in range(90)])
        expected = await words(manager, "dinner")
        branch = await manager.fork("dinner")
        await manager.append("dinner", [user("late", timestamp=manager.now() - timedelta(seconds=90))])
        assert await self.paged(manager, branch.id) == expected

    async def test_a_message_between_those_of_an_ancestor_is_on_its_page(
        self, manager: ConversationManager, clock: FixedClock
    ) -> None:
        first = await manager.fork("dinner")
        await manager.append(first.id, [user("between", timestamp=clock() - timedelta(seconds=90))])
        await manager.append(first.id, [user(f"w{number}") for number in range(90)])
        expected = await words(manager, first.id)
        second = await manager.fork(first.id)
        assert expected[2] == "between"
        assert await self.paged(manager, second.id) == expected

    async def paged(self, manager: ConversationManager, conversation_id: str) -> list[object]:
        pages = [await manager.entries(conversation_id, 3, offset) for offset in range(0, 102, 3)]
        return [one.message.content for each in pages for one in each]


class TestMerging:
    async def test_merging_in_both_directions_repeats_nothing(self, manager: ConversationManager) -> None:
        branch = await manager.fork("dinner")
        await manager.append(branch.id, [user("x", "x"), assistant("y", "y")])
        assert (await manager.merge("dinner", branch.id)).added == 2
        again = await manager.merge("dinner", branch.id)
        assert (again.added, again.known) == (0, 2)
        assert (await manager.merge(branch.id, "dinner")).added == 0
        assert (await words(manager, "dinner"))[-2:] == ["x", "y"]
        await manager.append(branch.id, [user("z", "z")])
        assert (await manager.merge("dinner", branch.id)).added == 1

    async def test_interleaving_splits_no_turn(self, manager: ConversationManager, clock: FixedClock) -> None:
        branch = await manager.fork("dinner")
        start = clock()
        at = [start + timedelta(seconds=10 * step) for step in range(4)]
        await manager.append("dinner", [user("p", timestamp=at[0]), assistant("r", timestamp=at[2])])
        await manager.append(
            branch.id, [user("x", "x", timestamp=at[1]), assistant("y", "y", timestamp=at[3])]
        )
        await manager.merge("dinner", branch.id, how="interleave")
        assert (await words(manager, "dinner"))[-4:] == ["p", "r", "x", "y"]

    async def test_a_summary_is_stored_once(self, manager: ConversationManager) -> None:
        branch = await manager.fork("dinner", subject="pie")
        await manager.append(branch.id, [user("x"), assistant("y")])
        for added in (1, 0):
            assert (
                await manager.merge("dinner", branch.id, how="summary", summary="leek pie")
            ).added == added
        assert "leek pie" in str((await words(manager, "dinner"))[-1])

    async def test_the_next_summary_begins_where_the_last_one_ended(
        self, manager: ConversationManager
    ) -> None:
        branch = await manager.fork("dinner", subject="pie")
        for number in (1, 2):
            await manager.append(branch.id, [user(f"x{number}"), assistant(f"y{number}"), assistant("z")])
            merged = await manager.merge("dinner", branch.id, how="summary", summary="more")
            assert merged.added == 1
            assert str((await words(manager, "dinner"))[-1]).startswith("Summary of 3 messages")

    async def test_adopting_needs_a_conversation_that_did_not_go_on(
        self, manager: ConversationManager
    ) -> None:
        branch = await manager.fork("dinner")
        await manager.append(branch.id, [user("x", "x")])
        await manager.append("dinner", [user("p", "p")])
        before = await words(manager, "dinner")
        with pytest.raises(MergeConflict):
            await manager.merge("dinner", branch.id, how="adopt")
        assert await words(manager, "dinner") == before
        await manager.merge(branch.id, "dinner")
        assert (await manager.merge("dinner", branch.id, how="adopt")).added == 1

    async def test_other_words_under_one_id_are_a_conflict(self, manager: ConversationManager) -> None:
        branch = await manager.fork("dinner")
        await manager.append(branch.id, [user("x", "x"), user("new", "n")])
        await manager.append("dinner", [user("other", "x")])
        before = await words(manager, "dinner")
        with pytest.raises(MessageConflict):
            await manager.merge("dinner", branch.id)
        assert await words(manager, "dinner") == before

    async def test_fields_are_taken_when_they_are_named(self, manager: ConversationManager) -> None:
        branch = await manager.fork("dinner", subject="pie")
        merged = await manager.merge("dinner", branch.id)
        assert merged.differences == {"subject": (None, "pie")}
        merged = await manager.merge("dinner", branch.id, fields=["subject"])
        assert merged.conversation.subject == "pie"
        with pytest.raises(InvalidInput, match="fields"):
            await manager.merge("dinner", branch.id, fields=["revision"])


class TestRemoval:
    async def test_the_oldest_branch_takes_what_others_continue(
        self, manager: ConversationManager, clock: FixedClock
    ) -> None:
        branches = []
        for at in ("a1", None, "a1"):
            branches.append(await manager.fork("dinner", at=at))
            clock.advance(timedelta(seconds=1))
        before = [await words(manager, one.id) for one in branches]
        await manager.delete_conversation("dinner")
        assert [await words(manager, one.id) for one in branches] == before
        raw = stored_itself(manager.store)
        own = [len(await raw.page(one.id, limit=100)) for one in branches]
        assert own == [2, 2, 0]

    async def test_a_late_message_stays_out_of_a_branch_that_takes_over(
        self, manager: ConversationManager, clock: FixedClock
    ) -> None:
        first, second = await manager.fork("dinner"), await manager.fork("dinner", at="a1")
        before = [await words(manager, one.id) for one in (first, second)]
        await manager.append("dinner", [user("late", timestamp=clock() - timedelta(seconds=90))])
        await manager.delete_conversation("dinner")
        assert [await words(manager, one.id) for one in (first, second)] == before
        records = [await manager.get_conversation(one.id) for one in (first, second)]
        assert [one.message_count for one in records] == [4, 2]

    async def test_links_end_with_a_conversation(self, manager: ConversationManager) -> None:
        await manager.append("order", [user("a table")])
        await manager.link("dinner", "order")
        assert [one.name for one in await manager.links("order")] == ["dinner"]
        await manager.unlink("order", "dinner")
        assert await manager.links("dinner") == []
        await manager.link("dinner", "order")
        await manager.delete_conversation("dinner")
        assert await manager.links("order") == []

    @pytest.mark.parametrize("store", ["sqlite", "file"])
    async def test_erased_words_are_in_no_file(self, store: str, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/m.db" if store == "sqlite" else f"file://{tmp_path}/m.json"
        async with aforesaid.open(url, retention=aforesaid.Retention(sweep_every=None)) as memory:
            manager = memory.of("erin")
            await manager.append("dinner", [user("zanzibar spice", "m1"), assistant("answer", "m2")])
            branch = await manager.fork("dinner")
            await manager.append(branch.id, [user("mozambique pepper")])
            deeper = await manager.fork(branch.id)
            await manager.append(deeper.id, [user("madagascar vanilla")])
            await manager.merge("dinner", deeper.id)
            receipt = await manager.erase(branch.id)
            assert receipt.erased["conversations"] == 3
            assert not receipt.remains
            with pytest.raises(ConversationNotFound):
                await manager.branches(deeper.id)
        for path in tmp_path.rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                for word in (b"zanzibar", b"mozambique", b"madagascar"):
                    assert word not in content, path

    async def test_an_archived_branch_comes_back_complete(self, tmp_path: Path) -> None:
        retention = aforesaid.Retention(sweep_every=None, archives=str(tmp_path / "archives"))
        async with aforesaid.open("memory://", retention=retention) as memory:
            manager = memory.of("erin")
            await manager.append("dinner", [user("q1", "q1"), assistant("a1", "a1")])
            branch = await manager.fork("dinner")
            await manager.append(branch.id, [user("x", "x")])
            await manager.archive(branch.id)
            await manager.delete_conversation("dinner")
            await manager.restore(branch.id)
            assert await words(manager, branch.id) == ["q1", "a1", "x"]

    async def test_an_export_brings_branches_back(
        self, manager: ConversationManager, clock: FixedClock, tmp_path: Path
    ) -> None:
        branch = await manager.fork("dinner", at="a1")
        await manager.append(branch.id, [user("x", "x")])
        await manager.export(tmp_path / "export")
        async with aforesaid.open(
            "memory://", clock=clock, retention=aforesaid.Retention(sweep_every=None)
        ) as other:
            copy = other.of("erin")
            await copy.import_(tmp_path / "export")
            assert await words(copy, branch.id) == ["q1", "a1", "x"]
            assert len(await copy.branches(branch.id)) == 2


async def test_an_altered_lineage_is_refused() -> None:
    layers = aforesaid.Layers(encryption="A" * 43 + "=")
    async with aforesaid.open(
        "memory://", layers=layers, retention=aforesaid.Retention(sweep_every=None)
    ) as memory:
        manager = memory.of("erin")
        await manager.append("dinner", [user("q1", "q1"), assistant("a1", "a1")])
        await manager.append("secret", [user("s1", "s1")])
        branch = await manager.fork("dinner")
        other = await manager.get_conversation("secret")
        inner = memory.backend.inner.of("erin")  # type: ignore[attr-defined]
        stored = await inner.get(branch.id)
        forged = stored.lineage[0].__class__(
            conversation_id=other.id,
            micros=2**50,
            place=9,
            sequence=9,
            messages=1,
            proof=stored.lineage[0].proof,
        )
        await inner.restore(stored.with_(lineage=(forged,)), [])
        with pytest.raises(StoreDamaged, match="lineage was altered"):
            await manager.get_conversation(branch.id)
