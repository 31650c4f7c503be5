"""Measure what the hot paths cost now, for `usual`: `python -m tests.integration.performance`.

The exit code is 1 when a path has become slower. Only this program measures processor time: in a
test, the load of the machine would decide the outcome.
"""

import sys
import tempfile
from pathlib import Path

from tests.integration.performance.guard import calls, processor_ratio
from tests.integration.performance.paths import opened
from tests.integration.performance.usual import MORE, SLOWER, USUAL, Usual, steps_of


def main() -> int:
    found = {path: measured(path) for path in USUAL}
    for path, now in found.items():
        figures = f"ratio={now.ratio:.1f}, calls={now.calls:_.0f}, instructions={now.instructions:_.0f}"
        print(f'    "{path}": Usual({figures}),')
    slipped = [path for path, now in found.items() if has_slipped(now, USUAL[path])]
    if slipped:
        print("slipped: " + ", ".join(slipped))
    return 1 if slipped else 0


def measured(path: str) -> Usual:
    """What a path costs now: first by the clock, then, watched, by what is counted."""
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), watched=False) as bench:
        ratio = processor_ratio(*steps_of(bench, path))
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), watched=True) as bench:
        ours, _ = steps_of(bench, path)
        return Usual(ratio=ratio, calls=calls(ours), instructions=bench.engine.each(ours))


def has_slipped(now: Usual, usual: Usual) -> bool:
    return (
        now.ratio > usual.ratio * SLOWER
        or now.calls > usual.calls * MORE
        or now.instructions > usual.instructions * MORE
    )


if __name__ == "__main__":
    sys.exit(main())
