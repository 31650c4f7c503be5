"""`aforesaid loadgen`: made-up load, on every store, within bounds, and never elsewhere."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.cli.load import MOST_MESSAGES, Load, check_near
from aforesaid.errors import InvalidInput, InvalidSetting
from tests.builders import STORES, empty_url
from tests.integration.cli.conftest import Run
from tests.servers.remote import served

SMALL = ("--owners", "4", "--conversations", "2", "--messages", "6", "--steps", "2", "--json")


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_url(request.param, tmp_path, request)


async def kept(url: str) -> dict[str, list[str]]:
    """What is in the store, by owner and conversation."""
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        layers=aforesaid.Layers(resilience="off"),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        found = {}
        async for owner in memory.owners():
            manager = memory.of(owner)
            for number in range(2):
                conversation = await manager.get_or_create_conversation(f"load {number}")
                said = await manager.messages(conversation.id)
                found[f"{owner} {number}"] = [str(message.content) for message in said]
        return found


async def _owners(memory: aforesaid.Memory) -> int:
    return len([owner async for owner in memory.owners()])


def grown(run: Run, *arguments: str) -> Any:
    return json.loads(run("loadgen", *arguments).stdout)


class TestEveryStore:
    def test_grows_by_what_was_asked_for(self, run: Run, url: str) -> None:
        found = grown(run, *SMALL, "--url", url)
        assert [step["messages"] for step in found["steps"]] == [24, 48]
        assert found["messages"] == 48
        if not url.startswith("memory:"):
            assert found["bytes_a_message"] == pytest.approx(sum(found["parts"].values()))
            assert sum(found["steps"][-1]["bytes"].values()) > 0

    async def test_the_same_seed_says_the_same_words(self, run: Run, tmp_path: Path) -> None:
        for name, seed in (("one", "7"), ("other", "7"), ("third", "8")):
            address = f"sqlite:///{tmp_path / name}.db"
            await asyncio.to_thread(grown, run, *SMALL, "--url", address, "--seed", seed)
        one, other, third = [
            await kept(f"sqlite:///{tmp_path / name}.db") for name in ("one", "other", "third")
        ]
        assert one == other
        assert len(one) == 8
        assert all(len(said) == 6 for said in one.values())
        assert not set(map(tuple, one.values())) & set(map(tuple, third.values()))

    def test_an_index_that_is_off_stays_off(self, run: Run, tmp_path: Path) -> None:
        found = [
            grown(run, *SMALL, "--url", f"sqlite:///{tmp_path}/{name}")
            for name in ("a.db", "b.db?search=off")
        ]
        indexed = [one["steps"][-1]["bytes"]["indexed"] for one in found]
        assert indexed[0] > indexed[1] == 0

    def test_a_rate_leaves_nothing_out(self, run: Run) -> None:
        assert grown(run, *SMALL, "--rate", "5000")["messages"] == 48

    def test_without_a_store_nothing_is_left_behind(self, run: Run, tmp_path: Path) -> None:
        run("loadgen", *SMALL)
        assert list(tmp_path.iterdir()) == []

    def test_a_server_gets_the_same_load(self, run: Run) -> None:
        with served() as server:
            assert grown(run, *SMALL, "--url", server.url)["messages"] == 48
            assert server.begin(_owners(server.memory)).result(60) == 4

    def test_people_get_a_table(self, run: Run) -> None:
        shown = run("loadgen", *SMALL[:-1]).stdout
        assert "turns/s" in shown
        assert "bytes/message" in shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://erin@db.example.org/memory",
        "postgresql://127.0.0.1,10.0.0.7/memory",
        "postgresql:///memory?host=db.example.org",
        "postgresql:///memory?service=production",
        "redis://user:secret@10.1.2.3:6379/0",
        "redis+cluster://[2001:db8::1]:7000",
        "http://127.0.0.1@memory.example.org:8765",
    ],
)
def test_a_store_elsewhere_is_refused_before_it_is_asked(run: Run, url: str) -> None:
    refused = run("loadgen", *SMALL, "--url", url, code=2)
    assert "only works on this machine" in refused.output
    assert "secret" not in refused.output


@pytest.mark.parametrize(
    "url",
    [
        "memory://",
        "sqlite:///load.db",
        "redis://localhost:1/0",
        "redis://[::1]:7/0",
        "postgresql://127.0.0.1/x",
        "http://localhost:8765",
        "postgresql:///x?host=/run/postgresql",
    ],
)
def test_a_store_here_is_taken(url: str) -> None:
    check_near(url)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("owners", 0),
        ("owners", MOST_MESSAGES),
        ("messages", 7),
        ("letters", 0),
        ("letters", 10**6),
        ("at_once", 1_000),
        ("rate", -1.0),
        ("rate", float("nan")),
        ("steps", 101),
        ("conversations", True),
    ],
)
def test_a_load_out_of_bounds_names_the_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=field) as refused:
        Load(**{field: value})
    assert refused.value.field == field


def test_what_is_elsewhere_is_named() -> None:
    with pytest.raises(InvalidSetting) as refused:
        check_near("redis://10.1.2.3/0")
    assert (refused.value.field, refused.value.value) == ("url", "10.1.2.3")
