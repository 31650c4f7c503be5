"""A master key that does not open a store shows: when it is opened, in `/ready` and in `doctor`."""

from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.cli.doctor import Finding, checkup
from aforesaid.encryption import KEYS_KIND, MasterKeys, WrappedKey, generate_master_key
from aforesaid.errors import KeyUnavailable
from aforesaid.layers.encrypted import Encryption, encrypted
from aforesaid.layers.encrypted.keyring import SAMPLE
from aforesaid.layers.resilient import ResilientBackend
from aforesaid.memory.opening import Memory
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.server.routes.operations import readiness
from aforesaid.settings import ProtectionConfig, Settings
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.stores.urls import backend_for
from tests.builders import empty_url
from tests.faults import Failing

RIGHT, WRONG = MasterKeys(b"r" * 32), MasterKeys(b"w" * 32)
QUIET: dict[str, Any] = {
    "retention": aforesaid.Retention(sweep_every=None),
    "models": aforesaid.Models(embedder=None, preload=False),
}


async def talked(memory: Memory, owner: str = "erin") -> str:
    conversation = await memory.of(owner).get_or_create_conversation("kitchen")
    await memory.of(owner).add_message(conversation.id, "user", "hello")
    return conversation.id


@pytest.fixture(params=["beside", "apart"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """How to open a SQLite store, its keys beside the data or in a store of their own."""

    def opened(master: Any) -> Memory:
        keyring = backend_for(f"sqlite:///{tmp_path}/keys.db") if request.param == "apart" else None
        encryption = Encryption(master=master, keyring=keyring)
        return aforesaid.open(
            f"sqlite:///{tmp_path}/memory.db", layers=aforesaid.Layers(encryption=encryption), **QUIET
        )

    return opened


async def test_a_sealed_store_is_not_opened_with_another_master_key(place: Any) -> None:
    async with place(WRONG):
        pass  # nothing is sealed yet: any key will do
    async with place(RIGHT) as memory:
        conversation = await talked(memory)
    with pytest.raises(KeyUnavailable, match=RIGHT.current):
        async with place(WRONG):
            pass
    async with place(MasterKeys(b"w" * 32, b"r" * 32)) as memory:
        assert len(await memory.of("erin").messages(conversation)) == 1
    async with place(RIGHT) as memory:
        assert len(await memory.of("erin").messages(conversation)) == 1


@pytest.mark.parametrize("altered", range(3))
async def test_one_owner_whose_key_is_damaged_blocks_no_other_owner(altered: int) -> None:
    """Also the first or the last of them: a master key that opens any key is the right one."""
    inner = InMemoryBackend()
    backend = encrypted(inner, Encryption(master=RIGHT))
    owners = ["ann", "bea", "carl"]
    await backend.open()
    for owner in owners:
        await backend.of(owner).create(started(new_id(), now=inner.of(owner).now()))
    stolen = await inner.of(owners[altered - 1]).get_document(KEYS_KIND, "data")
    assert stolen is not None
    await inner.of(owners[altered]).put_document(KEYS_KIND, "data", stolen.data)
    again = encrypted(inner, Encryption(master=RIGHT))
    await again.open()
    found = await again.check_master_key(all_of_them=True)
    assert (found.opened, found.failed, found.is_wrong) == (2, 1, False)


async def test_the_check_looks_at_a_few_owners_only() -> None:
    failing = Failing(InMemoryBackend())
    backend = encrypted(failing, Encryption(master=RIGHT))
    await backend.open()
    for number in range(3 * SAMPLE):
        store = backend.of(f"owner {number}")
        await store.create(started(new_id(), now=store.now()))
    failing.calls.clear()
    assert (await backend.check_master_key()).opened == 1
    assert failing.calls == ["owners", "get_document"]
    wrong = encrypted(failing, Encryption(master=WRONG))
    assert (await wrong.check_master_key()).failed == SAMPLE


class UnreachableKeys(MasterKeys):
    """A key service that cannot be reached."""

    async def unwrap(self, wrapped: WrappedKey, *, bound_to: bytes) -> bytes:
        raise ConnectionRefusedError("the key service")


async def test_a_key_service_that_is_away_is_no_wrong_key(place: Any) -> None:
    async with place(RIGHT) as memory:
        await talked(memory)
    async with place(UnreachableKeys(b"r" * 32)) as memory:
        answer = await readiness(memory, draining=False)
        assert answer.status == "away"


async def started_in_an_outage(tmp_path: Path) -> tuple[Failing, Memory]:
    """A memory with the wrong master key that could not be checked when it was opened."""
    store = Failing(InMemoryBackend())
    right = Memory(encrypted(store, Encryption(master=RIGHT)), **QUIET)
    await right.start()
    await talked(right)
    resilient = ResilientBackend(store, folder=tmp_path / "spool", background=False)
    store.down()
    wrong = Memory(encrypted(resilient, Encryption(master=WRONG)), **QUIET)
    await wrong.start()
    store.up()
    await resilient.inner.open()
    resilient.connection._is_open = True
    resilient.breaker.state = "closed"
    return store, wrong


async def test_a_wrong_key_is_not_ready_and_says_why(tmp_path: Path) -> None:
    _, memory = await started_in_an_outage(tmp_path)
    answer = await readiness(memory, draining=False)
    assert answer.status == "away"
    (check,) = (check for check in answer.checks if check.about == "encryption")
    assert check.state == "problem"
    assert "master key" in check.found
    describe = str(answer)
    assert RIGHT.current not in describe
    assert WRONG.current not in describe
    await memory.close()


async def test_no_data_is_sealed_by_a_wrong_key(tmp_path: Path) -> None:
    """A new owner would get a data key that cannot be opened once the mistake is corrected."""
    store, memory = await started_in_an_outage(tmp_path)
    with pytest.raises(KeyUnavailable):
        await talked(memory, "zoe")
    assert await store.inner.of("zoe").get_document(KEYS_KIND, "data") is None
    await memory.close()


async def test_the_right_key_is_ready(place: Any) -> None:
    async with place(RIGHT) as memory:
        for _ in range(2):
            answer = await readiness(memory, draining=False)
            assert answer.status == "ready"
            assert any(check.about == "encryption" and check.state == "well" for check in answer.checks)
            await talked(memory)


# doctor


def sealed(master_key: str = "") -> Settings:
    return Settings(protection=ProtectionConfig(master_key=master_key))


def about(findings: list[Finding]) -> Finding:
    return next(finding for finding in findings if finding.about == "encryption")


@pytest.fixture(params=["file", "sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_url(request.param, tmp_path, request)


@pytest.mark.slow
async def test_doctor_knows_a_wrong_key_from_a_missing_one(url: str) -> None:
    right, wrong = generate_master_key(), generate_master_key()
    async with aforesaid.open(
        url, layers=aforesaid.Layers(encryption=right, resilience="off"), **QUIET
    ) as memory:
        await talked(memory)
    assert about(await checkup(url, sealed(master_key=right))).state == "well"
    found = about(await checkup(url, sealed(master_key=wrong)))
    assert found.state == "problem"
    assert "does not decrypt" in found.found
    assert right not in str(found)
    assert wrong not in str(found)
    missing = about(await checkup(url, sealed()))
    assert missing.state == "problem"
    assert "no master key" in missing.found


async def test_doctor_says_nothing_bad_of_a_plain_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with aforesaid.open(url, **QUIET) as memory:
        await talked(memory)
    assert about(await checkup(url, sealed())).state == "well"
