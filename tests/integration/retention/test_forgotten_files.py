"""What an agent was told to forget is in no file of a store: neither notes, calls, results nor echoes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent
from aforesaid.agents.toolbox import owner_tools
from aforesaid.memory.manager import ConversationManager
from tests.doubles import Scripted, calling
from tests.stored_files import END, STORES, StoreFiles, opened, store_files

CODE = f"The safe code is 7788{END}"
ON_DISK = [store for store in STORES if store != "memory"]


@pytest.fixture(params=ON_DISK)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFiles]:
    with store_files(request.param, tmp_path, request) as files:
        yield files


async def talk(erin: ConversationManager) -> None:
    agent = Scripted(
        calling(("c1", "remember", {"text": CODE, "subject": "safe code"})),
        f"I will remember that the safe code is 7788{END}.",
        "It is sunny.",
        calling(("c2", "recall", {"query": "safe code"})),
        f"The code is 7788{END}.",
    )
    supervisor = SupervisorAgent(erin, [Specialist(loop=AgenticLoop(agent), tools=owner_tools(erin))])
    await supervisor.process_query(f"Remember that the safe code is 7788{END}", "s1")
    await supervisor.process_query("How is the weather?", "s1")
    await supervisor.process_query("What is the safe code?", "s2")


@pytest.mark.parametrize("how", ["forget", "redact"])
async def test_what_is_forgotten_is_in_no_file(files: StoreFiles, tmp_path: Path, how: str) -> None:
    async with opened(files, tmp_path, embedder="installed") as memory:
        erin = memory.of("erin")
        await talk(erin)
        if memory.search_resources.indexer is not None:
            await memory.search_resources.indexer.wait_until_idle()
        assert files.found() != {}, "it is in the files before"
        if how == "forget":
            receipt = await erin.forget_everywhere("safe code", scrub=True)
        else:
            record = await erin.session("s1")
            assert record is not None
            first = (await erin.messages(record.id))[0]
            receipt = await erin.redact_everywhere(record.id, str(first.message_id), scrub=True)
        assert receipt.messages >= 5
        assert files.found() == {}
        assert "It is sunny." in str(
            [await erin.messages(one.id) for one in (await erin.list()).conversations]
        )
