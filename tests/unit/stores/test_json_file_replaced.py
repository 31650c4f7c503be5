"""The JSON document is removed, replaced or edited while it is open: nothing acknowledged is lost by it."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from aforesaid.errors import StoreReplaced
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.json_file import JsonFileBackend


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversations.json"


@pytest.fixture
async def backend(path: Path) -> AsyncIterator[JsonFileBackend]:
    backend = JsonFileBackend(path)
    await backend.open()
    yield backend
    await backend.close()


async def conversation(backend: JsonFileBackend) -> str:
    store = backend.of("erin")
    return (await store.create(started(new_id(), now=store.now()))).id


def said(text: str) -> list[Message]:
    return [Message(role="user", content=text)]


def replace_by_copy(path: Path) -> None:
    copy = path.with_name("restored.json")
    copy.write_bytes(path.read_bytes())
    os.replace(copy, path)


def overwrite(path: Path) -> None:
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({**document, "owners": {}}))


def remove_lock(path: Path) -> None:
    path.with_name(f"{path.name}.lock").unlink()


def remove_everything(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


def replace_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name(f"{path.parent.name}-moved"))
    path.parent.mkdir()


CHANGES = [replace_by_copy, overwrite, remove_lock, remove_everything, replace_folder]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_write_is_refused_and_leaves_the_files_as_they_are(
    path: Path, backend: JsonFileBackend, change: Callable[[Path], None]
) -> None:
    one = await conversation(backend)
    await asyncio.to_thread(change, path)
    before = await asyncio.to_thread(lambda: path.read_bytes() if path.exists() else None)
    with pytest.raises(StoreReplaced, match=r"conversations\.json.*nothing was stored.*open it again"):
        await backend.of("erin").append(one, said("refused"))
    after = await asyncio.to_thread(lambda: path.read_bytes() if path.exists() else None)
    assert after == before
    assert await backend.of("erin").tail(one, limit=5) == []


async def test_opened_again_it_has_the_document_that_is_there(path: Path, backend: JsonFileBackend) -> None:
    one = await conversation(backend)
    await asyncio.to_thread(replace_by_copy, path)
    with pytest.raises(StoreReplaced):
        await backend.of("erin").append(one, said("refused"))
    await backend.close()
    await backend.open()
    await backend.of("erin").append(one, said("stored"))
    assert [entry.message.content for entry in await backend.of("erin").tail(one, limit=5)] == ["stored"]


async def test_a_document_that_was_removed_is_restored_by_the_next_write(
    path: Path, backend: JsonFileBackend
) -> None:
    one = await conversation(backend)
    await backend.of("erin").append(one, said("before"))
    await asyncio.to_thread(path.unlink)
    await backend.of("erin").append(one, said("after"))
    await backend.close()
    await backend.open()
    entries = await backend.of("erin").tail(one, limit=5)
    assert [entry.message.content for entry in entries] == ["before", "after"]


async def test_a_second_process_that_took_a_removed_lock_loses_nothing(
    path: Path, backend: JsonFileBackend
) -> None:
    one = await conversation(backend)
    await asyncio.to_thread(remove_lock, path)
    second = JsonFileBackend(path)
    await second.open()
    await second.of("erin").append(one, said("second"))
    with pytest.raises(StoreReplaced):
        await backend.of("erin").append(one, said("first"))
    await backend.close()
    await second.of("erin").append(one, said("still mine"))
    third = JsonFileBackend(path)
    with pytest.raises(Exception, match="in use by another process"):
        await third.open()
    await second.close()


@pytest.mark.parametrize("seed", range(10))
async def test_at_random_moments_what_was_acknowledged_is_in_the_file_that_was_there(
    path: Path, seed: int
) -> None:
    """Acknowledged turns are in the document up to its replacement, and no turn is acknowledged after it."""
    chance = random.Random(seed)
    backend = JsonFileBackend(path)
    await backend.open()
    one = await conversation(backend)
    stored = 0
    change = chance.choice([replace_by_copy, overwrite])
    changed: bytes | None = None
    moment = chance.randrange(1, 30)
    for number in range(40):
        if number == moment:
            await asyncio.to_thread(change, path)
            changed = await asyncio.to_thread(path.read_bytes)
        try:
            await backend.of("erin").append(one, said(f"{number}"))
            stored += 1
        except StoreReplaced:
            assert changed is not None
    await backend.close()
    assert stored == moment
    assert await asyncio.to_thread(path.read_bytes) == changed
