"""`BoundedDict`: eviction by number and by size, in order of use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid._internal.bounded import BoundedDict


def test_the_oldest_item_is_evicted_beyond_the_limit() -> None:
    numbers: BoundedDict[str, int] = BoundedDict(2)
    for place, key in enumerate("abc"):
        numbers[key] = place
    assert dict(numbers) == {"b": 1, "c": 2}


def test_assigning_marks_as_used() -> None:
    numbers: BoundedDict[str, int] = BoundedDict(2)
    numbers.update(a=1, b=2)
    numbers["a"] = 3
    numbers["c"] = 4
    assert dict(numbers) == {"a": 3, "c": 4}


def test_use_marks_as_used_and_reading_does_not() -> None:
    numbers: BoundedDict[str, int] = BoundedDict(2)
    numbers.update(a=1, b=2)
    assert numbers.use("a") == 1
    assert numbers.get("b") == numbers["b"] == 2
    numbers["c"] = 3
    assert list(numbers) == ["a", "c"]
    assert numbers.use("b") is None


def test_the_limit_is_a_sum_of_sizes() -> None:
    texts: BoundedDict[str, str] = BoundedDict(5, size=len)
    texts.update(a="12", b="34")
    texts["c"] = "5"
    assert list(texts) == ["a", "b", "c"]
    texts["d"] = "67"
    assert list(texts) == ["b", "c", "d"]


def test_a_replaced_or_removed_item_no_longer_counts() -> None:
    texts: BoundedDict[str, str] = BoundedDict(5, size=len)
    texts["a"] = "1234"
    texts["a"] = "1"
    texts["b"] = "2345"
    assert list(texts) == ["a", "b"]
    del texts["b"]
    texts["c"] = "2345"
    assert list(texts) == ["a", "c"]
    texts.clear()
    texts["d"] = "12345"
    assert list(texts) == ["d"]


def test_the_latest_item_stays_even_if_it_is_too_large() -> None:
    texts: BoundedDict[str, str] = BoundedDict(3, size=len)
    texts["a"] = "1"
    texts["b"] = "12345"
    assert list(texts) == ["b"]


def test_values_that_grow_are_measured_again() -> None:
    lists: BoundedDict[str, list[int]] = BoundedDict(3, size=len)
    lists["a"] = first = [1]
    lists["b"] = [2]
    first.extend((2, 3))
    assert len(lists) == 2
    lists.remeasure()
    assert list(lists) == ["b"]


def test_a_missing_key_is_an_error() -> None:
    numbers: BoundedDict[str, int] = BoundedDict(2)
    with pytest.raises(KeyError):
        numbers["a"]
    with pytest.raises(KeyError):
        del numbers["a"]
    assert numbers.pop("a", 1) == 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), max_size=60), st.integers(1, 12))
def test_the_total_never_exceeds_the_limit(assigned: list[tuple[int, int]], limit: int) -> None:
    sizes: BoundedDict[int, int] = BoundedDict(limit, size=lambda value: value)
    for key, value in assigned:
        sizes[key] = value
        assert sizes[key] == value
        assert sum(sizes.values()) <= limit or len(sizes) == 1


def test_an_eviction_is_reported_and_a_deletion_is_not() -> None:
    evicted: list[tuple[str, str]] = []
    texts: BoundedDict[str, str] = BoundedDict(
        5, size=len, on_evict=lambda key, value: evicted.append((key, value))
    )
    texts["a"] = "12"
    texts["b"] = "34"
    del texts["a"]
    texts["c"] = "5678"
    assert evicted == [("b", "34")]
    assert texts.used == 4
