"""A real `AgentSession` whose model and voice are scripted: a turn, an interruption, a restart."""

import asyncio
from pathlib import Path

from aforesaid.adapters.livekit import AforesaidHistory
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy
from tests.adapters.checks import memory_in
from tests.adapters.livekit.scripted import BOUND, ScriptedModel, session_of

NAME = "livekit/room 7"


async def said_in(manager: ManagerProtocol) -> list[str]:
    """Return what was said: the session also stores changes of its configuration, which have no words."""
    return [str(one.content) for one in await manager.messages(NAME) if one.role != "system"]


async def test_an_interrupted_answer_is_continued_after_a_restart(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        history = AforesaidHistory("room 7", memory.of("kim"))
        model = ScriptedModel("Lima.", "There is a rake behind the door of the shed.")
        session, speaker = await session_of(history, model)
        async with asyncio.timeout(BOUND):
            await session.run(user_input="What is the capital of Peru?")
            speaker.heard = "There is a"
            answer = session.generate_reply(user_input="What is in the shed?")
            await speaker.plays.wait()
            await session.interrupt()
            await answer
        await history.flush()
        await session.aclose()
    async with memory_in(tmp_path) as memory:
        kim = memory.of("kim")
        stored = await said_in(kim)
        cut = (await kim.messages(NAME))[-1].speech
        request = await kim.load_request(NAME, "anthropic", policy=WindowPolicy(max_turns=9))
        model = ScriptedModel("A rake.")
        history = AforesaidHistory("room 7", kim)
        session, _ = await session_of(history, model)
        async with asyncio.timeout(BOUND):
            await session.run(user_input="Go on.")
        await history.flush()
        await session.aclose()
        again = await said_in(kim)
    said = ["What is the capital of Peru?", "Lima.", "What is in the shed?", "There is a"]
    assert stored == said
    assert problems(request, "anthropic") == []
    assert cut is not None
    assert (cut.interrupted, cut.words_heard) == (True, "There is a")
    assert [text for text in model.requests[0] if "Be brief" not in text] == [*said, "Go on."]
    assert again == [*said, "Go on.", "A rake."]
