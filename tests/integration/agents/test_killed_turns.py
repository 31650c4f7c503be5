"""A process that is killed between question and answer leaves the question, unanswered."""

import subprocess
import sys
from pathlib import Path

import pytest

import aforesaid
from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent
from tests.doubles import Scripted

ROOT = Path(__file__).parents[3]


def killed_while_answering(url: str, folder: Path) -> str:
    """Kill the process once its agent has the question; return the conversation's id."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.processes.open_question", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "HOME": str(folder), "PATH": ""},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.kill()
    _, errors = process.communicate(timeout=240)
    assert line.startswith("asked"), errors
    return line.split()[1]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_the_question_of_a_killed_process_can_be_answered_later(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_file = store == "sqlite"
    url = f"sqlite:///{tmp_path}/memory.db" if is_file else request.getfixturevalue("postgres_url")
    conversation_id = killed_while_answering(url, tmp_path)
    async with aforesaid.open(url, models=aforesaid.Models(preload=False)) as memory:
        manager = memory.of("erin")
        assert await manager.messages(conversation_id) == []
        (turn,) = await manager.unanswered(conversation_id)
        assert turn.messages[0].content == "Is the oven on?"
        supervisor = SupervisorAgent(manager, [Specialist(loop=AgenticLoop(Scripted("It is.")))])
        (answer,) = await supervisor.answer_unanswered(conversation_id)
        assert answer.text == "It is."
        stored = await manager.messages(conversation_id)
        assert [message.content for message in stored] == ["Is the oven on?", "It is."]
        assert stored[0].message_id == turn.id
        assert await manager.unanswered(conversation_id) == []
