"""What one server process achieves on each store, measured with the load generator.

    python -m benchmarks.capacity [--owners 40] [--page]

Writes `benchmarks/results/capacity.json` and the tables of `docs/reference/capacity.md`. `aforesaid loadgen`
and the server share the cores, so the rate is that of both together. Processor time is the server's alone:
for PostgreSQL and Redis that of their own processes is not in it.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.servers.postgres import Databases, PostgresServer
from tests.servers.redis import running
from tests.servers.running import Process, server
from websockets.asyncio.client import ClientConnection, connect

from aforesaid.settings import ServerConfig
from benchmarks.__main__ import RESULTS, about
from benchmarks.peers.environments import ROOT
from benchmarks.report.numbers import table
from benchmarks.report.writing import put_into
from benchmarks.serving import cpu_seconds

PAGE = ROOT / "docs" / "reference" / "capacity.md"
CONNECTIONS = 500
QUIET_SECONDS = 60
JSON_OWNERS = 4
"""The file is written anew for every commit: a few owners say enough."""
UNLIMITED = {f"AFORESAID_RATE_{kind}": "0" for kind in ("READ", "WRITE", "SEARCH", "ASK")}
SETTINGS = UNLIMITED | {"AFORESAID_LIVE_CONNECTIONS_PER_KEY": str(2 * CONNECTIONS)}
LIMITS = (
    "rate_write",
    "rate_read",
    "rate_search",
    "rate_ask",
    "queue_seconds",
    "live_connections",
    "live_connections_per_key",
    "live_rate",
    "waiting_connections",
    "max_body_kb",
)


@contextmanager
def stores(folder: Path) -> Iterator[dict[str, str]]:
    """The URLs of empty stores. What they acknowledge is on the disk."""
    postgres = PostgresServer("fsync=on", "full_page_writes=on")
    postgres.start()
    try:
        with running("--appendfsync", "everysec") as port:
            yield {
                "Memory": "memory://",
                "JSON file": f"file:///{folder}/memory.json",
                "SQLite": f"sqlite:///{folder}/memory.db",
                "Redis": f"redis://127.0.0.1:{port}/0",
                "PostgreSQL": Databases(postgres.url).new(),
            }
    finally:
        postgres.stop()


def measured(owners: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="aforesaid-capacity-") as name, stores(Path(name)) as urls:
        found = {
            store: _one(Path(name), url, min(owners, JSON_OWNERS) if store == "JSON file" else owners)
            for store, url in urls.items()
        }
    return {"about": about(), "connections": CONNECTIONS, "stores": found}


def _one(folder: Path, url: str, owners: int) -> dict[str, float]:
    process = server(folder, url, **SETTINGS)
    process.start()
    try:
        idle = _resident(process)
        return {"idle_mb": idle, **_turns(process, owners), "connection_kb": _connections(process)}
    finally:
        process.stop()


def _turns(process: Process, owners: int) -> dict[str, float]:
    _loadgen(process, 2)  # what is loaded once is not counted
    _wait_until_quiet(process)
    before = cpu_seconds(process.pid)
    grown = _loadgen(process, owners)
    answered = cpu_seconds(process.pid) - before
    _wait_until_quiet(process)
    turns = grown["messages"] / 2
    return {
        "turns": turns,
        "turns_a_second": grown["turns_a_second"],
        "p50": grown["steps"][-1]["p50"],
        "p99": grown["steps"][-1]["p99"],
        "cpu_ms": answered / turns * 1000,
        "cpu_with_index_ms": (cpu_seconds(process.pid) - before) / turns * 1000,
    }


def _loadgen(process: Process, owners: int) -> Any:
    size = ("--owners", str(owners), "--steps", "1", "--seed", str(owners), "--json")
    command = [sys.executable, "-m", "aforesaid", "loadgen", "--url", process.address, *size]
    return json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)


def _wait_until_quiet(process: Process) -> None:
    """Words and vectors are indexed after the answers."""
    until = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < until:
        before = cpu_seconds(process.pid)
        time.sleep(1)
        if cpu_seconds(process.pid) - before < 0.05:
            return


def _connections(process: Process) -> float:
    """Kilobytes of the server for each WebSocket that watches a conversation of its own."""
    before = _resident(process)
    return asyncio.run(_resident_with_sockets(process, before)) * 1024


async def _resident_with_sockets(process: Process, before: float) -> float:
    async with AsyncExitStack() as opened:
        for number in range(CONNECTIONS):
            address = process.address.replace("http", "ws", 1)
            socket: ClientConnection = await opened.enter_async_context(connect(f"{address}/ws"))
            await socket.send(json.dumps({"type": "hello", "session_id": f"socket {number}"}))
            assert json.loads(await socket.recv())["type"] == "ready"
        return (_resident(process) - before) / CONNECTIONS


def _resident(process: Process) -> float:
    """Megabytes."""
    lines = Path(f"/proc/{process.pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


# The page


def page(results: dict[str, Any]) -> str:
    facts = results["about"]
    when = (
        f"Measured {facts['date']} on {facts['machine']}, Python {facts['python']}, "
        f"load {facts['load']:.0f} by other work, {results['connections']} WebSockets for each store."
    )
    return "\n\n".join([when, _figures(results["stores"]), "### Default limits", _limits()])


def _figures(found: dict[str, dict[str, float]]) -> str:
    head = (
        "store", "turns", "turns/s with the load generator", "p50 / p99 (ms)", "CPU of a request (ms)",
        "with indexing (ms)", "requests/s of one core", "memory at start (MB)", "memory of a WebSocket (KB)",
    )  # fmt: skip
    rows = [(store, *_cells(one)) for store, one in found.items()]
    return table(head, rows)


def _cells(one: dict[str, float]) -> Iterator[str]:
    yield f"{one['turns']:,.0f}"
    yield f"{one['turns_a_second']:,.0f}"
    yield f"{one['p50']:.1f} / {one['p99']:.1f}"
    yield f"{one['cpu_ms']:.2f}"
    yield f"{one['cpu_with_index_ms']:.2f}"
    yield f"{1000 / one['cpu_with_index_ms']:,.0f}"
    yield f"{one['idle_mb']:.0f}"
    yield f"{one['connection_kb']:.0f}"


def _limits() -> str:
    defaults = ServerConfig()
    rows = [(f"`AFORESAID_{name.upper()}`", f"{getattr(defaults, name):,}") for name in LIMITS]
    return table(("setting", "default"), rows)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--owners", type=int, default=40)
    given.add_argument("--page", action="store_true", help="measure nothing; make the page anew")
    options = given.parse_args()
    file = RESULTS / "capacity.json"
    if not options.page:
        file.write_text(json.dumps(measured(options.owners), indent=1) + "\n", "utf-8")
    text = page(json.loads(file.read_text("utf-8")))
    print(text)
    PAGE.write_text(put_into(PAGE.read_text("utf-8"), text), "utf-8")


if __name__ == "__main__":
    main()
