"""Metrics in Prometheus formats: OpenMetrics with exemplars, or the classic text format."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from math import isinf

from aforesaid.telemetry.catalogue import CATALOGUE, Family
from aforesaid.telemetry.metrics import Exemplar, Sample, Series, samples_of

CLASSIC = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ACCEPTED = re.compile(r"\s*([^;,\s]+)\s*((?:;[^,]*)?)(?:,|$)")
_QUALITY = re.compile(r";\s*q=([0-9.]+)")


def form_for(accept: str | None) -> str:
    """Return the content type for an Accept header: OpenMetrics where it is preferred at least as much as
    text.
    """
    wanted = {kind.lower(): _quality(more) for kind, more in _ACCEPTED.findall(accept or "")}
    plain = max(wanted.get("text/plain", 0.0), wanted.get("text/*", 0.0))
    open_quality = wanted.get("application/openmetrics-text", 0.0)
    return OPEN if open_quality > 0 and open_quality >= plain else CLASSIC


def _quality(parameters: str) -> float:
    found = _QUALITY.search(parameters)
    try:
        return float(found.group(1)) if found else 1.0
    except ValueError:
        return 0.0


def exposition(
    series: Iterable[Series], form: str = CLASSIC, families: Mapping[str, Family] = CATALOGUE
) -> str:
    """Return the series as text. Histograms without observations are omitted."""
    seen = [one for one in series if any(one.counts) or families[one.name].kind != "histogram"]
    lines = _lines(sorted(seen, key=lambda one: (one.name, *sorted(one.labels.items()))), form, families)
    return "".join(f"{line}\n" for line in lines)


def _lines(series: list[Series], form: str, families: Mapping[str, Family]) -> Iterator[str]:
    is_open = form == OPEN
    for name, group in groupby(series, key=lambda one: one.name):
        family = families[name]
        shown_name = name.removesuffix("_total") if is_open and family.kind == "counter" else name
        yield f"# HELP {shown_name} {_escaped(family.help)}"
        yield f"# TYPE {shown_name} {family.kind}"
        for sample in samples_of(group, families):
            yield _line(sample, exemplar=sample.exemplar if is_open else None)
    if is_open:
        yield "# EOF"


def _line(sample: Sample, *, exemplar: Exemplar | None) -> str:
    line = f"{sample.name}{_braced(sample.labels)} {number(sample.value)}"
    if exemplar is None:
        return line
    return f"{line} # {_braced(exemplar.labels) or '{}'} {number(exemplar.value)} {exemplar.at:.3f}"


def _braced(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_quoted(name, value)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _quoted(name: str, value: str) -> str:
    if name == "le" and value != "+Inf":
        return number(float(value))
    return _escaped(value).replace('"', r"\"")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def number(value: float) -> str:
    """Return a number in the common format: large ones with an exponent, and never `inf`."""
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(float(value))
    if abs(value) < 1e6 or "e" in text:
        return text
    digits, exponent = f"{value:.16e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{exponent}"
