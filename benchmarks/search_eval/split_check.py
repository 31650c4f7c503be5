"""What each part of a score is worth, and whether weights chosen on one half hold on the other."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from msgspec.structs import asdict, replace

from aforesaid.search.ranking import WEIGHTS, Weights
from aforesaid.search.vectors import installed_encoder
from benchmarks.search_eval.__main__ import ROOT
from benchmarks.search_eval.asking import Asking, asking
from benchmarks.search_eval.figures import mean
from benchmarks.search_eval.labelled import LabelledSet, Person, read_sets

CHOICES: dict[str, tuple[float, ...]] = {
    "words": (0.5, 0.6, 0.7),
    "speaker": (0.0, 0.15, 0.25, 0.4),
    "conversation": (0.0, 0.2, 0.4, 0.6),
    "previous": (0.0, 0.25, 0.4),
    "person": (1.0, 1.5, 2.0),
    "date": (0.0, 0.2),
}


def halves(labelled: LabelledSet) -> tuple[LabelledSet, LabelledSet]:
    """The people of a set in two halves; of one person, the questions."""
    if len(labelled.people) > 1:
        return tuple(replace(labelled, people=labelled.people[at::2]) for at in (0, 1))  # type: ignore[return-value]
    (person,) = labelled.people
    return tuple(  # type: ignore[return-value]
        replace(labelled, people=[replace(person, questions=person.questions[at::2])]) for at in (0, 1)
    )


async def figures(ready: Asking, people: Sequence[Person], weights: Weights) -> tuple[float, float]:
    """Recall@10 and nDCG@10 of some people's questions."""
    answered = [one.figures for one in await ready.answers(weights, people) if not one.question.apart]
    return mean(answered, "recall_10"), mean(answered, "ndcg_10")


async def chosen(ready: Sequence[tuple[Asking, LabelledSet]]) -> Weights:
    """The best weights by the mean of all figures, one part after the other."""
    best, weights = 0.0, WEIGHTS
    for name, values in CHOICES.items():
        for value in values:
            changed = replace(weights, **{name: value})
            changed = replace(changed, meaning=1 - changed.words)
            score = fmean([n for one, half in ready for n in await figures(one, half.people, changed)])
            if score > best + 1e-6:
                best, weights = score, changed
    return weights


async def ablation(ready: Sequence[tuple[Asking, LabelledSet]]) -> None:
    print(
        "| without | "
        + " | ".join(labelled.name for _, labelled in ready)
        + " |\n| --- |"
        + " ---: |" * len(ready)
    )
    for name in ("nothing", "words", "meaning", "speaker", "date", "conversation", "previous", "person"):
        changed = {"nothing": {}, "person": {"person": 1.0}}.get(name, {name: 0.0})
        cells = [await figures(one, whole.people, replace(WEIGHTS, **changed)) for one, whole in ready]
        print(
            f"| {name} | " + " | ".join(f"{recall:.3f} / {ndcg:.3f}" for recall, ndcg in cells) + " |",
            flush=True,
        )


async def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    sets = read_sets(given.parse_args().data)
    encoder = installed_encoder()
    async with asking(sets[0], encoder) as first, asking(sets[1], encoder) as second:
        ready = (first, second)
        await ablation(list(zip(ready, sets, strict=True)))
        parts = [halves(labelled) for labelled in sets]
        print("\n| chosen on | asked | " + " | ".join(one.name for one in sets) + " | the default there |")
        for at in (0, 1):
            weights = await chosen([(one, part[at]) for one, part in zip(ready, parts, strict=True)])
            await shown(ready, [part[1 - at] for part in parts], weights, at)


async def shown(ready: Sequence[Asking], others: Sequence[LabelledSet], weights: Weights, at: int) -> None:
    cells = [await figures(one, half.people, weights) for one, half in zip(ready, others, strict=True)]
    default = [await figures(one, half.people, WEIGHTS) for one, half in zip(ready, others, strict=True)]
    row = [" / ".join(f"{value:.3f}" for value in pair) for pair in (*cells, *default)]
    print(f"| half {at + 1} | half {2 - at} | " + " | ".join(row) + " |")
    print(
        {name: value for name, value in asdict(weights).items() if name in (*CHOICES, "meaning")}, flush=True
    )


if __name__ == "__main__":
    asyncio.run(main())
