"""Whether search can find nothing: questions of other people, and questions that have no answer."""

import random
from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.search.relevance import MIN_RELEVANCE
from benchmarks.search_eval.asking import Answered, Asking
from benchmarks.search_eval.labelled import LabelledSet, Question

FOREIGN = 600
"""Questions of other people that are asked in all, of each set."""


class Floor(Struct, frozen=True, kw_only=True):
    """What the default floor does to one set."""

    name: str
    foreign: int
    nothing: float
    """The share of other people's questions that find nothing."""
    recall: float
    recall_above: float
    """Recall@10 without what is below the floor."""
    unanswerable: int
    auroc: float | None
    """How well the best relevance separates answerable from unanswerable questions; 0.5 is chance."""


async def measure(
    ready: Asking, labelled: LabelledSet, answers: Sequence[Answered], others: Sequence[Question]
) -> Floor:
    """Ask everyone questions of others, and compare with the answers to their own, asked without a floor."""
    people = labelled.people
    each = max(1, FOREIGN // len(people))
    best: list[float] = []
    for number, person in enumerate(people):
        inside = [q for other in people if other is not person for q in other.questions if not q.apart]
        asked = [*inside, *others]
        chosen = random.Random(number).sample(asked, min(each, len(asked)))
        best += [await ready.best_relevance(person, question) for question in chosen]
    own = [one for one in answers if not one.question.apart]
    never = [one for one in answers if one.question.unanswerable]
    return Floor(
        name=labelled.name,
        foreign=len(best),
        nothing=fmean(one < MIN_RELEVANCE for one in best),
        recall=fmean(one.figures.recall_10 for one in own),
        recall_above=fmean(one.recall_above_floor for one in own),
        unanswerable=len(never),
        auroc=auroc([one.best for one in own], [one.best for one in never]) if never else None,
    )


def auroc(higher: Sequence[float], lower: Sequence[float]) -> float:
    """Return how often one of the first is above one of the second; ties count half."""
    wins = sum((one > other) + (one == other) / 2 for one in higher for other in lower)
    return wins / (len(higher) * len(lower))


def table(floors: Sequence[Floor]) -> str:
    """Return Markdown."""
    lines = [
        "| set | other people's questions that find nothing | recall@10 without a floor | with the floor "
        "| AUROC, unanswerable questions |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for one in floors:
        never = "–" if one.auroc is None else f"{one.auroc:.2f} ({one.unanswerable})"
        lines.append(
            f"| {one.name} | {one.nothing:.1%} of {one.foreign} | {one.recall:.3f} "
            f"| {one.recall_above:.3f} | {never} |"
        )
    return "\n".join(lines)


def named(one: Floor, name: str) -> Floor:
    return replace(one, name=name)
