"""Access while the store is away: a key that was revoked elsewhere stops working in time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from aforesaid import Models, Retention
from aforesaid.encryption import MasterKeys
from aforesaid.errors import AccessError, NotAuthenticated, StoreUnavailable
from aforesaid.layers.encrypted import Encryption, encrypted
from aforesaid.layers.resilient import ResilientBackend
from aforesaid.memory.opening import Memory
from aforesaid.server.app import create_app
from aforesaid.server.auth import authenticator as authenticators
from aforesaid.server.auth.authenticator import Authenticator
from aforesaid.server.auth.keys import ApiKeys, Caller
from aforesaid.settings import ServerConfig, Settings
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.telemetry import resources
from tests.faults import Failing
from tests.integration.server.running import serving

LATER = authenticators.CACHE_SECONDS
"""Seconds after which a cached key counts no more."""


class Outage:
    """A resilient store whose own store can be taken away, and a clock for the gate."""

    def __init__(self, folder: Path, *, sealed: bool) -> None:
        self.store = Failing(InMemoryBackend())
        self.resilient = ResilientBackend(self.store, folder=folder, background=False)
        master = MasterKeys(b"k" * 32)
        self.backend: Any = encrypted(self.resilient, Encryption(master=master)) if sealed else self.resilient
        self.keys = ApiKeys(self.backend)
        self.now = 1000.0

    def authenticator(self, **options: Any) -> Authenticator:
        return Authenticator(self.keys, monotonic=lambda: self.now, **options)

    def end(self) -> None:
        self.store.up()
        self.resilient.breaker.state = "closed"


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
async def outage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Outage]:
    around = Outage(tmp_path / "spool", sealed=request.param)
    await around.backend.open()
    yield around
    around.end()
    await around.backend.close()


def shown(text: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {text}".encode()}


async def test_a_cached_key_counts_for_its_time_and_no_longer(outage: Outage) -> None:
    authenticator = outage.authenticator()
    text, key = await outage.keys.create(["erin"])
    never_shown, _ = await outage.keys.create(["erin"])
    await authenticator.authenticate(shown(text))
    await outage.keys.find(never_shown)  # the resilient layer knows it from now on
    outage.store.down()
    outage.now += LATER - 0.01
    assert (await authenticator.authenticate(shown(text))).name == f"key:{key.id}"
    outage.now += 0.01
    for _ in range(3):
        for each in (text, never_shown):
            with pytest.raises(StoreUnavailable, match="verified"):
                await authenticator.authenticate(shown(each))
        outage.now += 30
    outage.end()
    assert (await authenticator.authenticate(shown(text))).name == f"key:{key.id}"


async def test_a_key_that_was_revoked_meanwhile_is_refused_when_the_store_is_back(outage: Outage) -> None:
    authenticator = outage.authenticator()
    text, key = await outage.keys.create(["erin"])
    await authenticator.authenticate(shown(text))
    await outage.keys.revoke(key.id)
    outage.store.down()
    outage.now += LATER
    with pytest.raises(StoreUnavailable):
        await authenticator.authenticate(shown(text))
    outage.end()
    with pytest.raises(NotAuthenticated):
        await authenticator.authenticate(shown(text))


async def test_a_grace_period_prefers_availability_for_as_long_as_it_says(outage: Outage) -> None:
    authenticator = outage.authenticator(grace=60.0)
    text, _ = await outage.keys.create(["erin"])
    unseen, _ = await outage.keys.create(["erin"])
    await authenticator.authenticate(shown(text))
    outage.store.down()
    outage.now += LATER + 59.9
    assert (await authenticator.authenticate(shown(text))).owners == frozenset({"erin"})
    with pytest.raises(StoreUnavailable):
        await authenticator.authenticate(shown(unseen))
    outage.now += 0.2
    with pytest.raises(StoreUnavailable):
        await authenticator.authenticate(shown(text))


@pytest.mark.parametrize("grace", [0.0, 60.0])
async def test_a_server_without_keys_fails_closed_too(outage: Outage, grace: float) -> None:
    """The first key, made elsewhere, closes the door; a server that cannot look must not hold it open."""
    authenticator = outage.authenticator(open_for="default", grace=grace)
    await authenticator.authenticate({})
    outage.store.down()
    outage.now += LATER + grace - 0.01
    await authenticator.authenticate({})
    outage.now += 0.02
    with pytest.raises(StoreUnavailable):
        await authenticator.authenticate({})


class SomeTokens:
    """Tokens that hold, as an issuer's do, whatever becomes of the store."""

    async def caller(self, text: str) -> tuple[Caller, None]:
        return Caller(name="token", owners=frozenset({"erin"}), scope="write", owner="erin"), None


async def test_tokens_go_on_working(outage: Outage) -> None:
    authenticator = Authenticator(outage.keys, SomeTokens(), monotonic=lambda: outage.now)  # type: ignore[arg-type]
    outage.store.down()
    for _ in range(5):
        outage.now += LATER
        assert (await authenticator.authenticate(shown("a.b.c"))).owner == "erin"


@pytest.mark.parametrize("seed", range(20))
async def test_no_history_lets_a_revoked_key_in_late(outage: Outage, seed: int) -> None:
    """Random revocations, outages and requests: a key is let in only if it held within the last seconds."""
    import random

    chance = random.Random(seed)
    authenticator = outage.authenticator()
    made = [await outage.keys.create(["erin"]) for _ in range(4)]
    revoked: dict[str, float] = {}
    away = False
    for _ in range(200):
        outage.now += chance.choice([0.0, 0.3, 1.0, 4.9, 5.0, 20.0])
        step = chance.randrange(6)
        text, key = chance.choice(made)
        if step == 0:
            away = not away
            outage.store.down() if away else outage.end()
        elif step == 1 and not away:
            await outage.keys.revoke(key.id)
            revoked.setdefault(key.id, outage.now)
        else:
            try:
                await authenticator.authenticate(shown(text))
                let_in = True
            except (AccessError, StoreUnavailable) as error:
                let_in = False
                honest = away or isinstance(error, NotAuthenticated)
            assert let_in or honest
            late = key.id in revoked and outage.now - revoked[key.id] >= LATER
            assert not (let_in and late), f"{outage.now - revoked[key.id]} s after it was revoked"


@asynccontextmanager
async def asking(outage: Outage, authenticator: Authenticator) -> AsyncIterator[httpx.AsyncClient]:
    memory = Memory(
        outage.backend, retention=Retention(sweep_every=None), models=Models(preload=False, embedder=None)
    )
    app: Any = create_app(memory, Settings(server=ServerConfig()), authenticator=authenticator)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=120) as client:
        yield client


async def test_requests_get_503_with_retry_after(outage: Outage) -> None:
    text, _ = await outage.keys.create(["erin"])
    turn = {"session_id": "kitchen", "messages": [{"role": "user", "content": "hi"}]}
    headers = {"Authorization": f"Bearer {text}"}
    async with asking(outage, outage.authenticator()) as client:
        assert (await client.post("/v1/sessions/turns", json=turn, headers=headers)).status_code == 201
        outage.store.down()
        outage.now += LATER
        for method, path in (
            ("POST", "/v1/sessions/turns"),
            ("GET", "/v1/conversations"),
            ("GET", "/metrics"),
        ):
            answer = await client.request(method, path, json=turn, headers=headers)
            assert answer.status_code == 503, path
            assert answer.headers["retry-after"]
            assert "verified" in answer.json()["detail"]
        assert (await client.get("/health")).status_code == 200


# Disks


@pytest.mark.parametrize(
    ("free", "status", "state"),
    [(50 * 1024**2, 503, "problem"), (500 * 1024**2, 200, "warning"), (50 * 1024**3, 200, "well")],
)
async def test_a_server_whose_disk_is_full_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, status: int, state: str
) -> None:
    def usage(_: Path) -> Any:
        return SimpleNamespace(free=free, total=100 * 1024**3)

    monkeypatch.setattr("aforesaid.telemetry.resources.shutil.disk_usage", usage)
    async with serving(f"sqlite:///{tmp_path}/memory.db") as server:
        ready = await server.client.get("/ready")
    assert ready.status_code == status
    (disk,) = (check for check in ready.json()["checks"] if check["about"] == "disk (store)")
    assert disk["state"] == state
    assert str(tmp_path) not in ready.text


def test_a_small_disk_may_be_nearly_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SimpleNamespace(free=60 << 20, total=64 << 20)
    monkeypatch.setattr("aforesaid.telemetry.resources.shutil.disk_usage", lambda _: usage)
    assert resources.disk_of(tmp_path / "missing" / "folder").state == "warning"
