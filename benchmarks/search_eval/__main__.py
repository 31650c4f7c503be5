"""Ask every question, print the tables, and write them with the plot into the docs.

python -m benchmarks.search_eval [--data DIR] [--only ranking,floor,agreement] [--no-docs]

ranking      every question by every method, and weights that have not seen the set
floor        other owners' questions, which should find nothing, and what the floor costs in recall
agreement    all sets as one history on every store
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from aforesaid.cli.runtime import progress_of
from aforesaid.contracts import Embedder
from aforesaid.errors import MissingExtra
from aforesaid.search.encoders import encoder_named
from aforesaid.search.ranking import Weights
from benchmarks.report import numbers
from benchmarks.search_agreement import HEAD, pooled, rows
from benchmarks.search_eval import floor, training
from benchmarks.search_eval.asking import MEANING, WORDS, Answered, Asking, Method, asking, simple_answers
from benchmarks.search_eval.encodings import CachedEncoder
from benchmarks.search_eval.households import households
from benchmarks.search_eval.labelled import LabelledSet, Question, read_sets
from benchmarks.search_eval.report import Result, plot, table

ROOT = Path(__file__).parents[2]
ENCODINGS = ROOT / ".bench" / "encodings"
PAGE = ROOT / "docs" / "search-quality.md"
PLOT = ROOT / "docs" / "search-quality.svg"
MINILM = "hybrid with MiniLM"
PARTS = ("ranking", "floor", "agreement")


async def main() -> int:
    options = _given()
    parts = options.only.split(",")
    if set(parts) - set(PARTS):
        print(f"there are {', '.join(PARTS)}; got {options.only}", file=sys.stderr)
        return 2
    sets = read_sets(options.data)
    if not sets:
        print(f"no locomo*.json, longmemeval*.json or beam*.json in {options.data}", file=sys.stderr)
        return 2
    evaluation = Evaluation(is_ranked="ranking" in parts)
    if {"ranking", "floor"} & set(parts):
        await _ask_all(evaluation, sets)
    written = {}
    if "ranking" in parts:
        trained = training.left_out(evaluation.samples)
        print(trained, evaluation.weights(), sep="\n\n")
        heading = "### Weights that have not seen the set"
        written["ranking"] = "\n\n".join([table(evaluation.results), heading, trained])
    if "floor" in parts:
        written["floor"] = floor.table(evaluation.floors)
    if "agreement" in parts:
        written["agreement"] = await evaluation.agreement(sets)
        print(written["agreement"])
    if not options.no_docs:
        PAGE.write_text(with_parts(PAGE.read_text("utf-8"), written), "utf-8")
        if "ranking" in parts:
            PLOT.write_text(plot(evaluation.results), "utf-8")
    return 0


def _given() -> argparse.Namespace:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared" / "data", help="where the sets are"
    )
    given.add_argument("--only", default=",".join(PARTS), help="some of the parts")
    given.add_argument("--no-docs", action="store_true", help="print only; leave the docs as they are")
    return given.parse_args()


async def _ask_all(evaluation: "Evaluation", sets: Sequence[LabelledSet]) -> None:
    everyday = households()
    with progress_of("asking", unit="passes", total=evaluation.passes * (len(sets) + 1)) as done:
        evaluation.progress = done
        for one in [*sets, everyday]:
            others = [
                q for other in sets if other is not one for person in other.people for q in person.questions
            ]
            result, measured = await evaluation.of(
                one, [q for q in others if not q.apart], is_counted=one is not everyday
            )
            shown = [table([result])] if evaluation.is_ranked else []
            print(*shown, floor.table(measured), sep="\n\n", flush=True)


class Mode(Struct, frozen=True, kw_only=True):
    """An encoder, the methods that are asked with it, and the name of its samples.

    The floor of the last method is measured.
    """

    methods: tuple[Method, ...]
    samples: str
    encoder: CachedEncoder | None = None
    suffix: str = ""


class Evaluation:
    """Every question of every set by every method that this installation has.

    Without `is_ranked`, only the methods whose floor is measured are asked.
    """

    def __init__(self, *, is_ranked: bool = True) -> None:
        self.is_ranked = is_ranked
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
            self.samples[MINILM] = []

    async def of(
        self, one: LabelledSet, others: Sequence[Question], *, is_counted: bool
    ) -> tuple[Result, list[floor.Floor]]:
        """Ask every question of a set; `is_counted` if its figures and samples count."""
        answers: dict[str, list[Answered]] = {}
        if self.is_ranked:
            answers["FTS5"] = simple_answers(one, bonuses=False)
            answers["FTS5, session and user bonus"] = simple_answers(one, bonuses=True)
        floors = []
        for mode in self._modes():
            async with asking(one, mode.encoder) as ready:
                for method in mode.methods if self.is_ranked else mode.methods[-1:]:
                    answers[method.name] = await self._pass(ready, method.weights)
                measured = await floor.measure(ready, one, answers[mode.methods[-1].name], others)
                floors.append(floor.named(measured, f"{one.name}{mode.suffix}"))
                if is_counted and self.is_ranked:
                    kind = "words" if mode.encoder is None else "hybrid"
                    self.samples[mode.samples] += await training.samples(ready, one.name, kind)
            if mode.encoder is not None:
                mode.encoder.save()
        result = Result(name=one.name, turns=one.turns, answers=answers)
        self.floors += floors
        if is_counted:
            self.results.append(result)
        return result, floors

    def _modes(self) -> list["Mode"]:
        modes = [Mode(methods=WORDS, suffix=", words", samples="words")]
        if self._encoder is not None:
            modes.append(Mode(methods=MEANING, encoder=self._encoder, samples="hybrid"))
        if self._other is not None:
            minilm = Method(name=MINILM)
            modes.append(Mode(methods=(minilm,), encoder=self._other, suffix=", MiniLM", samples=MINILM))
        return modes

    async def agreement(self, sets: Sequence[LabelledSet]) -> str:
        """Return a table of what stores find in common, by words and with the default encoder."""
        turns = f"{sum(one.turns for one in sets):,} turns"
        found = await pooled(sets, None)
        lines = rows(f"{turns}, words", found)
        if self._encoder is not None:
            found = await pooled(sets, self._encoder)
            lines += rows(f"{turns}, hybrid", found)
            self._encoder.save()
        return numbers.table(HEAD, lines)

    @property
    def passes(self) -> int:
        """How often every question of a set is asked."""
        return sum(len(mode.methods) if self.is_ranked else 1 for mode in self._modes())

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


def with_parts(page: str, parts: Mapping[str, str]) -> str:
    """Return the page with these parts between their marks; other parts stay."""
    for name, text in parts.items():
        begin, end = marks(name)
        head, _, rest = page.partition(begin)
        _, _, tail = rest.partition(end)
        if not tail:
            raise ValueError(f"the page has no {begin} … {end}")
        page = f"{head}{begin}\n\n{text}\n\n{end}{tail}"
    return page


def marks(part: str) -> tuple[str, str]:
    return f"<!-- make eval: {part} begins -->", f"<!-- make eval: {part} ends -->"


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
