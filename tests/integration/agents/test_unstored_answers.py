"""An answer that a model has produced reaches the user, whatever the store does, and is stored in the end."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aforesaid
from aforesaid.agents import AgenticLoop, Answer, ConversationEntity, ConversationInput, Specialist
from aforesaid.agents.supervisor import SupervisorAgent
from aforesaid.contracts import Ask, OnText, Reply
from aforesaid.dialects import meaning_of
from aforesaid.errors import ConversationNotFound, MessageConflict, StoreClosed, StoreUnavailable
from aforesaid.intake.unstored_turns import UnstoredTurns
from aforesaid.layers.resilient import Resilience
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.opening import Memory
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.stores.urls import backend_for
from aforesaid.telemetry import telemetry
from aforesaid.testing import FixedClock
from tests.builders import STORES, url_for
from tests.chaos.disks import disk_of_its_own
from tests.doubles import Scripted
from tests.examples import examples
from tests.faults import Failing, Fault
from tests.servers.remote import BEHIND, open_at

ROOT = Path(__file__).parents[3]
LONG = 60.0
"""Seconds that are longer than any store takes here."""
SORRY = "I'm sorry"


def quick(**options: Any) -> UnstoredTurns:
    return UnstoredTurns(**({"patience": LONG, "first_pause": 0.01, "closing": LONG} | options))


def asking(manager: ConversationManager, *lines: str) -> SupervisorAgent:
    return SupervisorAgent(manager, [Specialist(loop=AgenticLoop(Scripted(*lines)))])


async def words(manager: ConversationManager, session: str = "s1") -> list[Any]:
    record = await manager.session(session)
    return [] if record is None else [message.content for message in await manager.messages(record.id)]


@asynccontextmanager
async def failing_memory(
    url: str = "memory://", **options: Any
) -> AsyncIterator[tuple[Failing, Memory, ConversationManager]]:
    """A memory over a store that fails on request."""
    failing = Failing(backend_for(url))
    memory = Memory(
        failing,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    )
    memory.unstored = quick(**options)
    async with memory:
        yield failing, memory, memory.of(f"erin-{new_id()}")
        failing.up()


def only_append(fault: Fault) -> Any:
    return lambda name: fault if name == "append" else None


# The queue


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("fault", ["before", "after"])
async def test_an_answer_is_delivered_marked_and_stored_when_the_store_is_back(
    store: str, fault: Fault, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with failing_memory(url_for(store, tmp_path, request)) as (failing, memory, erin):
        supervisor = asking(erin, "One.", "Two.")
        assert await supervisor.process_query("A?", "s1") == "One."
        failing.plan = only_append(fault)
        answer = await supervisor.answer_or_apology("B?", "s1")
        assert isinstance(answer, Answer)
        assert answer.text == "Two."
        assert answer.stored is None
        assert answer.not_stored is not None
        assert answer.not_stored.queued
        assert isinstance(answer.not_stored.error, StoreUnavailable)
        failing.up()
        await memory.unstored.settled()
        assert await words(erin) == ["A?", "One.", "B?", "Two."]
        assert len(memory.unstored) == 0


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("fault", ["before", "after"])
async def test_a_failure_of_any_call_loses_no_answer_and_stores_no_apology(
    store: str, fault: Fault, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every call of a turn fails once. The user gets the model's answer, or an apology where the model was
    not asked. The log has each answered turn once."""
    async with failing_memory(url_for(store, tmp_path, request)) as (failing, memory, erin):
        place = 0
        while True:
            agent = Scripted("Answer.")
            supervisor = SupervisorAgent(erin, [Specialist(loop=AgenticLoop(agent))])
            session = f"s{place}"
            failing.calls.clear()
            failing.faults(*[None] * place, fault)
            text = await supervisor.process_query("Question?", session)
            was_reached = len(failing.calls) > place
            failing.up()
            await memory.unstored.settled()
            if agent.asked:
                assert text == "Answer.", failing.calls[place]
                assert await words(erin, session) == ["Question?", "Answer."]
            else:
                assert SORRY in text
                assert await words(erin, session) == []
            if not was_reached:
                return
            place += 1


async def test_a_store_that_hangs_is_waited_for_only_so_long() -> None:
    async with failing_memory(patience=0.05) as (failing, memory, erin):
        supervisor = asking(erin, "One.", "Two.")
        await supervisor.process_query("A?", "s1")
        failing.plan = only_append("hang")
        answer = await supervisor.answer_or_apology("B?", "s1")
        assert isinstance(answer, Answer)
        assert answer.not_stored is not None
        assert "within 0.05 s" in str(answer.not_stored.error)
        failing.up()
        await memory.unstored.settled()
        assert await words(erin) == ["A?", "One.", "B?", "Two."]


async def test_an_error_that_is_not_ours_is_no_reason_to_lose_an_answer() -> None:
    async with failing_memory() as (failing, memory, erin):
        supervisor = asking(erin, "One.", "Two.")
        await supervisor.process_query("A?", "s1")

        def broken(name: str) -> Fault:
            if name == "append":
                raise OSError(28, "No space left on device")
            return None

        failing.plan = broken
        assert await supervisor.process_query("B?", "s1") == "Two."
        failing.up()
        await memory.unstored.settled()
        assert await words(erin) == ["A?", "One.", "B?", "Two."]


async def test_later_turns_do_not_overtake_queued_ones_and_the_model_sees_them() -> None:
    async with failing_memory(first_pause=LONG) as (failing, _, erin):
        agent = Scripted("One.", "Two.", "Three.")
        supervisor = SupervisorAgent(erin, [Specialist(loop=AgenticLoop(agent))])
        await supervisor.process_query("A?", "s1")
        failing.plan = only_append("before")
        await supervisor.process_query("B?", "s1")
        await supervisor.process_query("C?", "s1")
        seen = [meaning_of(message).text for message in agent.asked[2].messages]
        assert seen == ["A?", "One.", "B?", "Two.", "C?"]
        record = await erin.session("s1")
        assert record is not None
        with pytest.raises(StoreUnavailable):
            await erin.add_message(record.id, "user", "by another way")
        failing.up()
        await erin.add_message(record.id, "user", "D")
        assert await words(erin) == ["A?", "One.", "B?", "Two.", "C?", "Three.", "D"]


async def test_a_queued_turn_keeps_the_time_at_which_it_was_said() -> None:
    clock = FixedClock()
    failing = Failing(InMemoryBackend(clock=clock))
    memory = Memory(
        failing,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    )
    memory.unstored = quick()
    async with memory:
        erin = memory.of("erin")
        supervisor = asking(erin, "One.", "Two.")
        await supervisor.process_query("A?", "s1")
        failing.plan = only_append("before")
        said = clock.now
        await supervisor.process_query("B?", "s1")
        clock.advance(timedelta(hours=1))
        failing.up()
        await memory.unstored.settled()
        record = await erin.session("s1")
        assert record is not None
        assert {message.timestamp for message in await erin.messages(record.id)} == {said}


@examples(40)
@given(
    faults=st.lists(st.sampled_from([None, "before", "after"]), max_size=30),
    sessions=st.lists(st.sampled_from(["kitchen", "hall"]), max_size=10),
)
def test_whatever_fails_each_answered_turn_is_stored_once_and_in_order(
    faults: list[Fault], sessions: list[str]
) -> None:
    async def play() -> None:
        async with failing_memory() as (failing, memory, erin):
            expected: dict[str, list[str]] = {"kitchen": [], "hall": []}
            for session in expected:
                await erin.get_or_create_conversation(session)
            coming = iter(faults)
            failing.plan = lambda name: next(coming, None) if name == "append" else None
            for number, session in enumerate(sessions):
                assert await asking(erin, f"answer {number}").process_query(f"{number}?", session)
                expected[session] += [f"{number}?", f"answer {number}"]
            failing.up()
            await memory.unstored.settled()
            assert {session: await words(erin, session) for session in expected} == expected

    asyncio.run(play())


async def test_the_queue_is_bounded_and_an_answer_is_delivered_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with failing_memory(most_bytes=10) as (failing, memory, erin):
        supervisor = asking(erin, "One.", "Two.")
        await supervisor.process_query("A?", "s1")
        failing.plan = only_append("before")
        answer = await supervisor.answer_or_apology("B?", "s1")
        assert isinstance(answer, Answer)
        assert answer.not_stored is not None
        assert not answer.not_stored.queued
        assert len(memory.unstored) == 0
    assert "turn_not_stored" in [getattr(record, "event", "") for record in caplog.records]


async def test_a_conversation_that_is_gone_is_no_reason_to_lose_an_answer() -> None:
    async with failing_memory() as (_, memory, erin):
        record = await erin.get_or_create_conversation("s1")

        class Deleting(Scripted):
            async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
                await erin.delete_conversation(record.id)
                return await super().reply(ask, on_text=on_text)

        supervisor = SupervisorAgent(erin, [Specialist(loop=AgenticLoop(Deleting("One.")))])
        answer = await supervisor.answer_or_apology("A?", "s1", record.id)
        assert isinstance(answer, Answer)
        assert answer.text == "One."
        assert answer.not_stored is not None
        assert isinstance(answer.not_stored.error, ConversationNotFound)
        assert not answer.not_stored.queued
        assert len(memory.unstored) == 0


# Closing, erasing


async def test_closing_tries_a_last_time(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with failing_memory(url, first_pause=LONG) as (failing, _, erin):
        supervisor = asking(erin, "One.", "Two.")
        await supervisor.process_query("A?", "s1")
        failing.plan = only_append("before")
        await supervisor.process_query("B?", "s1")
    async with aforesaid.open(url, retention=aforesaid.Retention(sweep_every=None)) as again:
        assert await words(again.of(erin.owner)) == ["A?", "One.", "B?", "Two."]


async def test_closing_reports_what_was_not_stored(caplog: pytest.LogCaptureFixture) -> None:
    failing = Failing(InMemoryBackend())
    memory = Memory(
        failing,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    )
    memory.unstored = quick(first_pause=LONG, closing=0.05)
    lost = telemetry.counter("aforesaid_unstored_turns_total", status="lost")
    async with memory:
        supervisor = asking(memory.of("erin"), "One.", "Two.")
        await supervisor.process_query("A?", "s1")
        failing.plan = only_append("hang")
        memory.unstored.patience = 0.05
        answer = await supervisor.answer_or_apology("B?", "s1")
        assert isinstance(answer, Answer)
        before = lost.value
    assert lost.value == before + 1
    reported = [record for record in caplog.records if getattr(record, "event", "") == "turn_not_stored"]
    assert [getattr(record, "conversation_id", None) for record in reported] == [answer.conversation_id]
    assert "B?" not in caplog.text


async def test_after_closing_an_answer_is_delivered_and_not_queued() -> None:
    memory = await aforesaid.open("memory://", retention=aforesaid.Retention(sweep_every=None))
    erin = memory.of("erin")
    record = await erin.get_or_create_conversation("s1")

    class Closing(Scripted):
        async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
            await memory.close()
            return await super().reply(ask, on_text=on_text)

    supervisor = SupervisorAgent(erin, [Specialist(loop=AgenticLoop(Closing("One.")))])
    answer = await supervisor.answer_or_apology("A?", "s1", record.id)
    assert isinstance(answer, Answer)
    assert answer.text == "One."
    assert answer.not_stored is not None
    assert isinstance(answer.not_stored.error, StoreClosed)
    assert not answer.not_stored.queued


@pytest.mark.parametrize("how", ["delete", "clear", "erase"])
async def test_what_is_deleted_does_not_come_back_from_the_queue(how: str) -> None:
    async with failing_memory(first_pause=LONG) as (failing, memory, erin):
        supervisor = asking(erin, "One.", "Two.")
        await supervisor.process_query("A?", "s1")
        record = await erin.session("s1")
        assert record is not None
        failing.plan = only_append("before")
        await supervisor.process_query("B?", "s1")
        failing.up()
        if how == "delete":
            await erin.delete_conversation(record.id)
        elif how == "clear":
            await erin.clear_history(record.id)
        else:
            assert (await erin.erase()).erased["queued_turns"] == 1
        assert len(memory.unstored) == 0
        await memory.unstored.settled()
        assert await words(erin) == []


async def test_an_export_holds_what_is_queued(tmp_path: Path) -> None:
    async with failing_memory(first_pause=LONG) as (failing, _, erin):
        supervisor = asking(erin, "One.", "Two.")
        await supervisor.process_query("A?", "s1")
        failing.plan = only_append("before")
        await supervisor.process_query("B?", "s1")
        with pytest.raises(StoreUnavailable):
            await erin.export(tmp_path / "refused")
        failing.up()
        assert (await erin.export(tmp_path / "whole")).counts["messages"] == 4


# Real trouble

_HOLD = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.readline()
held.execute("COMMIT")
"""


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Another process holds the SQLite file exclusively."""
    pipe = asyncio.subprocess.PIPE
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _HOLD, str(path), stdin=pipe, stdout=pipe
    )
    assert other.stdout is not None
    assert await other.stdout.readline() == b"held\n"
    try:
        yield
    finally:
        await other.communicate(b"\n")


async def test_a_locked_sqlite_file_delays_storing_and_not_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    memory = aforesaid.open(
        f"sqlite:///{path}?lock_timeout=0.1", retention=aforesaid.Retention(sweep_every=None)
    )
    memory.unstored = quick()
    async with memory:
        erin = memory.of("erin")
        supervisor = asking(erin, "One.", "Two.", "Three.")
        await supervisor.process_query("A?", "s1")
        async with locked(path):
            answer = await supervisor.answer_or_apology("B?", "s1")
            assert isinstance(answer, Answer)
            assert answer.text == "Two."
            assert answer.not_stored is not None
            assert answer.not_stored.queued
            assert await supervisor.process_query("C?", "s1") == "Three."
            assert await words(erin) == ["A?", "One."]
        await memory.unstored.settled()
        assert await words(erin) == ["A?", "One.", "B?", "Two.", "C?", "Three."]


@pytest.mark.parametrize("store", ["sqlite", "file"])
async def test_a_full_disk_delays_storing_and_not_the_answer(store: str, tmp_path: Path) -> None:
    scheme, name = ("sqlite:///", "memory.db") if store == "sqlite" else ("file://", "memory.json")
    with disk_of_its_own(tmp_path) as is_mounted:
        if not is_mounted:
            pytest.skip("mounting is not allowed")
        memory = aforesaid.open(f"{scheme}{tmp_path}/{name}", retention=aforesaid.Retention(sweep_every=None))
        memory.unstored = quick()
        async with memory:
            erin = memory.of("erin")
            long = "x" * 100_000
            supervisor = asking(erin, "One.", long)
            await supervisor.process_query("A?", "s1")
            await asyncio.to_thread(fill, tmp_path / "filler")
            answer = await supervisor.answer_or_apology("B?", "s1")
            assert isinstance(answer, Answer)
            assert answer.text == long
            assert answer.not_stored is not None
            assert answer.not_stored.queued
            await asyncio.to_thread((tmp_path / "filler").unlink)
            await memory.unstored.settled()
            assert await words(erin) == ["A?", "One.", "B?", long]


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


async def test_a_server_that_is_away_delays_storing_and_not_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at(f"{BEHIND}sqlite:///{tmp_path}/memory.db", sweep_every=None) as memory:
        erin = memory.of("erin")
        erin.unstored = quick()
        supervisor = asking(erin, "One.", "Two.")
        await supervisor.process_query("A?", "s1")

        async def away(*_: object, **__: object) -> None:
            raise StoreUnavailable("the server is away")

        with monkeypatch.context() as patched:
            patched.setattr(type(erin), "_append", away)
            assert await supervisor.process_query("B?", "s1") == "Two."
            assert len(erin.unstored) == 1
        await erin.unstored.settled()
        assert await words(erin) == ["A?", "One.", "B?", "Two."]


# Faces


@pytest.mark.parametrize("failed", ["append", "update"])
async def test_the_entity_gives_the_answer_and_marks_it(failed: str) -> None:
    async with failing_memory() as (failing, memory, _):
        entity = ConversationEntity(AgenticLoop(Scripted("One.", "Two.")), memory=memory)

        def said(text: str) -> ConversationInput:
            return ConversationInput(text=text, conversation_id="kitchen")

        first = await entity.async_process(said("A?"))
        assert first.stored
        manager = memory.of("default")
        record = await manager.session("kitchen")
        assert record is not None
        await manager.update_metadata(record.id, tags=())
        failing.plan = lambda name: "before" if name == failed else None
        second = await entity.async_process(said("B?"))
        assert (second.response_text, second.response.response_type) == ("Two.", "query_answer")
        assert second.stored == (failed == "update")
        extra = second.response.speech["plain"]["extra_data"]
        assert extra == (None if failed == "update" else {"stored": False, "queued": True})
        failing.up()
        await memory.unstored.settled()
        assert await words(manager, "kitchen") == ["A?", "One.", "B?", "Two."]


async def test_turns_that_are_answered_at_once_are_all_stored() -> None:
    """Many turns of one conversation fail together, while the queue is being worked off."""
    async with failing_memory() as (failing, memory, erin):
        record = await erin.get_or_create_conversation("s1")
        faults: list[Fault] = ["before", "after", None]
        coming = iter(faults * 20)
        failing.plan = lambda name: next(coming, None) if name == "append" else None
        answers = await asyncio.gather(
            *(asking(erin, f"answer {n}").process_query(f"{n}?", "s1", record.id) for n in range(20))
        )
        assert answers == [f"answer {n}" for n in range(20)]
        failing.up()
        await memory.unstored.settled()
        stored = await words(erin)
        assert sorted(stored) == sorted([f"{n}?" for n in range(20)] + list(answers))
        for place in range(0, 40, 2):
            assert stored[place + 1] == f"answer {stored[place][:-1]}"


async def test_a_message_that_brings_no_id_is_stored_once() -> None:
    async with failing_memory() as (failing, memory, erin):
        await erin.get_or_create_conversation("s1")
        failing.plan = only_append("after")
        question = Message(role="user", content="A?")
        assert await asking(erin, "One.").process_query(question, "s1") == "One."
        failing.up()
        await memory.unstored.settled()
        assert await words(erin) == ["A?", "One."]


@pytest.mark.parametrize("place", ["sqlite", "server"])
async def test_a_question_that_is_sent_again_gets_the_stored_answer(place: str, tmp_path: Path) -> None:
    behind = BEHIND if place == "server" else ""
    async with open_at(f"{behind}sqlite:///{tmp_path}/memory.db", sweep_every=None) as memory:
        erin = memory.of("erin")
        question = Message(role="user", content="A?", message_id="q1")
        for number in range(30):
            await asking(erin, f"before {number}").process_query(f"{number}?", "s1")
        assert await asking(erin, "One.").process_query(question, "s1") == "One."
        for number in range(30):
            await asking(erin, f"after {number}").process_query(f"{number}?", "s1")
        before = await erin.session("s1")
        again = await asking(erin, "Another.").answer_or_apology(question, "s1")
        assert isinstance(again, Answer)
        assert again.text == "One."
        assert [meaning_of(message).text for message in again.messages] == ["A?", "One."]
        assert again.stored is not None
        assert (again.stored.new, len(again.stored.known)) == ((), 2)
        assert await erin.session("s1") == before
        another = Message(role="user", content="B?", message_id="q1")
        with pytest.raises(MessageConflict):
            await asking(erin, "Two.").answer_query(another, "s1")


_ANSWER_AND_DIE = """
import asyncio, os, signal, sqlite3, sys
from aforesaid.agents.stored_turns import append_or_queue
from aforesaid.model.messages import Message
from tests.integration.agents.test_unstored_answers import spooling

async def main(folder):
    memory = await spooling(folder)
    erin = memory.of("erin")
    record = await erin.get_or_create_conversation("s1")
    held = sqlite3.connect(folder + "/memory.db", isolation_level=None)
    held.execute("BEGIN EXCLUSIVE")
    turn = [Message(role="user", content="A?"), Message(role="assistant", content="One.")]
    stored = await append_or_queue(erin, record.id, turn)
    print(type(stored).__name__, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(sys.argv[1]))
"""


def spooling(folder: str) -> Memory:
    """A SQLite file with a spool beside it."""
    return aforesaid.open(
        f"sqlite:///{folder}/memory.db?lock_timeout=0.1",
        layers=aforesaid.Layers(resilience=Resilience(folder=Path(folder) / "spool")),
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    )


async def test_with_a_spool_an_answer_to_a_locked_file_survives_a_kill(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _ANSWER_AND_DIE, str(tmp_path), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    printed, _ = await process.communicate()
    assert (process.returncode, printed) == (-signal.SIGKILL, b"Appended\n")
    async with spooling(str(tmp_path)) as memory:
        erin = memory.of("erin")
        record = await erin.session("s1")
        assert record is not None
        store = await erin.store.authoritative()
        assert [entry.message.content for entry in await store.page(record.id, limit=9)] == ["A?", "One."]
