"""Train the weights of the ranking on some of the sets, and measure them on the set that is left out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from msgspec import Struct, convert

from aforesaid.search.ranking import WEIGHTS, WORDS_WEIGHTS, Weights, rank
from benchmarks.search_eval.asking import Asking
from benchmarks.search_eval.figures import Figures, judged, mean
from benchmarks.search_eval.labelled import Question

# Candidates of a question that are kept: the best by the present weights.
KEPT = 120
# Loss: how steep the softmax is, and how strongly weights are drawn to a common value.
STEEPNESS, SHRINKAGE, COMMON = 4.0, 0.03, 0.3
# Set by hand: only one set names speakers.
BY_HAND = {"speaker": 0.5, "date": 0.4}
# Present weights that are 0 are no part of the score.
FIELDS = {
    mode: [
        name
        for name in weights.__struct_fields__
        if name not in ("brief", "best_of") and getattr(weights, name)
    ]
    for mode, weights in (("hybrid", WEIGHTS), ("words", WORDS_WEIGHTS))
}
# The parts of a score in which several weights are summed up.
_SHARED = {
    "conversation": ("conversation_terms", "conversation_words", "conversation_meaning"),
    "previous": ("previous_words", "previous_meaning"),
}


class Sample(Struct, frozen=True, kw_only=True):
    """A question's candidates: the value of each part, before weights."""

    labelled: str
    question: Question
    spots: list[object]
    parts: Any
    gold: Any


async def samples(ready: Asking, labelled: str, mode: str) -> list[Sample]:
    """Return a sample for every counted question."""
    found = []
    for person, question in ready.questions():
        if question.apart:
            continue
        analyzed, matches, similar = await ready.candidates(person, question)
        if mode == "words":
            similar = None
        order = rank(analyzed, matches, similar).ordered[:KEPT]
        keys = [one.key for one in order]
        columns: dict[str, list[float]] = {}
        for names in _passes(FIELDS[mode]):
            alone = convert(dict.fromkeys(names, 1.0), Weights)
            by_key = {one.key: one for one in rank(analyzed, matches, similar, weights=alone).ordered}
            for name in names:
                part = next((part for part, own in _SHARED.items() if name in own), name)
                columns[name] = [getattr(by_key[key], part) for key in keys]
        spots: list[object] = [ready.spot(person, key) for key in keys]
        found.append(
            Sample(
                labelled=labelled,
                question=question,
                spots=spots,
                parts=numpy.array([columns[name] for name in FIELDS[mode]]).T,
                gold=numpy.array([float(spot in question.gold) for spot in spots]),
            )
        )
    return found


def _passes(names: Sequence[str]) -> list[list[str]]:
    """Distribute the weights over rankings, at most one of each shared part in one."""
    turns: list[list[str]] = [[name for name in names if not any(name in own for own in _SHARED.values())]]
    for own in _SHARED.values():
        for at, name in enumerate([name for name in own if name in names]):
            if at == len(turns):
                turns.append([])
            turns[at].append(name)
    return turns


def trained(given: Sequence[Sample], mode: str, *, scale: float | None = None) -> dict[str, float]:
    """Minimise a listwise softmax loss by Newton's method; each set has the same weight."""
    names = FIELDS[mode]
    usable = [one for one in given if one.gold.sum()]
    sizes = {name: sum(one.labelled == name for one in usable) for name in {one.labelled for one in usable}}
    free = [at for at, name in enumerate(names) if name not in BY_HAND]
    weights = numpy.array([BY_HAND.get(name, COMMON) for name in names])
    for _ in range(12):
        gradient = SHRINKAGE * (weights[free] - COMMON)
        curvature = SHRINKAGE * numpy.eye(len(free))
        for one in usable:
            share = 1 / sizes[one.labelled] / len(sizes)
            scores = STEEPNESS * (one.parts @ weights)
            chance = numpy.exp(scores - scores.max())
            chance /= chance.sum()
            own = one.parts[:, free]
            middle = chance @ own
            gradient += share * STEEPNESS * (middle - one.gold @ own / one.gold.sum())
            spread = (own * chance[:, None]).T @ own - numpy.outer(middle, middle)
            curvature += share * STEEPNESS**2 * spread
        step = numpy.linalg.solve(curvature, gradient)
        weights[free] -= step * min(1.0, 0.5 / numpy.abs(step).max())
    # The weights that were set by hand are relative to this sum.
    basic = [at for at, name in enumerate(names) if name in ("words", "coverage", "meaning")]
    weights[free] *= (scale or _scale(mode)) / weights[basic].sum()
    return dict(zip(names, weights.round(2).tolist(), strict=True))


def _scale(mode: str) -> float:
    present = WEIGHTS if mode == "hybrid" else WORDS_WEIGHTS
    return present.words + present.coverage + present.meaning


def evaluated(given: Sequence[Sample], weights: Mapping[str, float]) -> list[Figures]:
    """Return the figures of samples, ordered by these weights."""
    factors = numpy.array(list(weights.values()))
    figures = []
    for one in given:
        order = numpy.argsort(-(one.parts @ factors), kind="stable")[:10]
        figures.append(judged([one.spots[at] for at in order], frozenset(one.question.gold), 0.0))
    return figures


def left_out(given: Mapping[str, Sequence[Sample]]) -> str:
    """Return Markdown: the figures of each set with weights that were trained on the others."""
    modes = list(given)
    lines = [f"| weights trained without | {' | '.join(modes)} |", f"| --- |{' ---: |' * len(modes)}"]
    for name in dict.fromkeys(one.labelled for one in given[modes[0]]):
        cells = []
        for mode in modes:
            kind = "words" if mode == "words" else "hybrid"
            others = [one for one in given[mode] if one.labelled != name]
            weights = trained(others, kind)
            figures = evaluated([one for one in given[mode] if one.labelled == name], weights)
            cells.append(f"{mean(figures, 'recall_10'):.3f} / {mean(figures, 'ndcg_10'):.3f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
