"""How each store grows, measured with the load generator, and what that means for a million owners.

    python -m benchmarks.slopes [--owners 400] [--page]

Writes `benchmarks/results/slopes.json` and the tables of `docs/internals/growth.md`. PostgreSQL is measured
as it is,
with its sixteen partitions, and with one that holds everything.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from tests.servers.postgres import Databases, PostgresServer
from tests.servers.redis import running, running_cluster

import aforesaid
from aforesaid.cli.load import Grown, Load, generate
from benchmarks.__main__ import RESULTS, about
from benchmarks.peers.environments import ROOT
from benchmarks.report.numbers import size, table
from benchmarks.report.writing import put_into

PAGE = ROOT / "docs" / "internals" / "growth.md"
CONVERSATIONS, MESSAGES = 4, 25 * 2
JSON_OWNERS = 5
"""The file is written anew for every commit: a few owners say enough."""
ONE_PARTITION = """
DO $$
BEGIN
    FOR part IN 0..15 LOOP
        EXECUTE format('DROP TABLE aforesaid.messages_%s', lpad(part::text, 2, '0'));
    END LOOP;
    CREATE TABLE aforesaid.messages_00 PARTITION OF aforesaid.messages
    FOR VALUES WITH (MODULUS 1, REMAINDER 0);
    PERFORM aforesaid.enable_search_policy('messages_00');
END
$$
"""
SEARCHED = ("message_terms", "indexed", "messages_by_terms", "messages_without_terms")
"""How the parts begin that are there for search."""


async def grown(url: str, owners: int, *, prepare: str = "") -> Grown:
    if prepare:
        await _prepared(url, prepare)
    load = Load(owners=owners, conversations=CONVERSATIONS, messages=MESSAGES, steps=min(6, owners))
    async with aforesaid.open(
        url,
        ttl=None,
        retention=aforesaid.Retention(sweep_every=None),
        layers=aforesaid.Layers(resilience="off"),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        return await generate(memory, url, load)


async def _prepared(url: str, sql: str) -> None:
    """The schema, made by the store and then changed."""
    async with aforesaid.open(
        url, retention=aforesaid.Retention(sweep_every=None), layers=aforesaid.Layers(resilience="off")
    ):
        pass
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(sql.encode())


def measured(owners: int) -> dict[str, Any]:
    with _places() as places:
        found = {}
        for name, (url, prepare) in places.items():
            print(name, file=sys.stderr, flush=True)
            many = JSON_OWNERS if name == "JSON file" else owners
            found[name] = asyncio.run(grown(url, many, prepare=prepare))
    return {"about": about(), "stores": msgspec.to_builtins(found)}


@contextmanager
def _places() -> Iterator[dict[str, tuple[str, str]]]:
    """A store of each kind, by URL, and what is done to it before."""
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="aforesaid-slopes-")))
        server = PostgresServer()
        cleanup.callback(server.stop)
        server.start()
        databases = Databases(server.url)
        redis = cleanup.enter_context(running())
        cluster = cleanup.enter_context(running_cluster())
        yield {
            "SQLite": (f"sqlite:///{folder}/memory.db", ""),
            "JSON file": (f"file:///{folder}/memory.json", ""),
            "PostgreSQL, 16 partitions": (databases.new(), ""),
            "PostgreSQL, 1 partition": (databases.new(), ONE_PARTITION),
            "Redis": (f"redis://127.0.0.1:{redis}/0", ""),
            "Redis Cluster, 3 masters": (f"redis+cluster://127.0.0.1:{cluster}", ""),
        }


# The page


def slopes(stores: dict[str, Any]) -> str:
    head = ["", "messages", "bytes a message", "of that for search", "turns a second", "p50", "p99"]
    return table(head, [_row(name, one) for name, one in stores.items()])


def _row(name: str, one: dict[str, Any]) -> list[str]:
    last = one["steps"][-1]
    return [
        name,
        f"{one['messages']:,}",
        f"{kept(one):,.0f}",
        f"{searched(one):,.0f}",
        f"{last['turns_a_second']:,.0f}",
        f"{last['p50']:.1f} ms",
        f"{last['p99']:.1f} ms",
    ]


def kept(one: dict[str, Any]) -> float:
    """Bytes a message, without logs that are overwritten: on disk, or for Redis in memory."""
    passing = ("write-ahead log", "append-only file")
    return float(sum(value for name, value in one["parts"].items() if name not in passing))


def searched(one: dict[str, Any]) -> float:
    return float(sum(value for name, value in one["parts"].items() if name.startswith(SEARCHED)))


def parts(stores: dict[str, Any]) -> str:
    """The largest parts of PostgreSQL and SQLite, as they grow."""
    blocks = []
    for name in ("SQLite", "PostgreSQL, 16 partitions", "PostgreSQL, 1 partition"):
        one = stores[name]
        largest = sorted(one["parts"], key=lambda part: -one["parts"][part])[:6]
        head = [f"{name}: bytes at", *(f"{step['messages']:,}" for step in one["steps"]), "a message"]
        rows = [
            [f"`{part}`", *(size(step["bytes"][part]) for step in one["steps"]), f"{one['parts'][part]:,.0f}"]
            for part in largest
        ]
        blocks.append(table(head, rows))
    return "\n\n".join(blocks)


OWNERS = 1_000_000
EACH = 1_000
"""Messages of an owner: a turn a day and a half for two years, or a talkative month."""
MEMORY = 64e9
USED = 0.6
"""Of a Redis node's memory: the rest is for rewriting the file, buffers and fragmentation."""
PARTITIONS = 16


def extrapolated(stores: dict[str, Any]) -> str:
    """A million owners, by the slopes."""
    messages = OWNERS * EACH
    rows = []
    for name, what in (("PostgreSQL, 16 partitions", "PostgreSQL"), ("Redis", "Redis"), ("SQLite", "SQLite")):
        bytes_kept = kept(stores[name]) * messages
        rows.append([what, size(bytes_kept), _machines(what, bytes_kept, searched(stores[name]) * messages)])
    return table([f"{messages / 1e9:g} billion messages", "kept", "what that takes"], rows)


def _machines(what: str, kept_bytes: float, search: float) -> str:
    match what:
        case "PostgreSQL":
            return (
                f"{size(kept_bytes / PARTITIONS)} in each of {PARTITIONS} partitions, "
                f"{size(search / PARTITIONS)} of it for search"
            )
        case "Redis":
            return (
                f"masters with {size(MEMORY)} that are {USED:.0%} full: {ceil(kept_bytes / (MEMORY * USED))}"
            )
        case _:
            return f"{size(kept_bytes / OWNERS)} for an owner: a file each, or a file for some thousands"


def page(results: dict[str, Any]) -> str:
    stores = results["stores"]
    when = f"Measured {results['about']['date']} on {results['about']['machine']}."
    return "\n\n".join(
        [when, slopes(stores), "### Parts", parts(stores), "### A million owners", extrapolated(stores)]
    )


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--owners", type=int, default=400)
    given.add_argument("--page", action="store_true", help="measure nothing; make the page anew")
    options = given.parse_args()
    file = RESULTS / "slopes.json"
    if not options.page:
        file.write_text(json.dumps(measured(options.owners), indent=1) + "\n", "utf-8")
    results = json.loads(file.read_text("utf-8"))
    PAGE.write_text(put_into(PAGE.read_text("utf-8"), page(results)), "utf-8")


if __name__ == "__main__":
    main()
