"""A real pipeline whose model and voice are scripted: a turn, an interruption, a slow tool, a restart."""

from pathlib import Path
from typing import Any

from pipecat.frames.frames import InterruptionFrame

from aforesaid.adapters.pipecat import AforesaidHistory
from tests.adapters.checks import memory_in
from tests.adapters.pipecat.scripted import ScriptedModel, call

NAME = "pipecat/call 7"


async def said_in(memory: Any) -> list[tuple[str, Any]]:
    return [(one.role, one.content) for one in await memory.of("kim").messages(NAME)]


async def test_an_interrupted_answer_is_continued_after_a_restart(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        model = ScriptedModel("Lima.", "There is a rake. This sentence is endless.")
        async with call(AforesaidHistory("call 7", memory.of("kim")), model) as running:
            await running.say("What is the capital of Peru?")
            await running.ended_turns.get()
            await running.say("What is in the shed?")
            await running.voice.speaks_endlessly.wait()
            await running.worker.queue_frame(InterruptionFrame())
            assert (await running.ended_turns.get()).interrupted
    said = [
        ("user", "What is the capital of Peru?"),
        ("assistant", "Lima."),
        ("user", "What is in the shed?"),
        ("assistant", "There is a rake."),
    ]
    async with memory_in(tmp_path) as memory:
        assert await said_in(memory) == said
        cut = (await memory.of("kim").messages(NAME))[-1].speech
        model = ScriptedModel("A rake.")
        async with call(AforesaidHistory("call 7", memory.of("kim")), model) as running:
            await running.say("Go on.")
            await running.ended_turns.get()
        assert await said_in(memory) == [*said, ("user", "Go on."), ("assistant", "A rake.")]
    assert cut is not None
    assert (cut.interrupted, cut.words_heard) == (True, "There is a rake.")
    assert model.requests == [[*(text for _, text in said), "Go on."]]


async def test_the_result_of_a_slow_tool_is_stored(tmp_path: Path) -> None:
    """The turn of the call ends before its tool: the log must not keep what stands there until then."""
    async with memory_in(tmp_path) as memory:
        model = ScriptedModel({"id": "c1"}, "A rake.")
        model.tool_may_finish.clear()
        async with call(AforesaidHistory("call 7", memory.of("kim")), model) as running:
            await running.say("What is in the shed?")
            await running.ended_turns.get()
            model.tool_may_finish.set()
            while (await running.ended_turns.get()).content != "A rake.":
                pass
        stored = await memory.of("kim").messages(NAME)
    assert [one.role for one in stored] == ["user", "assistant", "tool", "assistant"]
    assert "a rake in the shed" in str(stored[2].content)
