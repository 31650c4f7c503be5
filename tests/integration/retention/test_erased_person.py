"""After the erasure of a person, no file of the store contains what they wrote, nor their name."""

from datetime import timedelta
from pathlib import Path

import pytest

import aforesaid
from aforesaid import Retention
from tests.builders import local_url

WORDS = "aubergines at dawn"
NAME = "Annabella Quince"


def residue(folder: Path, *texts: str) -> list[str]:
    """The files below the folder that contain one of these texts."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes().lower()
            found += [f"{path.name}: {text}" for text in texts if text.lower().encode() in content]
    return found


@pytest.mark.parametrize("store", ["sqlite", "file"])
async def test_no_file_contains_what_an_erased_person_wrote(store: str, tmp_path: Path) -> None:
    retention = Retention(sweep_every=None, archives=tmp_path / "archives")
    async with aforesaid.open(local_url(store, tmp_path), retention=retention) as memory:
        firm = memory.of("firm")
        for session in ("roof", "cellar"):
            shared = (await firm.get_or_create_conversation(session)).id
            await firm.set_participant(shared, "annabella.q", name=NAME, role="manager")
            await firm.set_participant(shared, "bob", name="Bob")
            await firm.add_message(shared, "user", f"{WORDS} in the {session}", author="annabella.q")
            await firm.add_message(shared, "user", "noted by bob", author="bob", message_id=f"{session}-b")
            await firm.mark_read_up_to(shared, f"{session}-b", participant_id="annabella.q")
        await firm.archive(shared)
        assert residue(tmp_path, WORDS)
        receipt = await firm.erase_participant("annabella.q")
        assert receipt.erased["messages"] == 2
        assert receipt.erased["participants"] == 2
        assert receipt.remains == ()
        assert len(await firm.archives()) == 1
        assert [len(await firm.search_history("bob", 5)), await firm.search_history("aubergines", 5)] == [
            1,
            [],
        ]
    assert residue(tmp_path, WORDS, "aubergines", NAME, "annabella.q") == []


async def test_an_erasure_can_be_repeated_after_it_was_interrupted(tmp_path: Path) -> None:
    async with aforesaid.open(local_url("sqlite", tmp_path), ttl=timedelta(days=1)) as memory:
        firm = memory.of("firm")
        shared = (await firm.get_or_create_conversation("roof")).id
        await firm.set_participant(shared, "ann", name=NAME)
        for number in range(3):
            await firm.add_message(shared, "user", f"{WORDS} {number}", author="ann", message_id=f"m{number}")
        await firm.redact(shared, "m0")
        receipt = await firm.erase_participant("ann")
        assert receipt.erased["messages"] == 3
        assert {one.author for one in await firm.messages(shared)} == {None}
    assert residue(tmp_path, WORDS, NAME) == []
