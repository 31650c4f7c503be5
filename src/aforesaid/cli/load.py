"""Load generator: simulate owners in conversations to measure a store's growth and speed.

The load is bounded in size and concurrency and restricted to stores and servers on this machine. Texts derive
from a seed, so the same load produces the same texts.
"""

import asyncio
import ipaddress
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import accumulate, pairwise
from urllib.parse import urlsplit

from msgspec import Struct

from aforesaid.contracts import Measurable, Reindexable, capability
from aforesaid.errors import InvalidInput, InvalidSetting
from aforesaid.memory.interface import ManagerProtocol, MemoryProtocol
from aforesaid.model.conversations import check_count
from aforesaid.settings import masked_url
from aforesaid.stores.urls import is_server, parse_url

# Maximum messages of one load. Needs of a million owners are extrapolated from far fewer.
MOST_MESSAGES = 2_000_000
MOST_AT_ONCE = 256
MOST_LETTERS = 100_000
VOCABULARY = 20_000


class Load(Struct, frozen=True, kw_only=True):
    """The size of a load. Each turn of a conversation is a question and an answer."""

    owners: int = 100
    conversations: int = 5
    """Per owner."""
    messages: int = 20
    """Per conversation; an even number."""
    letters: int = 120
    """Average characters per message."""
    at_once: int = 16
    """Number of concurrent conversations."""
    rate: float = 0.0
    """Turns per second; 0 is unlimited."""
    steps: int = 4
    """Number of parts; the store is measured after each."""
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("owners", "conversations", "messages", "letters", "at_once", "steps"):
            check_count(getattr(self, name), field=name, least=1)
        _check(self.messages % 2 == 0, "messages", self.messages, "an even number: questions and answers")
        _check(self.at_once <= MOST_AT_ONCE, "at_once", self.at_once, f"{MOST_AT_ONCE} or less")
        _check(self.letters <= MOST_LETTERS, "letters", self.letters, f"{MOST_LETTERS:,} or less")
        _check(0 <= self.rate < 1e6, "rate", self.rate, "between 0 and a million turns a second")
        _check(self.in_all <= MOST_MESSAGES, "owners", self.owners, f"so many that there are {_BOUND}")
        _check(self.steps <= self.owners, "steps", self.steps, "no more than owners")

    @property
    def in_all(self) -> int:
        """Total number of messages."""
        return self.owners * self.conversations * self.messages


_BOUND = f"{MOST_MESSAGES:,} messages or less in all"


class Step(Struct, frozen=True, kw_only=True):
    """Measurements after one part of the load."""

    messages: int
    """Total so far."""
    seconds: float
    """Duration of this part."""
    turns_a_second: float
    p50: float
    """Milliseconds per turn."""
    p99: float
    bytes: Mapping[str, int]
    """Growth of each part of the store since the start."""


class Grown(Struct, frozen=True, kw_only=True):
    """The growth of the store."""

    messages: int
    turns_a_second: float
    bytes_a_message: float
    """Total bytes per message, from the slope of the last half, which excludes fixed costs."""
    parts: Mapping[str, float]
    """Bytes per message of each part, from the same slope."""
    steps: tuple[Step, ...]


async def generate(
    memory: MemoryProtocol, url: str, load: Load, progress: Callable[[int], None] | None = None
) -> Grown:
    """Run the load and measure the store as it grows. The memory must be opened from this URL without
    layers. The size of the store behind a server is unknown. `progress` is called with the number of
    messages stored so far.
    """
    check_near(url)
    # The store may contain data already; only growth counts.
    before = await _disk_usage(memory, url)
    steps: list[Step] = []
    for owners in _parts(load):
        messages = len(owners) * load.conversations * load.messages
        begin = time.perf_counter()
        durations = await _run_conversations(memory, load, owners, _after(steps, progress))
        seconds = time.perf_counter() - begin
        after = await _indexed_size(memory, url)
        steps.append(_step(steps, messages, seconds, durations, _growth(after, before)))
    return _result(steps)


async def _indexed_size(memory: MemoryProtocol, url: str) -> Mapping[str, int]:
    """Return the size after indexing everything, because some indexing waits for idle time."""
    if is_server(url):
        return {}
    reindexable = capability(memory.backend, Reindexable)
    if reindexable is not None and parse_url(url).options.get("search") != "off":
        await reindexable.reindex()
    return await _disk_usage(memory, url)


async def _disk_usage(memory: MemoryProtocol, url: str) -> Mapping[str, int]:
    """Return the bytes of each part of the store; the in-memory store has none."""
    if is_server(url):
        return {}
    measurable = capability(memory.backend, Measurable)
    return {} if measurable is None else await measurable.disk_usage()


def check_near(url: str) -> None:
    """Refuse a store or server on another machine."""
    for host in _hosts(url):
        if not _is_near(host):
            raise InvalidSetting(
                f"the load generator only works on this machine; {masked_url(url)} is at {host}",
                field="url",
                value=host,
            )


def _hosts(url: str) -> list[str]:
    if is_server(url):
        return [urlsplit(url).netloc.rpartition("@")[2]]
    address = parse_url(url)
    named = [part.rpartition("@")[2] for part in address.host.split(",")]
    # PostgreSQL also takes the host from options of the URL, also several hosts.
    return named + [
        address.options[name] for name in ("host", "hostaddr", "service") if name in address.options
    ]


def _is_near(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    if name in ("", "localhost") or name.startswith("/"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _check(holds: bool, field: str, value: object, wanted: str) -> None:
    if not holds:
        raise InvalidInput(f"{field} must be {wanted}; got {value!r}", field=field, value=value)


def _parts(load: Load) -> Iterator[range]:
    """Yield the owners of each step."""
    bounds = [load.owners * step // load.steps for step in range(load.steps + 1)]
    return (range(start, end) for start, end in pairwise(bounds))


def _after(steps: list[Step], progress: Callable[[int], None] | None) -> Callable[[int], None]:
    """Return a function that takes the number of turns of the next step."""
    before = steps[-1].messages if steps else 0
    return lambda turns: None if progress is None else progress(before + 2 * turns)


async def _run_conversations(
    memory: MemoryProtocol, load: Load, owners: range, progress: Callable[[int], None]
) -> list[float]:
    """Run all conversations of these owners concurrently and return the seconds of each turn."""
    # Owners in turn, as on a real server: one owner after another would keep the same pages hot.
    waiting = iter([(owner, number) for number in range(load.conversations) for owner in owners])
    pace = _Pace(load.rate)
    durations: list[float] = []

    async def converse() -> None:
        for owner, number in waiting:
            durations.extend(
                await _conversation(memory.of(f"load {load.seed} {owner}"), load, owner, number, pace)
            )
            progress(len(durations))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(load.at_once):
            tasks.create_task(converse())
    return durations


async def _conversation(
    manager: ManagerProtocol, load: Load, owner: int, number: int, pace: "_Pace"
) -> list[float]:
    conversation = await manager.get_or_create_conversation(f"load {number}")
    texts = _TextGenerator(f"{load.seed} {owner} {number}", load.letters)
    durations = []
    for _ in range(load.messages // 2):
        # Generated before the clock starts: only the store is measured.
        question, answer = texts.text(), texts.text()
        await pace.due()
        begin = time.perf_counter()
        async with manager.turn(conversation.id) as turn:
            turn.user(question)
            turn.assistant(answer)
        durations.append(time.perf_counter() - begin)
    return durations


class _Pace:
    """Schedules turns at a rate. Late turns are not compensated by a burst."""

    def __init__(self, rate: float) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._next = time.monotonic()

    async def due(self) -> None:
        if self._gap:
            now = time.monotonic()
            wait, self._next = self._next - now, max(self._next, now) + self._gap
            await asyncio.sleep(max(0.0, wait))


@cache
def _language() -> tuple[list[str], list[float]]:
    """Return words and their cumulative frequencies, distributed as in speech."""
    syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "en", "or")]
    # A fixed seed: runs on different days compare the same words.
    chance = random.Random(20261116)
    words = ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(VOCABULARY)]
    # Zipf's law. Uniform words would give the full-text index an unrealistic size.
    return words, list(accumulate(1 / (rank + 3) for rank in range(VOCABULARY)))


class _TextGenerator:
    """Generates the texts of one conversation."""

    def __init__(self, seed: str, letters: int) -> None:
        self._chance = random.Random(seed)
        self._letters = letters

    def text(self) -> str:
        words, frequencies = _language()
        length = self._chance.randint(self._letters // 2, self._letters * 3 // 2) or 1
        text = " ".join(self._chance.choices(words, cum_weights=frequencies, k=length // 5 + 1))
        return text[:length]


def _growth(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: size - before.get(name, 0) for name, size in after.items()}


def _step(
    steps: list[Step], messages: int, seconds: float, durations: list[float], sizes: Mapping[str, int]
) -> Step:
    # A single duration has no quantiles.
    cuts = statistics.quantiles(durations, n=100) if len(durations) > 1 else durations * 99
    return Step(
        messages=messages + (steps[-1].messages if steps else 0),
        seconds=seconds,
        turns_a_second=messages / 2 / seconds,
        p50=cuts[49] * 1e3,
        p99=cuts[98] * 1e3,
        bytes=sizes,
    )


def _result(steps: list[Step]) -> Grown:
    last, middle = steps[-1], steps[(len(steps) - 1) // 2]
    seconds = sum(step.seconds for step in steps)
    if middle is last:
        rise, since = last.messages, dict.fromkeys(last.bytes, 0)
    else:
        rise, since = last.messages - middle.messages, dict(middle.bytes)
    parts = {name: (size - since.get(name, 0)) / rise for name, size in last.bytes.items()}
    return Grown(
        messages=last.messages,
        turns_a_second=last.messages / 2 / seconds,
        bytes_a_message=sum(parts.values()),
        parts=parts,
        steps=tuple(steps),
    )
