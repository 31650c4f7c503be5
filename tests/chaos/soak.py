"""The soak: a server under mixed load for a long time. Memory, file handles and latency must stay flat.

    python -m tests.chaos.soak [--minutes 60] [--rate 12] [--store sqlite|postgres] [--every 10] [--plot FILE]

A server runs as a process of its own. Clients store turns, read windows, search, list, watch and erase at a
steady rate, so that the store keeps its size. Every so many seconds a line is printed: the server's resident
memory, open files and processor time, and the latencies since the last line, beside the floor: some bytes
appended to a file and synced, by a thread. The floor tells a slow machine from a slow Aforesaid.

At the end the last sixth is compared with the second one, and the p99 of each operation with its p50. Exit 1
when something has grown, an operation failed, or a p99 is ten times its p50.
"""

import argparse
import asyncio
import os
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from msgspec import Struct

import aforesaid
from aforesaid.remote import RemoteManager, RemoteMemory
from tests.servers.postgres import Databases, PostgresServer
from tests.servers.running import server

CLIENTS = 8
CONVERSATIONS = 10
"""Of each client."""
MIX = (
    *("turn", "window", "turn", "list", "turn", "window", "turn", "search", "turn", "window") * 3,
    *("turn", "watch", "turn", "window", "turn", "search", "turn", "watch", "turn", "erase"),
)
MOST_GROWTH = {"memory": 1.1, "files": 1.1, "latency over floor": 1.3, "processor": 1.3}
"""How much larger the last sixth may be than the second. Time has a noisy machine to live with."""
MOST_SPREAD = 10
"""How many times its p50 the p99 of an operation may be."""
UNLIMITED = {f"AFORESAID_RATE_{kind}": "0" for kind in ("READ", "WRITE", "SEARCH", "ASK")}
LONGEST_WAIT = 60


class Sample(Struct, frozen=True, kw_only=True):
    """How it was at one moment."""

    seconds: float
    memory: float
    """Resident memory of the server, in MB."""
    files: int
    p50: float
    """Milliseconds of a turn."""
    p99: float
    floor: float
    """Milliseconds of the floor, median."""
    processor: float
    """Milliseconds of the server's processor time for one operation."""
    operations: int


class Measured:
    """Durations by operation, in seconds, and errors."""

    def __init__(self) -> None:
        self.durations: dict[str, list[float]] = defaultdict(list)
        self.errors: Counter[str] = Counter()

    @property
    def operations(self) -> int:
        return sum(map(len, self.durations.values()))

    async def timed(self, kind: str, work: Coroutine[Any, Any, Any]) -> Any:
        started = time.monotonic()
        result = await work
        self.durations[kind].append(time.monotonic() - started)
        return result


class Client:
    """One owner in several conversations, one operation after another, and a guest who comes and goes."""

    def __init__(self, number: int, memory: RemoteMemory, measured: Measured) -> None:
        self._number, self._measured = number, measured
        self._manager: RemoteManager = memory.of(f"owner {number}")
        self._guest: RemoteManager = memory.of(f"guest {number}")
        self._spoken = self._erased = 0

    async def run(self, rate: float, until: float) -> None:
        begin, step = time.monotonic() + self._number / CLIENTS / rate, 0
        while time.monotonic() < until:
            await asyncio.sleep(max(0.0, begin + step / rate - time.monotonic()))
            kind = MIX[(step + self._number * 5) % len(MIX)]
            try:
                await getattr(self, f"_{kind}")()
            except (aforesaid.AforesaidError, OSError, AssertionError) as error:
                self._measured.errors[f"{kind}: {type(error).__name__}: {error}"[:300]] += 1
                print(f"{kind} failed: {error!r}", flush=True)
            step += 1

    async def _current(self, number: int) -> str:
        # Conversations come and go: the oldest is erased, and its place is taken by a new one.
        place = number % CONVERSATIONS
        born = ((self._erased + 1) // 2 - place + CONVERSATIONS - 1) // CONVERSATIONS
        return (await self._manager.get_or_create_conversation(f"session {place} of {born}")).id

    async def _said(self, conversation: str) -> None:
        self._spoken += 1
        async with self._manager.turn(conversation) as said:
            said.user(f"What is the {self._spoken}th thing that I have asked client {self._number}?")
            said.assistant(f"This is: {'x' * (self._spoken % 400)}")

    async def _turn(self) -> None:
        conversation = await self._current(self._spoken)
        await self._measured.timed("turn", self._said(conversation))

    async def _window(self) -> None:
        conversation = await self._current(self._spoken - 1)
        await self._measured.timed("window", self._manager.load_context(conversation))

    async def _search(self) -> None:
        found = await self._measured.timed("search", self._manager.search(f"{self._spoken}th"))
        if self._spoken and not found.passages:
            again = await self._manager.search(f"{self._spoken}th", min_relevance=0, explain=True)
            raise AssertionError(f"nothing found for {self._spoken}th: {found!r}; then {again!r}")

    async def _list(self) -> None:
        page = await self._measured.timed("list", self._manager.list(limit=20))
        assert page, "an empty list"

    async def _watch(self) -> None:
        """Open a watch, store a turn, and wait for the change."""
        conversation = await self._current(self._spoken)
        async with self._manager.watch(conversation) as changes:
            started = time.monotonic()
            await self._said(conversation)
            async with asyncio.timeout(LONGEST_WAIT):
                change = await anext(changes)
            self._measured.durations["watch"].append(time.monotonic() - started)
            assert change.conversation_id == conversation

    async def _erase(self) -> None:
        """Erase the oldest conversation, and every other time all data of a guest."""
        if self._erased % 2:
            guest = await self._guest.get_or_create_conversation("visit")
            await self._guest.add_message(guest.id, "user", "Please forget me again.")
            receipt = await self._measured.timed("erase owner", self._guest.erase())
        else:
            oldest = await self._current(self._erased // 2)
            receipt = await self._measured.timed("erase", self._manager.erase(oldest))
        self._erased += 1
        assert receipt.erased, receipt
        assert not receipt.remains, receipt


class Window:
    """What is measured between two samples."""

    def __init__(self, measured: Measured, process: int) -> None:
        self.turns, self.floors = len(measured.durations["turn"]), len(measured.durations["floor"])
        self.operations, self.processor = measured.operations, _processor(process)


async def soak(
    address: str, process: int, folder: Path, given: argparse.Namespace
) -> tuple[list[Sample], Measured]:
    measured, begin = Measured(), time.monotonic()
    until = begin + given.minutes * 60
    samples: list[Sample] = []
    async with aforesaid.connect(address) as memory, asyncio.TaskGroup() as tasks:
        for number in range(CLIENTS):
            client = Client(number, memory, measured)
            tasks.create_task(client.run(given.rate / CLIENTS, until))
        with (folder / "floor").open("ab", buffering=0) as floor:
            window, due = Window(measured, process), begin + given.every
            while due < until:
                while time.monotonic() < due:
                    await asyncio.sleep(0.5)
                    await measured.timed("floor", asyncio.to_thread(_append, floor))
                samples.append(_sample(time.monotonic() - begin, window, measured, process))
                print(_line(samples[-1]), flush=True)
                window, due = Window(measured, process), due + given.every
    return samples, measured


def _append(file: FileIO) -> None:
    file.write(b"x" * 512)
    os.fdatasync(file.fileno())


def _quantile(durations: list[float], hundredth: int) -> float:
    """Milliseconds."""
    cuts = statistics.quantiles(durations, n=100) if len(durations) > 1 else durations * 99
    return cuts[hundredth - 1] * 1000 if cuts else 0.0


def _sample(seconds: float, window: Window, measured: Measured, process: int) -> Sample:
    turns = measured.durations["turn"][window.turns :]
    operations = measured.operations - window.operations
    return Sample(
        seconds=seconds,
        memory=_resident(process) / 1024**2,
        files=len(os.listdir(f"/proc/{process}/fd")),
        p50=_quantile(turns, 50),
        p99=_quantile(turns, 99),
        floor=_quantile(measured.durations["floor"][window.floors :], 50),
        processor=(_processor(process) - window.processor) / max(1, operations) * 1000,
        operations=measured.operations,
    )


def _resident(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()


def _processor(process: int) -> float:
    """Seconds of processor time of all threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _line(sample: Sample) -> str:
    return (
        f"{sample.seconds:7.0f} s  {sample.operations:9,} operations  {sample.memory:7.1f} MB  "
        f"{sample.files:4} files  turn p50 {sample.p50:6.2f} ms  p99 {sample.p99:7.2f} ms  "
        f"floor {sample.floor:6.2f} ms  processor {sample.processor:5.2f} ms"
    )


def growth(samples: list[Sample]) -> dict[str, float]:
    """The last sixth over the second one: the first is warming up. Of an hour these are ten minutes each."""
    sixth = max(1, len(samples) // 6)
    early, late = samples[sixth : 2 * sixth], samples[-sixth:]

    def ratio(measure: Callable[[Sample], float]) -> float:
        return statistics.median(map(measure, late)) / statistics.median(map(measure, early))

    return {
        "memory": ratio(lambda sample: sample.memory),
        "files": ratio(lambda sample: sample.files),
        "latency over floor": ratio(lambda sample: sample.p50 / sample.floor),
        "processor": ratio(lambda sample: sample.processor),
    }


def judged(samples: list[Sample], measured: Measured) -> bool:
    """Print the results; return whether all of them are as they must be."""
    well = not measured.errors
    for kind, durations in sorted(measured.durations.items()):
        p50, p99 = _quantile(durations, 50), _quantile(durations, 99)
        well &= kind == "floor" or p99 < MOST_SPREAD * p50
        print(f"{kind:12} {len(durations):8,}  p50 {p50:7.2f} ms  p99 {p99:8.2f} ms  {p99 / p50:5.1f} times")
    grown = growth(samples)
    print("the last sixth over the second:", {name: round(ratio, 3) for name, ratio in grown.items()})
    print(f"errors: {sum(measured.errors.values())}", dict(measured.errors))
    return well and all(ratio <= MOST_GROWTH[name] for name, ratio in grown.items())


ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("MB resident", ("memory",)),
    ("ms a turn, median; grey: the floor", ("p50", "floor")),
    ("ms of the server's processor time an operation", ("processor",)),
)
WIDTH, HEIGHT = 720, 200


def plot(samples: list[Sample]) -> str:
    """Memory, latency and processor time over time, as a picture that needs no library."""
    size = f'viewBox="0 0 {WIDTH} {HEIGHT * len(ROWS)}" font-family="sans-serif" font-size="11"'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect width="100%" height="100%" fill="white"/>'
    rows = [line for row in range(len(ROWS)) for line in _row(samples, row)]
    return "\n".join([begin, *rows, "</svg>\n"])


def _row(samples: list[Sample], row: int) -> Iterator[str]:
    label, fields = ROWS[row]
    end, base = samples[-1].seconds, row * HEIGHT + 180
    top = max(getattr(sample, field) for sample in samples for field in fields) * 1.2
    for field, colour in zip(fields, ("#1f6f8b", "#999"), strict=False):
        points = " ".join(
            f"{40 + (WIDTH - 60) * s.seconds / end:.1f},{base - 150 * getattr(s, field) / top:.1f}"
            for s in samples
        )
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    yield f'<text x="40" y="{base - 162}">{label}, 0 to {top:.1f}, over {end / 60:.0f} min</text>'
    yield f'<line x1="40" y1="{base}" x2="{WIDTH - 20}" y2="{base}" stroke="#999"/>'


@contextmanager
def _store(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/memory.db"
        return
    # As in operation: what is acknowledged is on the disk.
    postgres = PostgresServer("fsync=on", "full_page_writes=on")
    postgres.start()
    try:
        yield Databases(postgres.url).new()
    finally:
        postgres.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=12, help="operations per second")
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="aforesaid-soak-") as name,
        _store(given.store, Path(name)) as url,
    ):
        running = server(Path(name), url, **UNLIMITED)
        running.start()
        try:
            samples, measured = asyncio.run(soak(running.address, running.pid, Path(name), given))
        finally:
            running.stop()
    if given.plot:
        given.plot.write_text(plot(samples))
    return 0 if judged(samples, measured) else 1


if __name__ == "__main__":
    sys.exit(main())
