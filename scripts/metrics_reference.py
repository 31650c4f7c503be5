"""Write docs/reference/metrics.md from the catalogue: `python scripts/metrics_reference.py`."""

from pathlib import Path

from aforesaid.telemetry.metrics import CHAPTERS, LENGTHS, MOST_SERIES, SECONDS, Family

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"

HEAD = f"""\
# Metrics

Generated from the catalogue in `aforesaid.telemetry`. A server returns them at `/metrics`, as OpenMetrics
with exemplars (request and trace ids) or in the classic text format, depending on the `Accept` header. With
several workers, they are the sum. A program reads them with `aforesaid.telemetry.telemetry.samples()`.
See also [Monitor a server](../how-to/monitor.md).

Labels contain no owners, ids or content. Their values come from fixed sets or the configuration. Above
{MOST_SERIES:,} series of one name, further series count as `other`.

Histograms of times have {len(SECONDS)} buckets from {SECONDS[0] * 1e6:g} µs to {SECONDS[-1]:g} s, five per
power of ten, so a quantile is off by at most a factor of 1.6. Histograms of lengths have powers of two up to
{LENGTHS[-1]:,.0f}. A histogram without observations is omitted. The values of several processes are added;
for metrics marked *max*, the largest value counts.
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
