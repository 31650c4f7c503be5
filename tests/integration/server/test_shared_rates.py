"""Processes on one store count together against the rate limits."""

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from aforesaid.contracts import JOURNAL, Backend
from aforesaid.contracts.listing import all_documents
from aforesaid.errors import StoreUnavailable, TooManyRequests
from aforesaid.server import shared_rates
from aforesaid.server.limits import Limits
from aforesaid.server.shared_rates import RATES, SharedRates
from aforesaid.stores.memory import InMemoryBackend, InMemoryStore
from tests.builders import url_for
from tests.servers.running import Process, keys, new_key, server
from tests.servers.waiting import LONGEST, until

MOST = 10


class Counting:
    """The limits of one process, at a fixed time, and its exchange."""

    def __init__(self, backend: Backend) -> None:
        self.now = 0.0
        self.limits = Limits({"write": MOST}, monotonic=lambda: self.now)
        self.rates = SharedRates(self.limits, backend)

    def accepts(self, requests: int = 1_000) -> int:
        """Return how many of these requests it accepts."""
        accepted = 0
        with suppress(TooManyRequests):
            for _ in range(requests):
                self.limits.take("erin", "write")
                accepted += 1
        return accepted


class FailingBackend(InMemoryBackend):
    failing = False

    def of(self, owner: str) -> InMemoryStore:
        if self.failing:
            raise StoreUnavailable("the store does not answer")
        return super().of(owner)


@pytest.fixture
async def backend() -> AsyncIterator[FailingBackend]:
    backend = FailingBackend()
    await backend.open()
    yield backend
    await backend.close()


async def exchange(*processes: Counting) -> None:
    for each in (*processes, *processes):
        await each.rates.exchange()


async def test_three_processes_accept_the_limit_in_total(backend: FailingBackend) -> None:
    processes = [Counting(backend) for _ in range(3)]
    await exchange(*processes)
    accepted = 0
    for number in range(3 * MOST):
        accepted += processes[number % 3].accepts(1)
        await exchange(*processes)
    assert accepted == MOST
    assert all(each.accepts() == 0 for each in processes)
    for each in processes:
        each.now = 60.0
    assert processes[1].accepts() == MOST


async def test_what_is_accepted_before_an_exchange_is_taken_from_the_next_minute(
    backend: FailingBackend,
) -> None:
    one, other = Counting(backend), Counting(backend)
    await exchange(one, other)
    assert (one.accepts(), other.accepts()) == (MOST, MOST)
    await exchange(one, other)
    one.now = other.now = 60.0
    assert (one.accepts(), other.accepts()) == (0, 0)
    one.now = other.now = 120.0
    assert one.accepts() == MOST


async def test_a_new_process_does_not_count_what_was_accepted_before_it(backend: FailingBackend) -> None:
    one = Counting(backend)
    assert one.accepts(7) == 7
    await exchange(one)
    new = Counting(backend)
    await exchange(new)
    assert new.accepts() == MOST


async def test_a_failing_store_leaves_the_limit_of_each_process(
    backend: FailingBackend, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = Counting(backend), Counting(backend)
    await exchange(one, other)
    backend.failing = True
    await exchange(one, other)
    assert (one.accepts(), other.accepts()) == (MOST, MOST)
    assert not one.rates.works
    assert caplog.text.count("rate limits count per process for now: ") == 2
    backend.failing = False
    await exchange(one, other)
    assert one.rates.works
    one.now = other.now = 60.0
    assert (one.accepts(), other.accepts()) == (0, 0)


async def test_counts_leave_the_store_with_their_process(
    backend: FailingBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stored() -> int:
        return len([one async for one in all_documents(backend.of(JOURNAL), RATES)])

    ended, killed, idle, new = (Counting(backend) for _ in range(4))
    await exchange(ended, killed, idle, new)
    for each in (ended, killed, idle):
        assert each.accepts(3) == 3
        await each.rates.exchange()
    assert await stored() == 3
    await ended.rates.close()
    assert await stored() == 2
    await new.rates.exchange()
    monkeypatch.setattr(shared_rates, "IDLE_SECONDS", 0)
    await idle.rates.exchange()
    assert await stored() == 1
    monkeypatch.setattr(shared_rates, "KEEP_SECONDS", 0)
    await new.rates.exchange()
    assert await stored() == 0
    assert new.accepts() == MOST - 6
    # It counts from zero again, under another name, so nothing is counted twice.
    assert idle.accepts(1) == 1
    await exchange(idle, new)
    new.now = 6.0
    assert new.accepts() == 0


async def test_damaged_counts_do_not_count(backend: FailingBackend) -> None:
    one = Counting(backend)
    await exchange(one)
    await backend.of(JOURNAL).put_document(RATES, "other", b"damaged")
    await exchange(one)
    assert one.rates.works
    assert one.accepts() == MOST


# Two real servers


@pytest.fixture(params=["redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("databases").furnished())
    return url_for(request.param, tmp_path, request)


@pytest.fixture
def key(url: str) -> str:
    return new_key(url, "--owner", "erin")


@pytest.fixture
def servers(url: str, key: str, tmp_path: Path) -> Iterator[list[Process]]:
    settings = {"AFORESAID_REQUIRE_KEYS": "true", "AFORESAID_RATE_READ": "2"}
    made = [
        server(tmp_path, url, AFORESAID_SPOOL_FOLDER=str(tmp_path / f"spool-{n}"), **settings)
        for n in range(2)
    ]
    try:
        for each in made:
            each.start()
        yield made
    finally:
        for each in made:
            each.stop()


def test_two_servers_share_limits_and_revocation(url: str, key: str, servers: list[Process]) -> None:
    accepted = 0
    with httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=LONGEST) as client:

        def answers() -> list[httpx.Response]:
            return [client.get(f"{each.address}/v1/conversations") for each in servers]

        def is_shared() -> bool:
            """Alone, each accepts two requests, and the next one within 30 seconds."""
            nonlocal accepted
            refused = [one for one in answers() if one.status_code == 429]
            accepted += len(servers) - len(refused)
            has_debt = any(one.json()["retry_after"] > 31 for one in refused)
            return len(refused) == len(servers) and (has_debt or accepted < 2 * len(servers))

        until(is_shared, "the servers count alone")
        keys("revoke", key.split("_")[1], url=url)
        until(lambda: all(one.status_code == 401 for one in answers()), "the key is still accepted")
