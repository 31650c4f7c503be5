"""Ask every question, print the tables, and write them with the plot into the docs."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from aforesaid.cli.runtime import progress_of
from aforesaid.contracts import Embedder
from aforesaid.errors import MissingExtra
from aforesaid.search.encoders import encoder_named
from aforesaid.search.ranking import Weights
from benchmarks.search_eval import floor, training
from benchmarks.search_eval.asking import HYBRID, MEANING, WORDS, Answered, Asking, asking, simple_answers
from benchmarks.search_eval.encodings import CachedEncoder
from benchmarks.search_eval.households import households
from benchmarks.search_eval.labelled import LabelledSet, Question, read_sets
from benchmarks.search_eval.report import Result, plot, table

ROOT = Path(__file__).parents[2]
ENCODINGS = ROOT / ".bench" / "encodings"
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
    evaluation = Evaluation()
    everyday = households()
    with progress_of("asking", unit="passes", total=evaluation.passes * (len(sets) + 1)) as done:
        evaluation.progress = done
        for one in [*sets, everyday]:
            others = [
                q for other in sets if other is not one for person in other.people for q in person.questions
            ]
            ranked = one is not everyday
            result, measured = await evaluation.of(one, [q for q in others if not q.apart], ranked)
            print(table([result]), floor.table(measured), sep="\n\n", flush=True)
    trained = training.left_out(evaluation.samples)
    print(trained, evaluation.weights(), sep="\n\n")
    if not options.no_docs:
        write(evaluation, trained)
    return 0


class Evaluation:
    """Every question of every set by every method that this installation has."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.floors: list[floor.Floor] = []
        self.samples: dict[str, list[training.Sample]] = {"hybrid": [], "words": []}
        self.progress: Callable[[int], None] = lambda _: None
        self._passed = 0
        installed, other = encoder_named("installed"), _minilm()
        self._encoder = None if installed is None else CachedEncoder(installed, ENCODINGS)
        self._other = None if other is None else CachedEncoder(other, ENCODINGS)
        if other is None:
            print(
                "MiniLM is not installed: `make eval` uses an environment with it",
                file=sys.stderr,
            )
        else:
            self.samples["hybrid with MiniLM"] = []

    async def of(
        self, one: LabelledSet, others: Sequence[Question], is_ranked: bool
    ) -> tuple[Result, list[floor.Floor]]:
        """Ask every question of a set; `is_ranked` if its figures and samples count."""
        answers: dict[str, list[Answered]] = {
            "FTS5": simple_answers(one, bonuses=False),
            "FTS5, session and user bonus": simple_answers(one, bonuses=True),
        }
        floors = []
        async with asking(one, None) as ready:
            for method in WORDS:
                answers[method.name] = await self._pass(ready, method.weights)
            measured = await floor.measure(ready, one, answers[WORDS[-1].name], others)
            floors.append(floor.named(measured, f"{one.name}, words"))
            if is_ranked:
                self.samples["words"] += await training.samples(ready, one.name, "words")
        if self._encoder is not None:
            async with asking(one, self._encoder) as ready:
                for method in MEANING:
                    answers[method.name] = await self._pass(ready, method.weights)
                floors.append(await floor.measure(ready, one, answers[HYBRID], others))
                if is_ranked:
                    self.samples["hybrid"] += await training.samples(ready, one.name, "hybrid")
            self._encoder.save()
        if self._other is not None:
            async with asking(one, self._other) as ready:
                name = "hybrid with MiniLM"
                answers[name] = await self._pass(ready, None)
                measured = await floor.measure(ready, one, answers[name], others)
                floors.append(floor.named(measured, f"{one.name}, MiniLM"))
                if is_ranked:
                    self.samples[name] += await training.samples(ready, one.name, "hybrid")
            self._other.save()
        result = Result(name=one.name, turns=one.turns, answers=answers)
        self.floors += floors
        if is_ranked:
            self.results.append(result)
        return result, floors

    @property
    def passes(self) -> int:
        """How often every question of a set is asked."""
        encoded = len(MEANING) if self._encoder is not None else 0
        return len(WORDS) + encoded + (self._other is not None)

    async def _pass(self, ready: Asking, weights: Weights | None) -> list[Answered]:
        answers = await ready.answers(weights)
        self._passed += 1
        self.progress(self._passed)
        return answers

    def weights(self) -> str:
        """Return the weights that training on all sets gives now."""
        modes = ("hybrid", "words")
        return "\n".join(f"{mode}: {training.trained(self.samples[mode], mode)}" for mode in modes)


def _minilm() -> Embedder | None:
    try:
        return encoder_named("minilm")
    except MissingExtra:
        return None


def write(evaluation: Evaluation, trained: str) -> None:
    """Put the tables between their marks, and the plot beside the page."""
    page = PAGE.read_text("utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    text = "\n\n".join(
        [
            table(evaluation.results),
            "### Weights that have not seen the set",
            trained,
            "### Nothing found",
            floor.table(evaluation.floors),
        ]
    )
    PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", "utf-8")
    PLOT.write_text(plot(evaluation.results), "utf-8")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
