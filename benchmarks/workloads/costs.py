"""W10: what a year costs, in storage and prompt tokens, for a stated household and a stated call centre.

Arithmetic on measured figures: bytes that a message takes on the disk, tokens that a request carries and the
share of them that a provider's prefix cache serves. Prices are parameters, of the order that is published.
"""

import tempfile
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct, structs

from benchmarks import prompt_cache
from benchmarks.peers.driving import Race
from benchmarks.peers.roster import Entrant
from benchmarks.workloads.size import Size


class Prices(Struct, frozen=True, kw_only=True):
    """In dollars."""

    input_tokens: float = 3.00
    """A million prompt tokens."""
    cached_tokens: float = 0.30
    """A million prompt tokens that the provider's cache serves."""
    storage: float = 0.10
    """A gigabyte of disk for a month."""


class Scenario(Struct, frozen=True, kw_only=True):
    """Who talks how much. A conversation ends after so many turns; everything is kept for the year."""

    name: str
    conversations: int
    """A year."""
    turns: int
    """Of a conversation."""
    shape: str
    """What a turn is like: a shape of `prompt_cache`."""


HOUSEHOLD = Scenario(name="household", conversations=3 * 365, turns=40, shape="mixed")
"""Three rooms, each with one conversation a day of forty turns."""
CALL_CENTRE = Scenario(name="call centre", conversations=200 * 30 * 250, turns=25, shape="tool-heavy")
"""Two hundred seats, thirty calls a day, 250 days; a call is twenty-five turns, most with tools."""
LONG_RUNNING = Scenario(
    name="household, one conversation a room", conversations=3, turns=40 * 365, shape="mixed"
)
"""The same household where a conversation never ends."""
SCENARIOS = (HOUSEHOLD, CALL_CENTRE, LONG_RUNNING)

SCHEMES = {
    "Aforesaid: 4,000 tokens": prompt_cache.SCHEMES["in blocks"],
    "oldest out first: 4,000 tokens": prompt_cache.SCHEMES["FIFO"],
    "last 20 messages": lambda entries: [one.message for one in (entries[0], *entries[1:][-20:])],
    "everything so far (the last 400 messages)": lambda entries: [one.message for one in entries],
}
"""What a request carries. The last three are what memories without a window by tokens hand over."""


def run(race: Race, size: Size, entrants: tuple[Entrant, ...], prices: Prices = Prices()) -> dict[str, Any]:  # noqa: B008
    """Measure the log and the window; this needs no other entrant."""
    with tempfile.TemporaryDirectory(dir=race.folder) as folder:
        kept = _bytes_a_message(Path(folder))
    return {
        "prices": structs.asdict(prices),
        "bytes_a_message": kept,
        "scenarios": {one.name: _costs(one, prices, kept) for one in SCENARIOS},
    }


def _costs(scenario: Scenario, prices: Prices, kept: float) -> dict[str, Any]:
    turns = min(scenario.turns, 400)
    messages = sum(len(turn) for turn in _turns(scenario, turns)) / turns * scenario.turns
    stored = kept * messages * scenario.conversations
    # What is stored grows evenly, so that half of it is paid for on average.
    storage = stored / 1e9 * prices.storage * 12 / 2
    return {
        **structs.asdict(scenario),
        "messages": messages * scenario.conversations,
        "stored_bytes": stored,
        "storage": storage,
        "prompts": {name: _prompts(scenario, scheme, turns, prices) for name, scheme in SCHEMES.items()},
    }


def _turns(scenario: Scenario, turns: int) -> list[prompt_cache.Turn]:
    random = Random(7)
    return [prompt_cache.SHAPES[scenario.shape](random, number) for number in range(turns)]


def _prompts(scenario: Scenario, scheme: prompt_cache.Scheme, turns: int, prices: Prices) -> dict[str, float]:
    """Of a year. A conversation that is longer than what was replayed goes on as it did once it was full."""
    whole, full = prompt_cache.replayed(prompt_cache.SHAPES[scenario.shape], scheme, turns)
    beyond = scenario.turns - turns
    served = full if full.requests else whole
    more = beyond * whole.requests / turns / max(1, served.requests)
    tokens = (whole.tokens + more * served.tokens) * scenario.conversations
    cached = (whole.cached + more * served.cached) * scenario.conversations
    dollars = ((tokens - cached) * prices.input_tokens + cached * prices.cached_tokens) / 1e6
    return {"tokens": tokens, "cached": cached, "dollars": dollars}


def _bytes_a_message(folder: Path) -> float:
    """Of the store that is the default, with its search index, once it holds some thousands."""
    from benchmarks.workloads.cold import filled_bytes

    return filled_bytes(folder, conversations=100, messages=50)
