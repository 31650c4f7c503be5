"""Write docs/reference/metrics.md from the catalogue: `python scripts/metrics_reference.py`."""

from pathlib import Path

from aforesaid.telemetry.catalogue import CHAPTERS, LENGTHS, SECONDS, Family
from aforesaid.telemetry.metrics import MOST_SERIES

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"

HEAD = f"""\
# Metrics

Made from the catalogue in `aforesaid.telemetry`. A server gives them at `/metrics`, as OpenMetrics with
exemplars (the id of a request, and of its trace) or in the classic text form, as the scraper asks; with
several workers, their sum. An application reads them with `aforesaid.telemetry.telemetry.samples()`.
[How to watch a server](../how-to/monitor.md) says what to look at.

No label names an owner, an id, or anything that was said. Values of labels come from sets that are known
when the program is written or configured; should a name ever get more than {MOST_SERIES:,} series, the rest
is counted as `other`.

Histograms of times have {len(SECONDS)} buckets from {SECONDS[0] * 1e6:g} µs to {SECONDS[-1]:g} s, five to a
power of ten, so that a quantile read from them is never off by more than one step, a factor of 1.6.
Histograms of lengths have the powers of two up to {LENGTHS[-1]:,.0f}. A histogram shows once it has seen
something. Several processes are added up; where the table says *max*, the largest counts.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for chapter, families in CHAPTERS.items():
        parts += [f"## {chapter}", "", "| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
        parts += [*map(_row, families), ""]
    return "\n".join(parts).rstrip() + "\n"


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    kind = family.kind if family.across == "sum" else f"{family.kind}, *max*"
    return f"| `{family.name}` | {kind} | {labels} | {family.help} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
