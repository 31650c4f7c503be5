"""Ask every question, print the table, and write it with the plot into the docs."""

import argparse
import asyncio
import sys
from pathlib import Path

from benchmarks.search_eval.asking import answers_by_method
from benchmarks.search_eval.labelled import read_sets
from benchmarks.search_eval.report import Result, plot, table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "search-quality.md"
PLOT = ROOT / "docs" / "search-quality.svg"
BEGIN, END = "<!-- figures: make eval writes from here -->", "<!-- to here -->"


async def main() -> int:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared" / "data", help="where the sets are"
    )
    given.add_argument("--no-docs", action="store_true", help="print only; leave the docs as they are")
    options = given.parse_args()
    sets = read_sets(options.data)
    if not sets:
        print(f"no locomo*.json and no longmemeval*.json in {options.data}", file=sys.stderr)
        return 2
    results = [Result(name=one.name, turns=one.turns, answers=await answers_by_method(one)) for one in sets]
    print(table(results))
    if not options.no_docs:
        write(results)
    return 0


def write(results: list[Result]) -> None:
    """Put the table between its marks, and the plot beside the page."""
    page = PAGE.read_text("utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{table(results)}\n\n{END}{tail}", "utf-8")
    PLOT.write_text(plot(results), "utf-8")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
