"""What the way through a server costs a call: `python -m benchmarks.client_overhead`.

The same calls on the same kind of store, one after the other: in this process, by a bare HTTP client against
the server, and by ours, awaiting and waiting. The server is a process of its own. Rounds alternate, so that
a machine that is busy for a while is so for all; the figures are medians.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx

import aforesaid
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.remote import Client, RemoteMemory

ROUNDS = 9
CALLS = 60
CALLED = ("get_conversation", "add_message", "load_context")

Timed = dict[tuple[str, str], list[float]]


@contextmanager
def running_server(folder: str) -> Iterator[str]:
    """`aforesaid serve` on a free port, without limits of its own; gives its URL."""
    command = [sys.executable, "-m", "aforesaid", "serve", "--port", "0", "--url", _store(folder)]
    unlimited = {f"AFORESAID_RATE_{kind}": "0" for kind in ("READ", "WRITE", "SEARCH")}
    log = Path(folder, "log")
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--log-level", "warning"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | unlimited,
        )
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        process.wait(30)


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    while process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {log.read_text()}")


def _store(folder: str) -> str:
    return f"sqlite:///{folder}/memory.db"


def _arguments(name: str, conversation_id: str) -> tuple[Any, ...]:
    said = ("user", "Is the back door locked?") if name == "add_message" else ()
    return (conversation_id, *said)


async def awaited(label: str, manager: ManagerProtocol, conversation_id: str, timed: Timed) -> None:
    for name in CALLED:
        method: Callable[..., Awaitable[Any]] = getattr(manager, name)
        for _ in range(CALLS):
            began = time.perf_counter()
            await method(*_arguments(name, conversation_id))
            timed.setdefault((name, label), []).append(time.perf_counter() - began)


def waited(label: str, client: Client, conversation_id: str, timed: Timed) -> None:
    manager = client.of("erin")
    for name in CALLED:
        for _ in range(CALLS):
            began = time.perf_counter()
            getattr(manager, name)(*_arguments(name, conversation_id))
            timed.setdefault((name, label), []).append(time.perf_counter() - began)


async def bare(client: httpx.AsyncClient, conversation_id: str, timed: Timed) -> None:
    """The same requests without anything of ours: what the network, the framework and httpx cost."""
    place = f"/v1/conversations/{conversation_id}"
    turn = {"messages": [{"role": "user", "content": "Is the back door locked?"}]}
    requests: dict[str, Callable[[], Awaitable[httpx.Response]]] = {
        "get_conversation": lambda: client.get(place),
        "add_message": lambda: client.post(f"{place}/turns", json=turn),
        "load_context": lambda: client.post(f"{place}/context", json={}),
    }
    for name in CALLED:
        for _ in range(CALLS):
            began = time.perf_counter()
            (await requests[name]()).raise_for_status()
            timed.setdefault((name, "bare HTTP"), []).append(time.perf_counter() - began)


async def measured(folder: str, url: str, rounds: int) -> Timed:
    timed: Timed = {}
    with Client(url) as client:
        async with (
            aforesaid.open(
                f"sqlite:///{folder}/embedded.db",
                retention=aforesaid.Retention(sweep_every=None),
                models=aforesaid.Models(embedder=None),
            ) as embedded,
            RemoteMemory(url) as remote,
            httpx.AsyncClient(base_url=url, headers={"aforesaid-owner": "erin"}) as plain,
        ):
            for number in range(rounds + 1):
                here, there = embedded.of("erin"), remote.of("erin")
                ours = await here.get_or_create_conversation(f"round {number}")
                theirs = await there.get_or_create_conversation(f"round {number}")
                await awaited("embedded", here, ours.id, timed)
                await bare(plain, theirs.id, timed)
                await awaited("awaiting", there, theirs.id, timed)
                await asyncio.to_thread(waited, "waiting", client, theirs.id, timed)
                if not number:
                    timed.clear()  # the first round warms everything up
    return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder, running_server(folder) as url:
        timed = asyncio.run(measured(folder, url, rounds))
    labels = ("embedded", "bare HTTP", "awaiting", "waiting")
    print(f"{'ms, median of ' + str(rounds * CALLS):<24}" + "".join(f"{label:>12}" for label in labels))
    for name in CALLED:
        cells = "".join(f"{median(timed[name, label]) * 1000:>12.2f}" for label in labels)
        print(f"{name:<24}{cells}")


if __name__ == "__main__":
    main()
