"""Compare each framework's own store with our adapter on the same work.

    python -m benchmarks.frameworks                       all, to docs/internals/frameworks.md
    python -m benchmarks.frameworks langgraph 1000        one, up to 1,000 messages, printed

Every framework runs in its test environment (`make test-adapters` creates them). There is a row per framework
and length: the best of several turns, a load in a new process's state, the bytes of a turn, and how many of
two writers' turns are there afterwards.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.frameworks.measure import measure, two_writers
from benchmarks.frameworks.stores import FRAMEWORKS, LENGTHS
from benchmarks.peers.environments import ROOT, environment

PAGE = ROOT / "docs" / "internals" / "frameworks.md"
WORKER = "--worker"


def python_of(name: str) -> Path:
    """Return the interpreter of a framework's test environment."""
    folder = Path(os.environ.get("AFORESAID_ADAPTERS") or ROOT / ".adapters")
    return folder / name / "bin" / "python"


async def _measured(name: str, longest: int) -> list[dict[str, Any]]:
    own, theirs, ours, lengths = FRAMEWORKS[name]
    rows = []
    for label, make in ((own, theirs), ("Aforesaid", ours)):
        writers = await two_writers(make)
        for length in (one for one in lengths if one <= longest):
            found = await measure(make, length)
            rows.append({"framework": name, "store": label, "length": length, "writers": writers, **found})
    return rows


def main(arguments: list[str]) -> None:
    """Measure frameworks and write the page, or print the rows of some or of short histories only."""
    longest = next((int(each) for each in arguments if each.isdigit()), LENGTHS[-1])
    names = [each for each in arguments if not each.isdigit()]
    rows: list[dict[str, Any]] = []
    for name in names or FRAMEWORKS:
        if not python_of(name).exists():
            print(f"{name} was not measured: `make test-adapters` creates its environment")
            continue
        rows += _rows_of(name, longest)
    if arguments:
        print("\n".join(map(_line, rows)))
    else:
        PAGE.write_text(page(rows))


def _rows_of(name: str, longest: int) -> list[dict[str, Any]]:
    """Measure one framework in its environment."""
    command = [
        str(python_of(name)),
        "-W",
        "ignore",
        "-m",
        "benchmarks.frameworks",
        WORKER,
        name,
        str(longest),
    ]
    done = subprocess.run(command, check=True, cwd=ROOT, env=environment(), stdout=subprocess.PIPE)
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page."""
    lines = [
        "# Adapters next to the frameworks' own stores",
        "",
        "Written by `python -m benchmarks.frameworks`. A turn is two messages, the best of eight. Times are",
        "processor time of the whole process, which other programs on the machine do not change; they",
        "contain no waiting for the disk.",
        "With LangGraph it is a whole run of a graph, of which the saver is a part. Bytes are those of all",
        "files after closing, in whole pages. Two writers add ten turns each to one session at once;",
        "LangGraph's state is that of the newest checkpoint, and the turns that it lacks are in our log.",
        "Strands' own manager overwrites; ours refuses the second writer.",
        "Claude Agent SDK ships a store in memory only, which a restart empties; ours is a file.",
        "",
        "| framework | store | messages before | turn | load | bytes of a turn | turns of two writers |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    return "\n".join([*lines, *map(_line, rows)]) + "\n"


def _line(row: dict[str, Any]) -> str:
    return (
        f"| {row['framework']} | {row['store']} | {row['length']:,} | {row['turn']:.1f} ms "
        f"| {row['load']:.1f} ms | {row['bytes']:,.0f} | {row['writers']} |"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == [WORKER]:
        print(json.dumps(asyncio.run(_measured(sys.argv[2], int(sys.argv[3])))))
    else:
        main(sys.argv[1:])
