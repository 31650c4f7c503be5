"""The programs in `examples/` run as they are printed there."""

import asyncio
import sys
from pathlib import Path

import pytest

import aforesaid
from aforesaid.contracts import Audio
from aforesaid.dialects import meaning_of
from aforesaid.testing.providers import Called, Fails, FakeProvider, Says
from aforesaid.voice.assistant import FILLER
from aforesaid.voice.sound import pack_wav
from tests.servers.wyoming import WyomingService

ROOT = Path(__file__).parents[2]
SOUND = pack_wav(Audio(data=b"\x00\x10\x00\xf0" * 8000))


async def run(program: str, folder: Path, *arguments: str, lines: str = "", **environment: str) -> list[str]:
    """Return the lines that a program prints."""
    printed, errors, code = await outcome(program, folder, *arguments, lines=lines, **environment)
    assert code == 0, errors
    return printed.splitlines()


async def outcome(
    program: str, folder: Path, *arguments: str, lines: str = "", **environment: str
) -> tuple[str, str, int | None]:
    """Return what a program prints, its errors, and its exit code."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / program),
        *arguments,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT / "src"), "HOME": str(folder), "PATH": "", **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, errors = await process.communicate(lines.encode())
    return printed.decode(), errors.decode(), process.returncode


def provided(provider: FakeProvider) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": "none"}


@pytest.mark.slow
async def test_the_family_chat_remembers_each_person(tmp_path: Path) -> None:
    async with FakeProvider("anthropic") as provider:
        provider.will(Says("Noted."), Says("Hello Ben."), Says("Milk."))
        said = "Anna: I must buy milk\nBen: Hello\nAnna: What must I buy?\n"
        printed = await run("family_chat.py", tmp_path, lines=said, **provided(provider))
        assert printed == ["Noted.", "Hello Ben.", "Milk."]
        assert [message["role"] for message in provider.requests[-1]["messages"]] == [
            "user",
            "assistant",
            "user",
        ]
        assert provider.refused == []


@pytest.mark.slow
async def test_the_voice_service_sends_an_invoice_once(tmp_path: Path) -> None:
    texts = iter(["send Lee the invoice over 40 euros", "and what about Lee?"])
    recording = tmp_path / "question.wav"
    await asyncio.to_thread(recording.write_bytes, SOUND)
    async with (
        WyomingService(lambda samples: next(texts)).running() as service,
        FakeProvider("anthropic") as provider,
    ):
        call = Called("toolu_1", "send_invoice", {"client": "Lee", "euros": 40})
        rejected = Fails(400, "broken", kind="invalid_request_error")
        provider.will(Says("", (call,)), rejected, Says("The invoice is sent."))
        printed = await run(
            "contractor_voice.py",
            tmp_path,
            str(recording),
            str(recording),
            AFORESAID_TRANSCRIBER="wyoming",
            AFORESAID_TRANSCRIBER_URL=service.url,
            **provided(provider),
        )
        printed = [line for line in printed if line != FILLER]  # on a slow machine
        assert printed[0] == "(an invoice of 40 euros goes to Lee)"
        assert "could not finish" in printed[1]
        assert printed[2] == "The invoice is sent."
        assert provider.refused == []
    async with aforesaid.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        contractor = memory.of("contractor")
        record = (await contractor.list()).conversations[0]
        log = await contractor.messages(record.id)
        assert [call.name for message in log for call in meaning_of(message).calls] == ["send_invoice"]
        assert log[-1].agent_name == "invoices", "the follow-up reached the agent that answered last"


async def test_the_voice_service_without_a_recording_says_how_to_call_it(tmp_path: Path) -> None:
    _, errors, code = await outcome("contractor_voice.py", tmp_path)
    assert (code, errors.split(":")[0]) == (1, "usage")


async def test_the_household_assistant_finds_what_was_said(tmp_path: Path) -> None:
    said = "Remember that the spare key is under the blue pot\nWhere is the spare key?\n"
    printed = await run("household.py", tmp_path, lines=said)
    assert "under the blue pot" in printed[-1]
