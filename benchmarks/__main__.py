"""`python -m benchmarks`: measure all entrants and the floors, and write the pages.

    python -m benchmarks [--only W1,W3] [--quick] [--peers Aforesaid,OpenAI] [--page]

Results go to `benchmarks/results/`, one file for each workload, into `docs/performance.md` and
into `docs/internals/measurements.md`. Workloads and peers that are not selected keep their last
results. A quick run changes no file and prints the pages.
"""

import argparse
import json
import os
import platform
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aforesaid.cli.runtime import progress_of
from benchmarks.peers.driving import Race
from benchmarks.peers.environments import BENCH, ROOT, python_of
from benchmarks.peers.roster import ENTRANTS, Entrant
from benchmarks.report.writing import details, page, read_results, write
from benchmarks.workloads import Workload, workloads
from benchmarks.workloads.size import FULL, QUICK, Size

RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    given = _given()
    size, folder = (QUICK, BENCH / "quick") if given.quick else (FULL, RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    entrants = tuple(one for one in ENTRANTS if _is_asked(one.name, given.peers))
    failed = [] if given.page else _measure(_chosen(given.only), size, entrants, folder)
    results = read_results(folder)
    if given.quick:
        print(page(results), details(results), sep="\n\n")
    else:
        write(ROOT / "docs", results)
    if failed:
        sys.exit(f"not measured: {', '.join(name for one in failed for name in one.names)}")


def _given() -> argparse.Namespace:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--only", default="", help="some of the work: W1,W3")
    given.add_argument("--quick", action="store_true", help="just enough to see that it works")
    given.add_argument("--peers", default="", help="some of those who take part, by how their names begin")
    given.add_argument("--page", action="store_true", help="measure nothing; make the page anew")
    return given.parse_args()


def _is_asked(name: str, asked: str) -> bool:
    return not asked or any(name.startswith(start.strip()) for start in asked.split(","))


def _chosen(only: str) -> list[Workload]:
    wanted = {name.strip().upper() for name in only.split(",") if name.strip()}
    known = {name for one in workloads() for name in one.names}
    if wanted - known:
        sys.exit(f"there is no {', '.join(sorted(wanted - known))}; there are {', '.join(sorted(known))}")
    return [one for one in workloads() if not wanted or wanted & set(one.names)]


def _measure(
    chosen: list[Workload], size: Size, entrants: tuple[Entrant, ...], folder: Path
) -> list[Workload]:
    # Before anything is measured: installing would disturb.
    for name in {one.environment for one in entrants}:
        python_of(name)
    begin, failed = time.monotonic(), []
    shown = progress_of("measuring", unit="workloads", total=len(chosen), still=True)
    with Race() as race, shown as done:
        for number, one in enumerate(chosen, start=1):
            try:
                found = one.run(race, size, entrants)
            except Exception:  # noqa: BLE001  the others are measured all the same
                traceback.print_exc()
                failed.append(one)
                continue
            took = round(time.monotonic() - begin)
            _keep(folder / f"{one.file}.json", found, is_whole=entrants == ENTRANTS)
            print(f"{' '.join(one.names):8} done after {took // 60}:{took % 60:02}", flush=True)
            done(number)
    return failed


def _keep(file: Path, measured: dict[str, Any], *, is_whole: bool) -> None:
    """Write the figures; those of some entrants replace theirs in the last results."""
    found = {"about": about(), **measured}
    if not is_whole and file.exists():
        last = json.loads(file.read_text("utf-8"))
        entrants = {**last.get("entrants", {}), **measured.get("entrants", {})}
        later = [*last.get("later", ()), about()]
        found = {**last, **measured, "entrants": entrants, "later": later}
    file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")


def about() -> dict[str, Any]:
    """The machine, without its name."""
    cores = os.cpu_count()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{cores} cores, {_memory()} of memory, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def _memory() -> str:
    pages, page_size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return f"{pages * page_size / 1024**3:.0f} GB"


if __name__ == "__main__":
    main()
