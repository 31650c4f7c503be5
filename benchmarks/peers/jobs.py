"""What is measured, from inside the process of the memory that is measured. Each job gives plain JSON.

Above: the worker. Below: the contract, the yardstick. Standard library only.
"""

import asyncio
import json
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.peers.contract import BlockingPeer, Peer
from benchmarks.peers.texts import history, turn
from benchmarks.peers.yardstick import SQLiteYardstick

Figures = dict[str, Any]
Job = Callable[..., Awaitable[Figures]]

RUN = 20
"""Steps in a row before the yardstick has its turn."""
ENOUGH = 200
"""Samples of each kind."""
COUNTED = 20
"""Turns over which written bytes are counted."""
TOO_SLOW = 0.35
"""Seconds of a step at one size from which on the next size, ten times as long, is left out."""


async def growth(
    peer: Peer, place: str, folder: str, *, sizes: Sequence[int], seconds: float, fresh: bool
) -> Figures:
    """One more turn, and a window, at several lengths of a conversation (W1, W2)."""
    await peer.open(place)
    yardstick = SQLiteYardstick(Path(folder) / "yardstick.db")
    rows: list[Figures] = []
    for size in sizes:
        rows.append(await _at_size(peer, yardstick, size, seconds, fresh=fresh))
        if _slowest(rows[-1]) > TOO_SLOW:
            break
    yardstick.close()
    await peer.close()
    left_out = list(sizes[len(rows) :])
    return {"rows": rows, "left_out": left_out}


async def _at_size(
    peer: Peer, yardstick: SQLiteYardstick, size: int, seconds: float, *, fresh: bool
) -> Figures:
    grower = _Grower(peer, size)
    first = await grower.session()
    steps: dict[str, Callable[[], Awaitable[object]]] = {
        "turn": lambda: grower.turn(fresh=fresh),
        "yardstick": lambda: _turn_of(yardstick),
        "window": lambda: peer.window(first, fresh=fresh),
    }
    if peer.has_budget:
        steps["fitting"] = lambda: peer.fitting(first)
    times = await _alternating(steps, seconds, prepare=grower.prepare)
    figures = {name: summary(taken) for name, taken in times.items()}
    window = await peer.window(first, fresh=fresh)
    written = await _written(peer, grower, fresh=fresh)
    return {"size": size, "grown_in": grower.seconds, "in_window": len(window), "written": written, **figures}


class _Grower:
    """Conversations of one length: each takes only a few turns before another has to serve, so that what is
    measured at ten messages is not a conversation of four hundred."""

    def __init__(self, peer: Peer, size: int) -> None:
        self._peer = peer
        self._size = size
        self._most = max(5, size // 20)
        self._turns = 0
        self._numbers = count()
        self._session = ""
        self.seconds = 0.0

    async def session(self) -> str:
        self._session = f"n{self._size}s{next(self._numbers)}"
        self._turns = 0
        begin = time.perf_counter()
        await self._peer.grow(self._session, history(self._size))
        self.seconds += time.perf_counter() - begin
        return self._session

    async def prepare(self) -> None:
        if self._turns >= self._most:
            await self.session()
            await self.turn(fresh=False)

    async def turn(self, *, fresh: bool) -> None:
        self._turns += 1
        question, answer = turn(f"t{self._turns}", self._turns)
        await self._peer.append_turn(self._session, question, answer, fresh=fresh)


async def _turn_of(yardstick: SQLiteYardstick) -> None:
    yardstick.turn("yardstick", *turn("y"))


async def _alternating(
    steps: dict[str, Callable[[], Awaitable[object]]],
    seconds: float,
    *,
    prepare: Callable[[], Awaitable[None]],
) -> dict[str, list[float]]:
    """Seconds of each step, in short runs that alternate, until there are enough or the time is over."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    deadline = time.perf_counter() + seconds
    for step in steps.values():
        await step()
    while len(times["turn"]) < ENOUGH and (time.perf_counter() < deadline or len(times["turn"]) < 3):
        for name, step in steps.items():
            times[name] += await _run(step, prepare if name == "turn" else None, deadline)
    return times


async def _run(
    step: Callable[[], Awaitable[object]], prepare: Callable[[], Awaitable[None]] | None, deadline: float
) -> list[float]:
    taken: list[float] = []
    while len(taken) < RUN and (not taken or time.perf_counter() < deadline):
        if prepare is not None:
            await prepare()
        begin = time.perf_counter()
        await step()
        taken.append(time.perf_counter() - begin)
    return taken


def summary(seconds: Sequence[float]) -> Figures:
    """Median, quietest tenth, 99th percentile where there are samples enough, and how many there are."""
    quiet = sorted(seconds)[len(seconds) // 10]
    p99 = statistics.quantiles(seconds, n=100)[98] if len(seconds) >= 100 else None
    return {"p50": statistics.median(seconds), "p10": quiet, "p99": p99, "samples": len(seconds)}


def _slowest(row: Figures) -> float:
    return float(max(row["turn"]["p50"], row["window"]["p50"]))


async def _written(peer: Peer, grower: _Grower, *, fresh: bool) -> float:
    """Bytes that a turn writes. Fewer turns are counted where one takes long."""
    begin = time.perf_counter()
    before, turns = await peer.written(), 0
    while turns < COUNTED and (turns < 2 or time.perf_counter() - begin < 2):
        await grower.turn(fresh=fresh)
        turns += 1
    return (await peer.written() - before) / turns


async def together(
    peer: Peer, place: str, folder: str, *, conversations: int, seconds: float, threads: bool
) -> Figures:
    """Many conversations at once: turns a second, beside the yardstick alone just before and after (W3)."""
    await peer.open(place)
    if isinstance(peer, BlockingPeer):
        peer.threads = threads
    yardstick = SQLiteYardstick(Path(folder) / "yardstick.db")
    names = [f"c{number}" for number in range(conversations)]
    await _each_says(peer, names, most=2, until=time.perf_counter() + seconds)
    before = _rate(yardstick)
    begin = time.perf_counter()
    done, errors = await _each_says(peer, names, most=None, until=begin + seconds)
    rate = done / (time.perf_counter() - begin)
    floor = (before + _rate(yardstick)) / 2
    await peer.close()
    return {"turns_a_second": rate, "floor": floor, "ratio": rate / floor, "errors": errors}


async def _each_says(peer: Peer, names: Sequence[str], *, most: int | None, until: float) -> tuple[int, int]:
    """Turns done and refused, by one task for each conversation."""

    async def talk(name: str) -> tuple[int, int]:
        done = errors = 0
        while time.perf_counter() < until and (most is None or done + errors < most):
            said, refused = await _try(peer, name, f"{name}x{done}", done, fresh=False)
            done, errors = done + said, errors + refused
            # A blocking memory would never let the others speak.
            await asyncio.sleep(0)
        return done, errors

    totals = await asyncio.gather(*map(talk, names))
    return sum(done for done, _ in totals), sum(errors for _, errors in totals)


async def _try(peer: Peer, session: str, name: str, number: int, *, fresh: bool) -> tuple[int, int]:
    question, answer = turn(name, number)
    try:
        await peer.append_turn(session, question, answer, fresh=fresh)
    except Exception as error:  # noqa: BLE001  whatever a memory raises is a turn that it refused
        print(f"{type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return 0, 1
    return 1, 0


def _rate(yardstick: SQLiteYardstick, turns: int = 300) -> float:
    begin = time.perf_counter()
    for number in range(turns):
        yardstick.turn("rate", *turn("y", number))
    return turns / (time.perf_counter() - begin)


async def shared(
    peer: Peer, place: str, folder: str, *, who: str, tasks: int, turns: int, seconds: float
) -> Figures:
    """Several tasks in one conversation, each turn a request of its own; which were acknowledged (W4)."""
    await peer.open(place)
    if isinstance(peer, BlockingPeer):
        peer.threads = tasks > 1
    _say_ready_and_wait()
    acknowledged: list[str] = []
    errors = 0
    until = time.perf_counter() + seconds

    async def speak(task: int) -> None:
        nonlocal errors
        for number in range(turns):
            if time.perf_counter() > until:
                return
            name = f"{who}t{task}n{number}"
            said, refused = await _try(peer, "shared", name, number, fresh=True)
            acknowledged.extend([name] * said)
            errors += refused

    await asyncio.gather(*map(speak, range(tasks)))
    await peer.close()
    return {"acknowledged": acknowledged, "errors": errors}


def _say_ready_and_wait() -> None:
    """So that processes begin together, whatever their imports took."""
    print("ready", flush=True)
    sys.stdin.readline()


async def beginning(peer: Peer, place: str, folder: str) -> Figures:
    """The first turn of the conversation that others then share."""
    await peer.open(place)
    await peer.append_turn("shared", *turn("h0"))
    await peer.close()
    return {}


async def until_killed(peer: Peer, place: str, folder: str, *, who: str) -> Figures:
    """Store turns and print each one once it is acknowledged, until this process is killed (W5)."""
    await peer.open(place)
    for number in count():
        question, answer = turn(f"{who}n{number}", number)
        await peer.append_turn("shared", question, answer)
        print(f"{who}n{number}", flush=True)
    return {}


async def everything(peer: Peer, place: str, folder: str) -> Figures:
    """All that the shared conversation holds, and how long it took to open it."""
    begin = time.perf_counter()
    await peer.open(place)
    texts = await peer.everything("shared")
    seconds = time.perf_counter() - begin
    await peer.close()
    return {"texts": texts, "seconds": seconds}


async def fill(
    peer: Peer, place: str, folder: str, *, conversations: int, messages: int, seconds: float
) -> Figures:
    """Many conversations, as many as the time allows (W6)."""
    await peer.open(place)
    said, begin, done = history(messages), time.perf_counter(), 0
    while done < conversations and time.perf_counter() - begin < seconds:
        await peer.grow(f"w{done}", said)
        done += 1
    took = time.perf_counter() - begin
    await peer.close()
    return {"conversations": done, "seconds": took}


async def cold(peer: Peer, place: str, folder: str, *, session: str) -> Figures:
    """A process that starts on what is there: until the store is open, until the first window (W6)."""
    begin = time.perf_counter()
    peer.load()
    loaded = time.perf_counter()
    before = _resident()
    await peer.open(place)
    opened = time.perf_counter()
    window = await peer.window(session)
    shown = time.perf_counter()
    resident = _resident()
    await peer.close()
    begun_again = time.perf_counter()
    again = type(peer)()
    await again.open(place)
    opened_again = time.perf_counter()
    await again.close()
    return {
        "again": opened_again - begun_again,
        "import": loaded - begin,
        "open": opened - loaded,
        "first_window": shown - opened,
        "in_window": len(window),
        "resident": resident,
        "resident_before": before,
    }


async def windows(peer: Peer, place: str, folder: str, *, histories: str, most: int) -> Figures:
    """Windows over histories that are in a file, and how long each took (W8)."""
    await peer.open(place)
    taken, found = [], []
    for number, items in enumerate(json.loads(Path(histories).read_text("utf-8"))):
        await peer.remember(f"x{number}", items)
        begin = time.perf_counter()
        found.append(await peer.recent(f"x{number}", most))
        taken.append(time.perf_counter() - begin)
    await peer.close()
    return {"windows": found, **summary(taken)}


async def turns(peer: Peer, place: str, folder: str, *, number: int, size: int, fresh: bool) -> Figures:
    """Store `number` turns and nothing else; the parent process counts system calls."""
    await peer.open(place)
    await peer.grow("counted", history(size))
    for at in range(number):
        question, answer = turn(f"c{at}", at)
        await peer.append_turn("counted", question, answer, fresh=fresh)
    await peer.close()
    return {}


def _resident() -> int:
    """Bytes of memory in use, code included."""
    with open("/proc/self/statm", encoding="ascii") as line:
        return int(line.read().split()[1]) * resource.getpagesize()


JOBS: dict[str, Job] = {
    job.__name__: job
    for job in (growth, together, beginning, shared, until_killed, everything, fill, cold, windows, turns)
}
