"""Fit the coefficients of relevance: `python -m benchmarks.search_eval.calibration DATA minilm`.

Every owner is asked its own questions and those of others. The coefficients separate the two, so that at most
5 % of other people's questions find something. `left_out` fits on two sets and measures the third.
"""

import asyncio
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import numpy
from msgspec import Struct, structs

from aforesaid.search import reading, relevance
from aforesaid.search.encoders import encoder_named
from aforesaid.search.relevance import Calibration, Evidence, Relevance
from benchmarks.search_eval.asking import Asking, asking
from benchmarks.search_eval.labelled import LabelledSet, Question, read_sets

# Coefficients that are fitted, with a typical size, which keeps rare evidence from growing without bound.
FITTED = {
    "hybrid": ("match", "both", "coverage", "cosine", "known", "known_of_few", "terms", "speaker"),
    "words": ("match", "match_of_three", "coverage", "known", "known_of_few", "terms", "speaker"),
}
SHRINKAGE = 0.002
FOREIGN_SHARE = 0.05
FOREIGN = 600


class Judged(Struct, frozen=True, kw_only=True):
    """One question with its evidence and its first ten results."""

    labelled: str
    foreign: bool
    evidence: Evidence
    complete: bool
    """Whether a message has all terms of the question: it is relevant in any case."""
    distances: tuple[float, ...] = ()
    """How far each result's score is below the best, as a share of it."""
    factors: tuple[float, ...] = ()
    """What a result loses because it matches less, or only asks."""
    gold: tuple[bool, ...] = ()
    golds: int = 0


@contextmanager
def noting_relevance() -> Iterator[list[Relevance]]:
    """Collect the relevance objects of the searches in this block."""
    noted: list[Relevance] = []

    class Noted(Relevance):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            noted.append(self)

    with patch.object(reading, "Relevance", Noted):
        yield noted


async def collect(ready: Asking, labelled: LabelledSet, others: Sequence[Question]) -> list[Judged]:
    """Ask everyone their own questions, and a sample of others'."""
    people, judged = labelled.people, []
    each = max(1, FOREIGN // len(people))
    with noting_relevance() as noted:
        for number, person in enumerate(people):
            inside = [q for other in people if other is not person for q in other.questions if not q.apart]
            asked = [*inside, *others]
            foreign = random.Random(1000 + number).sample(asked, min(each, len(asked)))
            own = [question for question in person.questions if not question.apart]
            for question, is_foreign in [*((q, False) for q in own), *((q, True) for q in foreign)]:
                noted.clear()
                passages = await ready.passages(person, question)
                if not noted:
                    continue
                judged.append(
                    _judged(labelled.name, is_foreign, noted[-1], passages, ready, person, question)
                )
    return judged


def _judged(
    name: str, foreign: bool, judge: Relevance, passages: Any, ready: Asking, person: Any, question: Question
) -> Judged:
    best = judge._best_score or 1.0
    distances = tuple(1 - min(1.0, _full_score(one) / best) for one in passages)
    factors = tuple(min(1.0, one.relevance / max(judge.at_most(_full_score(one)), 1e-9)) for one in passages)
    spots = [ready.spot(person, (one.conversation_id, one.sequence)) for one in passages]
    return Judged(
        labelled=name,
        foreign=foreign,
        evidence=judge.evidence,
        complete=judge.evidence.coverage > relevance._COMPLETE,
        distances=distances,
        factors=factors,
        gold=tuple(spot in question.gold for spot in spots),
        golds=len(question.gold),
    )


def _full_score(passage: Any) -> float:
    return float(passage.score or 0.0)


def fitted(given: Sequence[Judged], present: Calibration, mode: str) -> Calibration:
    """Return the calibration with new coefficients; the constant puts the floor at its place."""
    names = FITTED[mode]
    usable = [one for one in given if not one.complete and (one.foreign or one.golds)]
    rows = numpy.array([_row(one.evidence, names, present) for one in usable])
    found = numpy.array([not one.foreign for one in usable], float)
    sets = [(one.labelled, one.foreign) for one in usable]
    weight = numpy.array([1 / sets.count(kind) for kind in sets])
    coefficients = _newton(rows, found, weight / weight.sum())
    values = dict(zip(names, coefficients[1:].round(2).tolist(), strict=True))
    zero = dict.fromkeys((*FITTED["hybrid"], *FITTED["words"]), 0.0)
    shaped = structs.replace(present, **{**zero, **values, "constant": 0.0})
    return structs.replace(shaped, constant=round(_constant(given, shaped), 2))


def _row(evidence: Evidence, names: Sequence[str], present: Calibration) -> list[float]:
    """Return the evidence in the order of the coefficients, with 1 for the constant."""
    alone = dict.fromkeys((*FITTED["hybrid"], *FITTED["words"], "small", "cosine_of_small"), 0.0)
    empty = structs.replace(present, **alone, constant=0.0)
    return [1.0, *(structs.replace(empty, **{name: 1.0}).logit(evidence) for name in names)]


def _newton(rows: Any, found: Any, weight: Any) -> Any:
    values = numpy.zeros(rows.shape[1])
    penalty = SHRINKAGE * numpy.eye(rows.shape[1])
    penalty[0, 0] = 0
    for _ in range(30):
        chance = 1 / (1 + numpy.exp(-numpy.clip(rows @ values, -30, 30)))
        gradient = rows.T @ (weight * (chance - found)) + penalty @ values
        curvature = (rows * (weight * chance * (1 - chance))[:, None]).T @ rows + penalty
        values -= numpy.linalg.solve(curvature + 1e-9 * numpy.eye(len(values)), gradient)
    return values


def _constant(given: Sequence[Judged], shaped: Calibration) -> float:
    """Return the constant with which the floor leaves FOREIGN_SHARE of other people's questions."""
    floor = numpy.log(relevance.MIN_RELEVANCE / (1 - relevance.MIN_RELEVANCE))
    names = sorted({one.labelled for one in given})
    logits = [
        (
            numpy.inf if one.complete else shaped.logit(one.evidence),
            1 / sum(o.foreign for o in given if o.labelled == one.labelled),
        )
        for one in given
        if one.foreign
    ]
    logits.sort(key=lambda pair: -pair[0])
    passed = 0.0
    for logit, weight in logits:
        passed += weight / len(names)
        if passed > FOREIGN_SHARE:
            return float(floor - logit - 1e-6)
    return float(floor)


def outcome(given: Sequence[Judged], use: Calibration) -> tuple[float, float, float]:
    """Return the share of foreign questions that find nothing, and recall@10 without and with the floor."""
    nothing = fmean(_best(one, use) < relevance.MIN_RELEVANCE for one in given if one.foreign)
    own = [one for one in given if not one.foreign and one.golds]
    whole = fmean(sum(one.gold) / one.golds for one in own)
    above = fmean(
        sum(
            gold
            for gold, value in zip(one.gold, _values(one, use), strict=True)
            if value >= relevance.MIN_RELEVANCE
        )
        / one.golds
        for one in own
    )
    return nothing, whole, above


def _values(one: Judged, use: Calibration) -> list[float]:
    logit = use.logit(one.evidence)
    logit = max(logit, relevance._ALL_TERMS) if one.complete else logit
    pairs = zip(one.distances, one.factors, strict=True)
    return [relevance._logistic(logit - use.share * distance) * factor for distance, factor in pairs]


def _best(one: Judged, use: Calibration) -> float:
    return max(_values(one, use), default=0.0)


def left_out(given: Sequence[Judged], present: Calibration, mode: str) -> str:
    """Return Markdown: each set with coefficients that were fitted on the others."""
    lines = [
        f"| {mode}: coefficients fitted without | other people's questions that find nothing "
        "| recall@10 without a floor | with the floor |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name in dict.fromkeys(one.labelled for one in given):
        use = fitted([one for one in given if one.labelled != name], present, mode)
        nothing, whole, above = outcome([one for one in given if one.labelled == name], use)
        lines.append(f"| {name} | {nothing:.1%} | {whole:.3f} | {above:.3f} |")
    return "\n".join(lines)


async def main(data: Path, name: str) -> None:
    """Print the coefficients of an encoder, or of words alone, and their effect on sets left out."""
    sets, encoder = read_sets(data), None if name == "words" else encoder_named(name)
    kind = "words" if encoder is None else "hybrid"
    present = relevance.WORDS if encoder is None else relevance.HYBRID
    given: list[Judged] = []
    for one in sets:
        others = [
            q for other in sets if other is not one for person in other.people for q in person.questions
        ]
        async with asking(one, encoder) as ready:
            given += await collect(ready, one, [question for question in others if not question.apart])
    print(fitted(given, present, kind), left_out(given, present, kind), sep="\n\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:] or ["universal"]))
