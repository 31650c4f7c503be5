"""The mutations of `scripts/mutants.py` apply to the present source."""

from collections import Counter

import pytest
from scripts.mutants import MUTATIONS, ROOT, Mutation, occurrences


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.file}: {mutation.new}")
def test_a_mutation_changes_one_place_and_names_its_tests(mutation: Mutation) -> None:
    assert occurrences(mutation) == 1
    assert mutation.old != mutation.new
    for path in mutation.first.split():
        assert (ROOT / "tests" / path.partition("::")[0]).exists(), path


def test_there_are_forty_different_mutations() -> None:
    assert len(MUTATIONS) == 40
    assert not [one for one, times in Counter(MUTATIONS).items() if times > 1]
