"""Branches while what they continue is removed or ends: nothing that they show is lost."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.errors import ConversationNotFound, NotFound
from aforesaid.layers.branched import stored_itself
from aforesaid.layers.encrypted import EncryptedBackend
from aforesaid.layers.encrypted.rotation import rotate
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.testing.contract.base import FixedClock
from tests.builders import STORES, empty_url

HOUR = timedelta(hours=1)
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


def turn(number: int) -> list[Message]:
    return [
        Message(role="user", content=f"question {number}", message_id=f"q{number}"),
        Message(role="assistant", content=f"answer {number}", message_id=f"a{number}"),
    ]


async def ids(manager: ConversationManager, conversation_id: str) -> list[str | None]:
    return [message.message_id for message in await manager.messages(conversation_id, 100)]


def opened(url: str, clock: FixedClock | None = None, **options: Any) -> aforesaid.Memory:
    clocked: dict[str, Any] = {} if clock is None else {"clock": clock}
    return aforesaid.open(url, retention=aforesaid.Retention(sweep_every=None), **clocked, **options)


@pytest.mark.parametrize("store", STORES)
async def test_a_branch_made_during_removals_has_all_that_it_shares(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rounds = 30 if store in ("memory", "sqlite") else 6
    async with opened(empty_url(store, tmp_path, request)) as memory:
        for number in range(rounds):
            await _fork_during_removals(memory.of(f"owner {number}"), random.Random(number))


async def _fork_during_removals(manager: ConversationManager, chance: random.Random) -> None:
    await manager.append("parent", turn(1))
    branch = (await manager.fork("parent")).id
    await manager.append(branch, turn(2))

    async def soon(work: Any) -> Any:
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
        return await work

    forks = [manager.fork(branch), manager.fork(branch, at="a1"), manager.fork("parent", at="a1")]
    removals = [
        manager.delete_conversation("parent"),
        chance.choice([manager.delete_conversation, manager.clear_history])(branch),
    ]
    made = await asyncio.gather(*map(soon, [*forks, *removals]), return_exceptions=True)
    for one, shared in zip(made, (["q1", "a1", "q2", "a2"], ["q1", "a1"], ["q1", "a1"]), strict=False):
        if isinstance(one, BaseException):
            # It had been deleted or cleared before the fork began.
            assert isinstance(one, NotFound), one
        else:
            # A branch of the cleared one shares nothing, or what was said before.
            assert await ids(manager, one.id) == (shared if one.message_count else []), one


Ended = tuple[aforesaid.Memory, ConversationManager, str]


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
async def ended(clock: FixedClock, tmp_path: Path) -> AsyncIterator[Ended]:
    """A memory with a living branch whose parent has expired."""
    async with opened(f"sqlite:///{tmp_path}/memory.db", clock) as memory:
        manager = memory.of("erin")
        yield memory, manager, await _branch_of_an_expired_parent(manager, clock)


async def _branch_of_an_expired_parent(manager: ConversationManager, clock: FixedClock) -> str:
    await manager.get_or_create_conversation("parent")
    await manager.update_metadata("parent", ttl=HOUR)
    await manager.append("parent", turn(1))
    branch = (await manager.fork("parent")).id
    await manager.append("parent", [Message(role="user", content="zanzibar", message_id="later")])
    await manager.update_metadata(branch, ttl=HOUR * 9)
    await manager.append(branch, turn(2))
    clock.advance(HOUR * 2)
    with pytest.raises(ConversationNotFound):
        await manager.messages("parent")
    return branch


async def test_a_sweep_moves_what_a_branch_shows_and_removes_the_rest(ended: Ended) -> None:
    memory, manager, branch = ended
    assert "question 1" not in [one.text for one in (await manager.search("question 1")).passages]
    assert await memory.purge_expired() == 1
    assert await ids(manager, branch) == ["q1", "a1", "q2", "a2"]
    assert len(await stored_itself(manager.store).page(branch, limit=9)) == 4
    assert "question 1" in [one.text for one in (await manager.search("question 1")).passages]
    assert (await manager.store.tally()).messages == 4, "what only the parent showed is gone"


async def test_one_owners_purge_does_the_same(ended: Ended) -> None:
    _, manager, branch = ended
    assert await manager.purge_expired() == 1
    assert await ids(manager, branch) == ["q1", "a1", "q2", "a2"]
    assert (await manager.store.tally()).messages == 4


async def test_copies_have_what_a_branch_shows_of_an_expired_conversation(
    ended: Ended, clock: FixedClock, tmp_path: Path
) -> None:
    memory, manager, branch = ended
    await manager.export(tmp_path / "folder")
    async with (
        opened("memory://", clock) as imported,
        opened("memory://", clock) as copied,
    ):
        await imported.of("erin").import_(tmp_path / "folder")
        await aforesaid.transfer.copy(memory.backend, copied.backend)
        for other in (imported, copied):
            assert await ids(other.of("erin"), branch) == ["q1", "a1", "q2", "a2"]


async def test_a_rotation_seals_what_a_branch_shows_of_an_expired_conversation(tmp_path: Path) -> None:
    clock = FixedClock()
    layers = aforesaid.Layers(encryption="A" * 43 + "=")
    async with opened(f"sqlite:///{tmp_path}/memory.db", clock, layers=layers) as memory:
        manager = memory.of("erin")
        branch = await _branch_of_an_expired_parent(manager, clock)
        backend = memory.layer(EncryptedBackend)
        assert backend is not None
        rotation = await rotate(backend, deep=True, grace=timedelta(0))
        assert rotation.retired == 1
    async with opened(f"sqlite:///{tmp_path}/memory.db", clock, layers=layers) as memory:
        assert await ids(memory.of("erin"), branch) == ["q1", "a1", "q2", "a2"]


@pytest.mark.parametrize("removal", ["delete", "expire"])
async def test_images_move_with_their_messages(removal: str, tmp_path: Path) -> None:
    clock = FixedClock()
    images = aforesaid.ImageOptions(policy="blobs", blobs=str(tmp_path / "blobs"))
    async with opened("memory://", clock, images=images) as memory:
        manager = memory.of("erin")
        await manager.get_or_create_conversation("parent")
        await manager.update_metadata("parent", ttl=HOUR)
        await manager.append("parent", [_with_image()])
        digest = sha256(PIXEL).hexdigest()
        branch = (await manager.fork("parent")).id
        await manager.update_metadata(branch, ttl=HOUR * 9)
        contexts = [await manager.load_context(one) for one in ("parent", branch)]
        assert [each.to_dict() for each in contexts[0].messages] == [
            each.to_dict() for each in contexts[1].messages
        ]
        await manager.append("other", turn(1))
        if removal == "delete":
            await manager.delete_conversation("parent")
        else:
            clock.advance(HOUR * 2)
        await memory.purge_expired()
        record = await manager.get_conversation(branch)
        assert await manager.images.read(record, digest) == PIXEL
        assert not (await manager.load_context(branch)).report.warnings


async def test_a_merge_brings_images(tmp_path: Path) -> None:
    images = aforesaid.ImageOptions(policy="blobs", blobs=str(tmp_path / "blobs"))
    async with opened("memory://", images=images) as memory:
        manager = memory.of("erin")
        await manager.append("parent", turn(1))
        branch = (await manager.fork("parent")).id
        await manager.append(branch, [_with_image()])
        await manager.merge("parent", branch)
        await manager.delete_conversation(branch)
        record = await manager.get_conversation("parent")
        assert await manager.images.read(record, sha256(PIXEL).hexdigest()) == PIXEL


def _with_image() -> Message:
    import base64

    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PIXEL).decode()}
    content = [{"type": "text", "text": "look"}, {"type": "image", "source": source}]
    return Message(role="user", content=content, dialect="anthropic", message_id="image")
