"""No removed word is left in the raw files of an embedded store; `make residue` plays more histories."""

import pytest

from tests.random_words import words_in
from tests.unit.retention.random_histories import played


def test_the_end_of_a_word_is_found_between_other_letters_and_bytes() -> None:
    words = ["abcdqwertzui", "abcdyxcvbnml", "abcdasdfghjk"]
    assert words_in(b"\0aqwertzuia\xff abcdyxcvbnm asdf\0ghjk", words) == {"abcdqwertzui"}
    assert words_in(b"yxcvbnml", words) == {"abcdyxcvbnml"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(20), 20, 64, 124])
def test_no_removed_word_is_left_in_the_files_of_sqlite(seed: int) -> None:
    assert played(seed) is None


@pytest.mark.parametrize("seed", range(5))
def test_no_removed_word_is_left_in_a_json_file(seed: int) -> None:
    assert played(seed, "file") is None
