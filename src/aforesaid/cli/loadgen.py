"""`aforesaid loadgen`: generate load on a local store and measure growth and speed."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from aforesaid.cli.render import console
from aforesaid.cli.runtime import JsonOption, print_json, run
from aforesaid.layers.build import Layers
from aforesaid.memory.opening import open as open_memory
from aforesaid.memory.options import Models, Retention
from aforesaid.testing.load import Grown, Load, check_near, generate

DEFAULT = Load()

Url = Annotated[
    str | None,
    typer.Option("--url", "-u", help="A store on this machine. Default: a temporary SQLite file."),
]


def loadgen(
    url: Url = None,
    owners: Annotated[int, typer.Option(help="Number of owners.")] = DEFAULT.owners,
    conversations: Annotated[int, typer.Option(help="Conversations for each owner.")] = DEFAULT.conversations,
    messages: Annotated[int, typer.Option(help="Messages in each conversation.")] = DEFAULT.messages,
    letters: Annotated[int, typer.Option(help="Average characters in a message.")] = DEFAULT.letters,
    at_once: Annotated[int, typer.Option(help="Concurrent conversations.")] = DEFAULT.at_once,
    rate: Annotated[float, typer.Option(help="Turns per second; 0 means unlimited.")] = DEFAULT.rate,
    steps: Annotated[int, typer.Option(help="How often the size of the store is measured.")] = DEFAULT.steps,
    seed: Annotated[int, typer.Option(help="Seed of the generated text.")] = DEFAULT.seed,
    as_json: JsonOption = False,
) -> None:
    """Fill a store with generated conversations and print its growth and speed."""

    async def work() -> Grown:
        load = Load(
            owners=owners,
            conversations=conversations,
            messages=messages,
            letters=letters,
            at_once=at_once,
            rate=rate,
            steps=steps,
            seed=seed,
        )
        return await _generate(target, load)

    with _target_url(url) as target:
        grown = run(work)
    if as_json:
        print_json(grown)
    else:
        _show(grown)


@contextmanager
def _target_url(url: str | None) -> Iterator[str]:
    """Yield the URL, by default of a temporary file: the store of the settings holds real data."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="aforesaid-load-") as folder:
        yield f"sqlite:///{Path(folder) / 'load.db'}"


async def _generate(url: str, load: Load) -> Grown:
    """Generate the load on the bare store: no layers, no sweep, no expiry, no vectors."""
    check_near(url)
    async with open_memory(
        url,
        ttl=None,
        retention=Retention(sweep_every=None),
        layers=Layers(resilience="off"),
        models=Models(embedder=None),
    ) as memory:
        return await generate(memory, url, load)


def _show(grown: Grown) -> None:
    table = Table("messages", "turns/s", "p50 ms", "p99 ms", "bytes/message")
    for step in grown.steps:
        size = sum(step.bytes.values()) / step.messages
        cells = (step.turns_a_second, step.p50, step.p99, size)
        table.add_row(f"{step.messages:,}", *(f"{cell:,.1f}" for cell in cells))
    console().print(table)
    for part, size in sorted(grown.parts.items(), key=lambda pair: -pair[1]):
        if size:
            console().print(f"{part}: {size:,.1f} bytes/message", markup=False)
