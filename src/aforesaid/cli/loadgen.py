"""`aforesaid loadgen`: made-up load on a store of this machine, to see how it grows and how fast it is."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

import aforesaid
from aforesaid.cli.render import console
from aforesaid.cli.runtime import JsonOption, print_json, run
from aforesaid.testing.load import Grown, Load, check_near, generate

DEFAULT = Load()

Url = Annotated[
    str | None,
    typer.Option(
        "--url", "-u", help="A store on this machine; without it, a SQLite file that is removed again."
    ),
]


def loadgen(
    url: Url = None,
    owners: Annotated[int, typer.Option(help="Made-up owners.")] = DEFAULT.owners,
    conversations: Annotated[int, typer.Option(help="Of each owner.")] = DEFAULT.conversations,
    messages: Annotated[int, typer.Option(help="Of each conversation.")] = DEFAULT.messages,
    letters: Annotated[int, typer.Option(help="Of a message, on average.")] = DEFAULT.letters,
    at_once: Annotated[int, typer.Option(help="Conversations at the same time.")] = DEFAULT.at_once,
    rate: Annotated[float, typer.Option(help="Turns a second; 0: as many as go.")] = DEFAULT.rate,
    steps: Annotated[int, typer.Option(help="How often the store is weighed.")] = DEFAULT.steps,
    seed: Annotated[int, typer.Option(help="The same seed says the same words.")] = DEFAULT.seed,
    as_json: JsonOption = False,
) -> None:
    """Fill a store with made-up conversations, within bounds, and say how it grows and how fast it is."""

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
        return await _at(place, load)

    with _place(url) as place:
        grown = run(work)
    if as_json:
        print_json(grown)
    else:
        _show(grown)


@contextmanager
def _place(url: str | None) -> Iterator[str]:
    """The store, or a file for as long as this takes; never the one of the settings: that is somebody's."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="aforesaid-load-") as folder:
        yield f"sqlite:///{Path(folder) / 'load.db'}"


async def _at(url: str, load: Load) -> Grown:
    """The bare store: no layer, no sweep, nothing expires, words only."""
    check_near(url)
    async with aforesaid.open(url, resilience="off", sweep_every=None, ttl=None, embedder=None) as memory:
        return await generate(memory, url, load)


def _show(grown: Grown) -> None:
    table = Table("messages", "turns/s", "p50 ms", "p99 ms", "bytes a message")
    for step in grown.steps:
        size = sum(step.bytes.values()) / step.messages
        cells = (step.turns_a_second, step.p50, step.p99, size)
        table.add_row(f"{step.messages:,}", *(f"{cell:,.1f}" for cell in cells))
    console().print(table)
    for part, size in sorted(grown.parts.items(), key=lambda pair: -pair[1]):
        if size:
            console().print(f"{part}: {size:,.1f} bytes a message", markup=False)
