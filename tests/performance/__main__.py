"""`python -m tests.performance`: what the hot paths cost now, to be written down in `test_hot_paths`."""

import tempfile
from pathlib import Path

from tests.performance.guard import calls, processor_ratio
from tests.performance.paths import opened
from tests.performance.test_hot_paths import USUAL, steps_of


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as bench:
        for path in USUAL:
            ours, floor = steps_of(bench, path)
            ratio = processor_ratio(ours, floor)
            print(f'    "{path}": Usual(ratio={ratio:.1f}, calls={calls(ours):_.0f}),')


if __name__ == "__main__":
    main()
