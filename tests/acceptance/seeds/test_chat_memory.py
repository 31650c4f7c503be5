"""The chat memory that the research document promises: one test for each promise, on every store."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from anthropic.types import TextBlock, ToolUseBlock

import aforesaid
from aforesaid.compat import ChatHistory
from aforesaid.errors import InvalidInput, InvalidMessage
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import new_id
from aforesaid.testing import FixedClock
from tests.builders import STORES, Target, url_for
from tests.servers.remote import open_at

ERIN, JASON = "+15550100", "+15550101"
PHOTO = base64.b64encode(b"\x89PNG a recipe" * 100).decode()


class ClockedTarget(Target):
    """A store with a clock that a test moves."""

    def __init__(self, url: str) -> None:
        self.clock = FixedClock()
        super().__init__(url)

    async def _open(self) -> aforesaid.Memory:
        return await open_at(self.url, sweep_every=None, embedder=None, clock=self.clock)


@pytest.fixture(scope="module")
def clocked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], ClockedTarget]]:
    @contextmanager
    def opened(store: str) -> Iterator[ClockedTarget]:
        target = ClockedTarget(url_for(store, tmp_path_factory.mktemp(store), request))
        yield target
        target.close()

    with ExitStack() as stack:
        yield cache(lambda store: stack.enter_context(opened(store)))


def question(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def said(number: int) -> list[dict[str, Any]]:
    return [question(f"question {number}"), answer(f"answer {number}")]


def with_tools(number: int, *, loops: int = 2) -> list[dict[str, Any]]:
    """Return a turn with a loop of tool calls, as R6 prints it."""
    messages = [question(f"find {number}")]
    for loop in range(loops):
        name = f"toolu_{number}_{loop}"
        call = {"type": "tool_use", "id": name, "name": "search", "input": {"q": loop}}
        messages.append({"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": name, "content": f"found {loop}"}
        messages.append({"role": "user", "content": [result]})
    return [*messages, answer(f"here is {number}")]


def photo(text: str) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": PHOTO}
    return {"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": text}]}


class Chat:
    """The chat memory of one owner."""

    def __init__(self, manager: ConversationManager, clock: FixedClock) -> None:
        self.manager, self.clock = manager, clock
        self.history = ChatHistory(manager)

    async def save(self, *turns: list[Any], key: str = ERIN) -> None:
        for turn in turns:
            await self.history.save_turn(key, turn)

    async def get(self, key: str = ERIN) -> list[dict[str, Any]]:
        return await self.history.get_history(key)

    async def stored(self) -> str:
        """Everything that the store has of this owner, as text."""
        found = []
        for record in (await self.manager.list(limit=100)).conversations:
            found += [str(message.content) for message in await self.manager.messages(record.id, limit=999)]
        return "\n".join(found)

    def wait(self, **span: float) -> None:
        self.clock.advance(timedelta(**span))


Promise = Callable[[Chat], Awaitable[None]]
PROMISES: dict[str, Promise] = {}


def promise(scenario: Promise) -> Promise:
    PROMISES[scenario.__name__] = scenario
    return scenario


@promise
async def r1_an_unknown_person_has_no_history(chat: Chat) -> None:
    assert await chat.get() == []


@promise
async def r1_a_saved_turn_is_the_history_of_the_next(chat: Chat) -> None:
    await chat.save(said(1))
    assert await chat.get() == said(1)


@promise
async def r1_turns_come_back_in_order(chat: Chat) -> None:
    await chat.save(said(1), said(2), said(3))
    assert await chat.get() == said(1) + said(2) + said(3)


@promise
async def r1_two_people_have_histories_of_their_own(chat: Chat) -> None:
    await chat.save(said(1))
    await chat.save(said(2), key=JASON)
    assert (await chat.get(), await chat.get(JASON)) == (said(1), said(2))


@promise
async def r1_a_turn_is_written_whole_or_not_at_all(chat: Chat) -> None:
    await chat.save(said(1))
    with pytest.raises(InvalidInput):
        await chat.save([question("and?"), {"role": "narrator", "content": "x"}])
    assert await chat.get() == said(1)


@promise
async def r1_turns_at_the_same_time_are_all_kept_and_not_mixed(chat: Chat) -> None:
    turns = [with_tools(number) for number in range(5)]
    await asyncio.gather(*map(chat.save, turns))
    history = await chat.get()
    size = len(turns[0])
    parts = [history[at : at + size] for at in range(0, len(history), size)]
    assert sorted(parts, key=str) == sorted(turns, key=str)


@promise
async def r1_ten_turns_of_two_people_are_under_100_kb(chat: Chat) -> None:
    for number in range(14):
        await chat.save(with_tools(number))
        await chat.save(with_tools(number), key=JASON)
    assert len((await chat.stored()).encode()) < 100_000


@promise
async def r1_a_history_is_json(chat: Chat) -> None:
    await chat.save(with_tools(1))
    history = await chat.get()
    assert json.loads(json.dumps(history)) == history


@promise
async def r2_sdk_blocks_are_stored_as_plain_dicts(chat: Chat) -> None:
    text = TextBlock(type="text", text="Looking.")
    call = ToolUseBlock(type="tool_use", id="toolu_1", name="search", input={"q": 1})
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "soup"}
    await chat.save(
        [
            question("find"),
            {"role": "assistant", "content": [text, call]},
            {"role": "user", "content": [result]},
            answer("here"),
        ]
    )
    assert (await chat.get())[1]["content"] == [
        {"type": "text", "text": "Looking."},
        {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": 1}},
    ]


@promise
async def r2_tool_results_come_back_unchanged(chat: Chat) -> None:
    await chat.save(with_tools(1))
    assert await chat.get() == with_tools(1)


@promise
async def r2_a_history_goes_before_the_new_message(chat: Chat) -> None:
    await chat.save(with_tools(1))
    messages = [*await chat.get(), question("and the second one?")]
    assert [one["role"] for one in messages][-2:] == ["assistant", "user"]


@promise
async def r3_ten_turns_are_kept(chat: Chat) -> None:
    await chat.save(*(said(number) for number in range(12)))
    assert await chat.get() == [message for number in range(2, 12) for message in said(number)]


@promise
async def r3_turns_are_counted_and_not_messages(chat: Chat) -> None:
    await chat.save(*(with_tools(number, loops=3) for number in range(10)))
    assert len(await chat.get()) == 10 * 8


@promise
async def r3_an_evicted_turn_leaves_the_store(chat: Chat) -> None:
    await chat.save(*(said(number) for number in range(12)))
    stored = await chat.stored()
    assert "question 1\n" not in stored
    assert "question 2\n" in stored


@promise
async def r3_a_cut_never_separates_a_call_from_its_result(chat: Chat) -> None:
    chat.history = ChatHistory(chat.manager, max_turns=2)
    await chat.save(with_tools(1), said(2), with_tools(3))
    assert await chat.get() == said(2) + with_tools(3)


@promise
async def r4_a_photo_is_stored_as_a_placeholder(chat: Chat) -> None:
    await chat.save([photo("what is this?"), answer("A recipe.")])
    assert (await chat.get())[0]["content"][0] == {"type": "text", "text": "[Image sent: photo]"}
    assert PHOTO not in await chat.stored()


@promise
async def r4_the_words_about_a_photo_stay_for_follow_ups(chat: Chat) -> None:
    await chat.save([photo("what is this?"), answer("A recipe for leek soup.")], [*said(2)])
    history = await chat.get()
    assert history[0]["content"][1] == {"type": "text", "text": "what is this?"}
    assert history[1] == answer("A recipe for leek soup.")


@promise
async def r5_saving_changes_nothing_that_the_caller_holds(chat: Chat) -> None:
    turn = [photo("what is this?"), answer("A recipe.")]
    before = json.dumps(turn)
    await chat.save(turn)
    assert json.dumps(turn) == before
    history = await chat.get()
    history.clear()
    assert len(await chat.get()) == 2, "nor does a caller change what is stored"


@promise
async def r6_all_steps_of_a_tool_loop_are_one_turn(chat: Chat) -> None:
    chat.history = ChatHistory(chat.manager, max_turns=1)
    await chat.save(said(1), with_tools(2, loops=4))
    assert await chat.get() == with_tools(2, loops=4)


@promise
async def r6_history_that_is_submitted_again_is_stored_once(chat: Chat) -> None:
    await chat.save(said(1))
    await chat.save([*await chat.get(), *said(2)])
    assert await chat.get() == said(1) + said(2)


@promise
async def r6_a_turn_without_messages_is_refused(chat: Chat) -> None:
    with pytest.raises(InvalidMessage):
        await chat.save([])


@promise
async def expiry_thirty_idle_minutes_end_a_conversation(chat: Chat) -> None:
    await chat.save(said(1))
    chat.wait(minutes=29)
    assert await chat.get() == said(1)
    chat.wait(minutes=2)
    assert await chat.get() == []


@promise
async def expiry_activity_keeps_a_conversation(chat: Chat) -> None:
    for number in range(3):
        await chat.save(said(number))
        chat.wait(minutes=20)
    assert len(await chat.get()) == 6


@promise
async def expiry_an_expired_turn_leaves_the_store(chat: Chat) -> None:
    await chat.save(said(1))
    chat.wait(minutes=31)
    assert await chat.get() == []
    await chat.save(said(2))
    assert "question 1" not in await chat.stored()


@promise
async def system_messages_are_not_stored(chat: Chat) -> None:
    assert await chat.history.save_turn("system", said(1)) is None
    assert await chat.history.save_turn(ERIN, said(1), sender="system") is None
    assert (await chat.manager.list()).conversations == ()


@promise
async def system_messages_keep_no_conversation_alive(chat: Chat) -> None:
    await chat.save(said(1))
    chat.wait(minutes=29)
    await chat.history.save_turn(ERIN, said(2), sender="system")
    chat.wait(minutes=2)
    assert await chat.get() == []


@promise
async def clearing_removes_one_person_only(chat: Chat) -> None:
    await chat.save(said(1))
    await chat.save(said(2), key=JASON)
    await chat.history.clear_history(ERIN)
    assert (await chat.get(), await chat.get(JASON)) == ([], said(2))


@pytest.mark.parametrize("name", PROMISES)
@pytest.mark.parametrize("store", STORES)
def test_the_chat_memory_keeps_its_promise(
    clocked: Callable[[str], ClockedTarget], store: str, name: str
) -> None:
    target = clocked(store)
    target.run(lambda manager: PROMISES[name](Chat(manager, target.clock)))


@pytest.mark.parametrize("store", STORES)
def test_a_history_outlives_a_restart(clocked: Callable[[str], ClockedTarget], store: str) -> None:
    target, owner = clocked(store), f"owner-{new_id()}"
    target.run_as(owner, lambda manager: Chat(manager, target.clock).save(with_tools(1)))
    target.restart()
    assert target.run_as(owner, lambda manager: Chat(manager, target.clock).get()) == with_tools(1)


def test_the_suite_has_a_test_for_each_promise_of_the_document() -> None:
    assert len(PROMISES) >= 23
