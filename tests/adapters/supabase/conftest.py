"""A database behind a server of Supabase, and clients of it."""

import asyncio
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from tests.servers.postgres import PostgresServer
from tests.servers.supabase import admit_gateway, running, token

# The main environment has no client of Supabase; `tests.report` says so in the last lines.
collect_ignore_glob = [] if find_spec("supabase") else ["test_*.py"]

Clients = Callable[..., Any]


@pytest.fixture(scope="session")
def database() -> Iterator[str]:
    server = PostgresServer()
    server.start()
    try:
        asyncio.run(_create_schema(server.url))
        yield server.url
    finally:
        server.stop()


async def _create_schema(url: str) -> None:
    async with aforesaid.open(url):
        pass


@pytest.fixture(scope="session")
def server(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("lite")
    with running(admit_gateway(database), folder) as url:
        yield url


@pytest.fixture
def clients(server: str) -> Iterator[Clients]:
    """Yield a function that creates the client of a user."""
    from supabase import create_client

    created: list[Any] = []

    def create(subject: str | None, **options: Any) -> Any:
        created.append(create_client(server, token(subject, **options)))
        return created[-1]

    yield create
    for client in created:
        client.postgrest.aclose()
