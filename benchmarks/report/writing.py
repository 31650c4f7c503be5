"""Write the sections and plots into the pages."""

import json
from pathlib import Path
from typing import Any

from benchmarks.peers.roster import ENTRANTS
from benchmarks.report.aims import aims
from benchmarks.report.numbers import table
from benchmarks.report.plots import bars, lines
from benchmarks.report.tables import SECTIONS

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
Results = dict[str, Any]

DETAILS = ("sharing", "kills", "windows", "serving", "costs", "branches", "servers")
"""Workloads on the page of details; the others are on the main page."""

ONLY_AIMS = ("capacity",)
"""Results with a page of their own, of which only the aims are listed here."""


def read_results(folder: Path) -> dict[str, Results]:
    """Return the stored results by workload, in the order of the workloads."""
    files = {name: folder / f"{name}.json" for name in (*SECTIONS, *ONLY_AIMS)}
    return {name: json.loads(file.read_text("utf-8")) for name, file in files.items() if file.exists()}


def page(results: dict[str, Results]) -> str:
    """Return the generated part of `performance.md`."""
    parts = [_about(results), "### Aims", aims(results)]
    if "growth" in results:
        parts.append("![A turn as the conversation grows](bench-turns.svg)")
        parts.append("![A window as the conversation grows](bench-windows.svg)")
    hidden = (*DETAILS, *ONLY_AIMS)
    sections = [SECTIONS[name](one) for name, one in results.items() if name not in hidden]
    return "\n\n".join(part for part in [*parts, *sections] if part)


def details(results: dict[str, Results]) -> str:
    """Return the generated part of `internals/measurements.md`."""
    sections = [SECTIONS[name](one) for name, one in results.items() if name in DETAILS]
    parts = [_about(results), *sections, "### Entrants", _driven(results)]
    return "\n\n".join(part for part in parts if part)


def _about(results: dict[str, Results]) -> str:
    runs = [run for one in results.values() for run in (one["about"], *one.get("later", ()))]
    machines = sorted({run["machine"] for run in runs})
    dates = sorted({run["date"] for run in runs})
    loads = [run["load"] for run in runs]
    busy = f"load average {min(loads):.1f} to {max(loads):.1f}, including the benchmarks"
    return f"Measured {' and '.join(dates)} on {'; '.join(machines)}; {busy}."


def _driven(results: dict[str, Results]) -> str:
    versions = _versions(results)
    rows = [[one.name, versions.get(one.name, ""), one.driven, one.durable] for one in ENTRANTS]
    return table(["", "version", "calls", "an acknowledged turn survives a"], rows)


def _versions(results: dict[str, Results]) -> dict[str, str]:
    entrants = results.get("growth", {}).get("entrants", {})
    return {
        name: ", ".join(f"{package} {version}" for package, version in one.get("versions", {}).items())
        for name, one in entrants.items()
    }


def plots(results: dict[str, Results]) -> dict[str, str]:
    """Return the plots by file name."""
    made = {}
    if "growth" in results:
        entrants = {name: one for name, one in results["growth"]["entrants"].items() if "rows" in one}
        for step, what, name in (
            ("turn", "one more durable turn", "turns"),
            ("window", "the last 20", "windows"),
        ):
            series = {who: _points(one, step) for who, one in entrants.items()}
            made[f"bench-{name}.svg"] = lines(f"{what}, p50", series)
    if "together" in results:
        ranked = sorted(
            results["together"]["entrants"].items(), key=lambda pair: -pair[1].get("turns_a_second", 0)
        )
        values = {name: one["turns_a_second"] for name, one in ranked if "turns_a_second" in one}
        made["bench-together.svg"] = bars("64 conversations at once", values, "turns/s")
    return made


def _points(one: Results, step: str) -> list[tuple[float, float]]:
    return [(row["size"], row[step]["p50"]) for row in one["rows"]]


def put_into(text: str, part: str) -> str:
    """Return the page with this part between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{part}\n{END}{after}"


def write(docs: Path, results: dict[str, Results]) -> None:
    for name, part in (("performance.md", page(results)), ("internals/measurements.md", details(results))):
        document = docs / name
        document.write_text(put_into(document.read_text("utf-8"), part), "utf-8")
    for file, picture in plots(results).items():
        (docs / file).write_text(picture, "utf-8")
