"""The rank files hold what tiktoken distributes."""

import hashlib

import pytest

from aforesaid.errors import AforesaidError
from aforesaid.tokens import exact
from aforesaid.tokens.exact import as_tiktoken_file, pack, read_ranks, unpack

SMALL = b"YQ== 0\nYg== 1\nYWI= 2\n"


def test_packing_and_unpacking_loses_nothing() -> None:
    ranks, digest = unpack(pack(SMALL))
    assert ranks == {b"a": 0, b"b": 1, b"ab": 2}
    assert digest == hashlib.sha256(SMALL).hexdigest()
    assert as_tiktoken_file(ranks) == SMALL


def test_a_gap_in_the_ranks_is_refused() -> None:
    with pytest.raises(AforesaidError, match="rank 1 is missing: found 2"):
        pack(b"YQ== 0\nYg== 2\n")


@pytest.mark.parametrize("name", exact.ENCODINGS)
def test_the_packaged_ranks_are_the_file_that_they_say(name: str) -> None:
    ranks, digest = read_ranks(name)
    assert hashlib.sha256(as_tiktoken_file(ranks)).hexdigest() == digest


def test_ranks_that_tiktoken_does_not_expect_are_refused() -> None:
    load = exact._load_packaged("cl100k_base")
    with pytest.raises(AforesaidError, match="for cl100k_base differ from this package"):
        load("an address", expected_hash="0" * 64)
