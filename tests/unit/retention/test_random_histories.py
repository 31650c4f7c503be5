"""No removed word is left in the raw files of an embedded store; `make residue` plays more histories."""

import pytest

from tests.unit.retention.random_histories import played


@pytest.mark.parametrize("seed", [*range(20), 20, 64, 124])
@pytest.mark.slow
def test_no_removed_word_is_left_in_the_files_of_sqlite(seed: int) -> None:
    assert played(seed) is None


@pytest.mark.parametrize("seed", range(5))
def test_no_removed_word_is_left_in_a_json_file(seed: int) -> None:
    assert played(seed, "file") is None
