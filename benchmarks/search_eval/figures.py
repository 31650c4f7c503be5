"""Recall, nDCG and hits of a ranked list, and how sure their mean is."""

import math
import random
from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

RESAMPLES = 1_000


class Figures(Struct, frozen=True, kw_only=True):
    """How one question was answered."""

    recall_5: float
    recall_10: float
    ndcg_10: float
    hit_5: float
    milliseconds: float


def judged(found: Sequence[object], gold: frozenset[object], seconds: float) -> Figures:
    """Recall@k is the share of the gold turns among the first k. Without gold turns, all figures are 0."""
    hits = [one in gold for one in found[:10]]
    ideal = sum(1 / math.log2(rank + 2) for rank in range(min(10, len(gold))))
    return Figures(
        recall_5=sum(hits[:5]) / (len(gold) or 1),
        recall_10=sum(hits) / (len(gold) or 1),
        ndcg_10=sum(hit / math.log2(rank + 2) for rank, hit in enumerate(hits)) / (ideal or 1),
        hit_5=float(any(hits[:5])),
        milliseconds=seconds * 1e3,
    )


def mean(figures: Sequence[Figures], name: str) -> float:
    return fmean(getattr(one, name) for one in figures)


def interval(figures: Sequence[Figures], name: str) -> tuple[float, float]:
    """Where the mean lies in 95 of 100 resamples of the questions."""
    values = [getattr(one, name) for one in figures]
    chance = random.Random(20230508)
    means = sorted(fmean(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[RESAMPLES // 40], means[-RESAMPLES // 40]


def percentile(figures: Sequence[Figures], share: float) -> float:
    values = sorted(one.milliseconds for one in figures)
    return values[min(len(values) - 1, int(len(values) * share))]
