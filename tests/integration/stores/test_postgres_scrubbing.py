"""Rewriting tables after an erasure, while others use them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from aforesaid.layers.resilient.connection import Resilience
from aforesaid.stores.postgres import scrubbing
from aforesaid.stores.postgres.backend import PostgresBackend
from aforesaid.stores.postgres.scrubbing import Pass
from tests.servers.waiting import LONGEST

SOON, PATIENT = 1, LONGEST * 1000
"""Milliseconds."""


@pytest.fixture
async def backend(postgres_url: str) -> AsyncIterator[PostgresBackend]:
    opened = PostgresBackend(postgres_url)
    await opened.open()
    yield opened
    await opened.close()


@asynccontextmanager
async def contacts_in_use(url: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """A transaction that has read a table, until it is committed."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("LOCK TABLE aforesaid.contacts IN ACCESS SHARE MODE")
        yield connection


async def a_rewrite_waits(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        question = (
            "SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
            " AND relation = 'aforesaid.contacts'::regclass"
        )
        async with asyncio.timeout(LONGEST):
            while (await connection.execute(question)).rowcount == 0:
                pass


async def test_an_erasure_tries_again_while_a_table_is_in_use(
    backend: PostgresBackend, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "LOCK_WAITS", (SOON, PATIENT))
    async with contacts_in_use(postgres_url) as user:
        erasing = asyncio.create_task(backend.scrub("erin"))
        await a_rewrite_waits(postgres_url)
        await user.commit()
        assert await erasing == ()


def test_a_call_behind_an_erasure_that_waits_is_no_outage() -> None:
    """While the erasure waits for a table's lock, every call that needs the table waits behind it."""
    assert max(scrubbing.LOCK_WAITS) / 1000 <= Resilience().read_deadline / 2
    assert sum(scrubbing.LOCK_WAITS) / 1000 > 50


async def test_an_erasure_names_a_table_that_is_always_in_use(
    backend: PostgresBackend, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "LOCK_WAITS", (SOON, SOON))
    async with contacts_in_use(postgres_url):
        (remains,) = await backend.scrub("erin")
    assert "aforesaid.contacts was in use" in remains


async def test_erasures_that_wait_share_one_pass(
    backend: PostgresBackend, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "LOCK_WAITS", (PATIENT,))
    passes: list[int] = []
    run = Pass.run

    async def counted(one: Pass, *arguments: object) -> None:
        passes.append(len(one.owners))
        await run(one, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Pass, "run", counted)
    scrub = backend._scrubber.scrub
    async with contacts_in_use(postgres_url) as user:
        first = asyncio.create_task(scrub(["erin"]))
        await a_rewrite_waits(postgres_url)
        # What these have deleted is not in the pass that has begun.
        others = [asyncio.create_task(scrub([f"owner {number}"])) for number in range(5)]
        await asyncio.sleep(0)
        await user.commit()
        assert await asyncio.gather(first, *others) == [()] * 6
    assert passes == [1, 5]


async def test_an_erasure_goes_on_when_the_one_that_scrubbed_for_it_is_cancelled(
    backend: PostgresBackend, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "LOCK_WAITS", (PATIENT,))
    scrubber = backend._scrubber
    async with contacts_in_use(postgres_url) as user:
        tasks = [asyncio.create_task(scrubber.scrub([name])) for name in ("erin", "ann")]
        await a_rewrite_waits(postgres_url)
        tasks[0].cancel()
        await asyncio.wait({tasks[0]})
        await a_rewrite_waits(postgres_url)
        await user.commit()
        assert await tasks[1] == ()
    assert tasks[0].cancelled()
