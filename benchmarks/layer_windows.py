"""A window through each layer, relative to one without: `python -m benchmarks.layer_windows [--rounds 500]`.

On SQLite, in one run: the last 20 messages through the manager, after a turn. The layers alternate. The ratio
is the median of the ratios of each round, in which the load of a shared machine cancels out.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from operator import truediv
from pathlib import Path

import aforesaid
from aforesaid.encryption import MasterKeys
from aforesaid.layers.cached import Cache
from aforesaid.layers.encrypted import Encryption
from aforesaid.layers.resilient import Resilience
from benchmarks.encryption import WINDOW, filled, turn

PLAIN = "plain"
ROUNDS = 500


def layers(folder: Path) -> dict[str, aforesaid.Layers]:
    """Return each layer alone."""
    encryption = Encryption(master=MasterKeys(bytes(range(32))), records=True)
    resilience = Resilience(folder=folder / "spool")
    return {
        PLAIN: aforesaid.Layers(cache="off", resilience="off"),
        "audited": aforesaid.Layers(cache="off", resilience="off", audit=folder / "audit.jsonl"),
        "encrypted": aforesaid.Layers(cache="off", resilience="off", encryption=encryption),
        "cached": aforesaid.Layers(cache=Cache(), resilience="off"),
        "resilient": aforesaid.Layers(cache="off", resilience=resilience),
        "timed": aforesaid.Layers(cache="off", resilience="off", timed=True),
    }


async def measure(rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Return the median of a window through each layer in seconds, and relative to the plain one."""
    spent: dict[str, list[float]] = {}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        handles, ids = {}, {}
        for name, one in layers(folder).items():
            memory = aforesaid.open(
                f"sqlite:///{folder}/{name}.db",
                retention=aforesaid.Retention(sweep_every=None),
                layers=one,
                models=aforesaid.Models(embedder=None),
            )
            handles[name] = (await stack.enter_async_context(memory)).of("erin")
            ids[name] = await filled(handles[name])
            spent[name] = []
        names = list(handles)
        for number in range(rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                await handles[name].append(ids[name], turn())
                begin = time.perf_counter()
                await handles[name].load_context(ids[name], policy=WINDOW)
                spent[name].append(time.perf_counter() - begin)
    return {
        name: {
            "p50": statistics.median(times),
            "ratio": statistics.median(map(truediv, times, spent[PLAIN])),
        }
        for name, times in spent.items()
    }


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--rounds", type=int, default=ROUNDS)
    for name, one in asyncio.run(measure(given.parse_args().rounds)).items():
        print(f"{name:<10} {one['p50'] * 1e6:7.0f} µs   {one['ratio']:5.2f} x")


if __name__ == "__main__":
    main()
