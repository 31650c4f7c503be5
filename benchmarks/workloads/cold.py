"""W6 and W7: many conversations: how long until they are open, what that weighs, how long a search takes."""

import asyncio
import resource
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.servers.ports import free_port

import aforesaid
from aforesaid.contracts import Reindexable, capability
from benchmarks import first_turn
from benchmarks.measuring import p50
from benchmarks.peers.adapters.ours import OWNER
from benchmarks.peers.driving import Race
from benchmarks.peers.environments import environment
from benchmarks.peers.jobs import summary
from benchmarks.peers.roster import Entrant
from benchmarks.search_speed import Speech, fill
from benchmarks.workloads.size import Size

SESSION = "s7"
SETTLED = 3.0
"""Seconds after which a server that was started is at rest."""
SMALL = 100
"""Conversations of a store to compare the large one with."""


def run(race: Race, size: Size, entrants: tuple[Entrant, ...]) -> dict[str, Any]:
    """Peers on files are filled for a bounded time; ours holds all of it."""
    found: dict[str, Any] = {}
    search: dict[str, Any] = {}
    server: dict[str, Any] = {}
    for one in (one for one in entrants if one.place == "folder" and not one.is_variant):
        if one.adapter == "ours:SQLite":
            found[one.name], search, server = _ours(race, size, one)
        elif one.kind == "peer":
            found[one.name] = _peer(race, size, one)
    return {"entrants": found, "search": search, "server": server, "first": first_turn.measure()}


def _peer(race: Race, size: Size, entrant: Entrant) -> dict[str, Any]:
    race.say("W6", entrant)
    with race.place(entrant) as place:
        filled = race.run(
            entrant,
            "fill",
            place,
            conversations=size.conversations,
            messages=size.messages,
            seconds=size.filling,
        )
        if "error" in filled:
            return filled
        opened = race.run(entrant, "cold", place, session="w7")
        return {**opened, "conversations": filled["conversations"], "bytes": weight(Path(place))}


def _ours(race: Race, size: Size, entrant: Entrant) -> tuple[dict[str, Any], ...]:
    race.say("W6 W7", entrant)
    with race.place(entrant) as place:
        asyncio.run(_filled(place, SMALL, size.messages))
        small = race.run(entrant, "cold", place, session=SESSION)
    with race.place(entrant) as place:
        begin = time.perf_counter()
        asyncio.run(_filled(place, size.conversations, size.messages))
        seconds = time.perf_counter() - begin
        opened = race.run(entrant, "cold", place, session=SESSION)
        server = _served(place)
        search = asyncio.run(_asked(place, size))
        figures = {"conversations": size.conversations, "bytes": weight(Path(place)), "filled_in": seconds}
    return {**opened, **figures, "small": small}, search, server


def _served(place: str) -> dict[str, int]:
    """What a server on this store weighs: at rest, and after it was asked for its list and a search."""
    port = free_port()
    command = [sys.executable, "-m", "aforesaid", "serve", "--url", f"sqlite:///{place}/memory.db"]
    server = subprocess.Popen(
        [*command, "--port", str(port), "--log-level", "error"],
        env=environment(),
        cwd=place,
        stdout=subprocess.DEVNULL,
    )
    try:
        _answered(server, f"http://127.0.0.1:{port}/health")
        # What it loads in the background when it starts belongs to it.
        time.sleep(SETTLED)
        idle = _resident(server.pid)
        for path in ("conversations?limit=50", "search?query=anything"):
            _answered(server, f"http://127.0.0.1:{port}/v1/{path}")
        return {"idle": idle, "after a list and a search": _resident(server.pid)}
    except TimeoutError as error:
        print(error, file=sys.stderr)
        return {}
    finally:
        server.terminate()
        server.wait(30)


def _answered(server: "subprocess.Popen[bytes]", url: str) -> None:
    """Waits for any answer, for as long as the server runs and within bounds."""
    deadline = time.monotonic() + 60
    request = Request(url, headers={"Aforesaid-Owner": OWNER})
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urlopen(request, timeout=30):
                return
        except HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"no answer from {url}")


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


async def _filled(place: str, conversations: int, messages: int) -> None:
    url = f"sqlite:///{place}/memory.db?synchronous=normal"
    async with aforesaid.open(
        url, ttl=None, retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=None)
    ) as memory:
        await fill(memory.of(OWNER), Speech(), conversations=conversations, messages=messages, embedder=None)
        # What waits for a quiet moment belongs to the store, too.
        reindexable = capability(memory.backend, Reindexable)
        assert reindexable is not None
        await reindexable.reindex()


async def _asked(place: str, size: Size) -> dict[str, Any]:
    """Questions of three to eight words, in a process that has just opened the store; best five passages."""
    speech = Speech()
    async with aforesaid.open(
        f"sqlite:///{place}/memory.db",
        ttl=timedelta(days=36500),
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        manager = memory.of(OWNER)
        times = []
        for _ in range(size.questions):
            begin = time.perf_counter()
            await manager.search(speech.question(), 5)
            times.append(time.perf_counter() - begin)
    times_sorted = sorted(times)
    return {
        "messages": size.conversations * size.messages,
        "first": times[0],
        "p95": times_sorted[int(len(times) * 0.95)],
        **summary(times),
        "p50": p50(times),
    }


def weight(folder: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def filled_bytes(folder: Path, *, conversations: int, messages: int) -> float:
    """Bytes that a message takes on the disk, its share of the index included."""
    asyncio.run(_filled(str(folder), conversations, messages))
    return weight(folder) / (conversations * messages)
