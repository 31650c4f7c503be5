"""One memory, used from synchronous code by one `asyncio.run` after the other, on every store and layer."""

import asyncio
import random
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.layers.cached import Cache
from aforesaid.layers.resilient import Resilience
from aforesaid.stores.urls import is_server
from tests.servers.redis import patient
from tests.servers.remote import Served, open_at, served

STORES = ("memory", "file", "sqlite", "redis", "redis_cluster", "postgres")
CASES = [*(f"{store}-{layers}" for store in STORES for layers in ("plain", "layered")), "server-plain"]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(request: pytest.FixtureRequest, case: str, tmp_path: Path) -> str:
    def asked(name: str) -> Any:
        return request.getfixturevalue(name)

    match case.partition("-")[0]:
        case "memory":
            return "memory://"
        case "file":
            return f"file://{tmp_path}/conversations.json"
        case "sqlite":
            return f"sqlite:///{tmp_path}/memory.db"
        case "redis":
            return patient(asked("one_redis_url"), prefix=tmp_path.name)
        case "redis_cluster":
            return patient(asked("redis_cluster_url"), prefix=tmp_path.name)
        case "postgres":
            return str(asked("databases").new())
        case _:
            return str(asked("server").url)


@pytest.fixture
def server() -> Iterator[Served]:
    with served("memory://") as server:
        yield server


@pytest.fixture
def opening(case: str, url: str, tmp_path: Path) -> Callable[[], Any]:
    layered: dict[str, Any] = {
        "resilience": Resilience(folder=tmp_path / "spool"),
        "cache": Cache(ttl=timedelta(minutes=5)),
        "encryption": b64encode(bytes(32)).decode(),
        "audit": tmp_path / "audit.log",
        "summarizer": "extract",
        "timed": True,
    }
    if is_server(url):
        return lambda: aforesaid.connect(url)
    return lambda: open_at(url, **(layered if case.endswith("layered") else {"resilience": "off"}))


async def talk(memory: aforesaid.Memory, text: str) -> list[object]:
    """Everything that a program does: turns at once, a context, a search, notes, a listing."""
    erin = memory.of("erin")
    kitchen = (await erin.get_or_create_conversation("kitchen")).id

    async def turn(number: int) -> None:
        async with erin.turn(kitchen) as turn:
            turn.user(f"{text} {number}")
            turn.assistant("done")

    await asyncio.gather(*map(turn, range(8)))
    await asyncio.gather(*(erin.load_context(kitchen) for _ in range(8)))
    await asyncio.gather(*(erin.search_history(text) for _ in range(3)))
    context = await erin.load_context(kitchen)
    return [message.content for message in context.messages]


class TestOneRunAfterTheOther:
    def test_a_memory_is_opened_used_and_closed(self, opening: Callable[[], Any]) -> None:
        memory = opening()
        asyncio.run(memory.start())
        first = asyncio.run(talk(memory, "lights"))
        second = asyncio.run(talk(memory, "doors"))
        assert any("lights" in str(text) for text in first)
        assert any("doors" in str(text) for text in second)
        asyncio.run(memory.close())
        asyncio.run(memory.close())

    def test_a_run_that_fails_leaves_the_memory_usable(self, opening: Callable[[], Any]) -> None:
        """Tasks that were still talking are cancelled with their loop."""
        memory = opening()

        async def broken_off() -> None:
            await memory.start()
            await talk(memory, "lights")
            talking = [asyncio.create_task(talk(memory, f"round {number}")) for number in range(4)]
            await asyncio.wait(talking, timeout=random.Random(7).random() / 20)
            raise LookupError("the program has a mistake")

        with pytest.raises(LookupError):
            asyncio.run(broken_off())
        assert any("doors" in str(text) for text in asyncio.run(talk(memory, "doors")))
        asyncio.run(memory.close())
