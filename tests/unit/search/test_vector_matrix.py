"""Vectors in a matrix: of a few every one is compared, of many those that are near by their signs."""

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.search.signs import Signs
from aforesaid.search.vector_matrix import ALL_COMPARED, VectorMatrix

DIMENSION = 256


def unit(rows: Any) -> Any:
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def vectors() -> Any:
    return made(3_000)


@pytest.fixture(scope="module")
def many_vectors() -> Any:
    """Directions of which none matters more than others, in groups of 120, as messages have topics."""
    chance = numpy.random.default_rng(4)
    topics = chance.normal(size=(200, DIMENSION))
    noise = chance.normal(size=(ALL_COMPARED + 4_000, DIMENSION))
    return unit(topics[numpy.arange(len(noise)) % 200] + 0.8 * noise + 0.3).astype(numpy.float16)


def made(number: int) -> Any:
    """As an encoder makes them: something in common, and directions that matter more than others."""
    chance = numpy.random.default_rng(3)
    scales = 1 / numpy.arange(1, DIMENSION + 1) ** 0.5
    return unit(chance.normal(size=(number, DIMENSION)) * scales + 0.3).astype(numpy.float16)


def filled(vectors: Any) -> VectorMatrix:
    matrix = VectorMatrix(DIMENSION)
    for start in range(0, len(vectors), 100):
        block = vectors[start : start + 100]
        meta = [(0, start + at, 0, 0, 0, 0) for at in range(len(block))]
        matrix.append(block.tobytes(), range(len(block)), meta)
    return matrix


def expected(vectors: Any, asked: Any) -> Any:
    rows = vectors.astype(numpy.float64)
    middle = rows.mean(axis=0)
    return unit(rows - middle) @ unit((asked - middle)[None])[0]


@pytest.mark.parametrize("nearest", [1, 10, 50, 2_999])
def test_every_vector_is_compared_exactly(vectors: Any, nearest: int) -> None:
    asked = vectors[7].astype(numpy.float32)
    compared = filled(vectors).compare(asked, nearest=nearest)
    cosines = expected(vectors, asked)
    assert {row for row, _ in compared.best} == set(numpy.argsort(-cosines)[:nearest].tolist())
    assert abs(compared.lowest - cosines.min()) < 1e-3
    assert abs(compared.highest - 1) < 1e-3
    some = list(range(0, 3_000, 97))
    assert numpy.allclose(compared.similarities(some), cosines[some], atol=1e-3)


@pytest.mark.parametrize("nearest", [20, 100])
def test_what_is_gone_is_not_near(vectors: Any, nearest: int) -> None:
    matrix = filled(vectors)
    matrix.remove(range(10))
    compared = matrix.compare(vectors[3].astype(numpy.float32), nearest=nearest)
    assert all(row >= 10 for row, _ in compared.best)
    assert len(compared.best) == nearest
    assert matrix.alive == 2_990


@given(
    rows=st.lists(st.sampled_from([-1.0, 0.0, 0.25, 1.0]), min_size=1, max_size=400),
    nearest=st.integers(1, 6),
)
def test_the_best_are_found_whatever_is_alike(rows: list[float], nearest: int) -> None:
    """Many that are equally near, in any order: as many as asked for are returned, and none is nearer."""
    vectors = numpy.array([(one, (1 - one * one) ** 0.5) for one in rows], numpy.float16)
    matrix = VectorMatrix(2)
    matrix.append(vectors.tobytes(), range(len(rows)), [(0, at, 0, 0, 0, 0) for at in range(len(rows))])
    compared = matrix.compare(numpy.array([1.0, 0.0], numpy.float32), nearest=nearest)
    found = sorted(similarity for _, similarity in compared.best)
    assert found == sorted(compared.similarities(range(len(rows))))[-nearest:]


def test_what_is_added_later_is_found(vectors: Any) -> None:
    matrix = filled(vectors)
    asked = -vectors[0].astype(numpy.float32)
    matrix.compare(asked, nearest=5)
    (row,) = matrix.append(asked.astype(numpy.float16).tobytes(), [0], [(1, 1, 1, 1, 1, 1)])
    assert row in [found for found, _ in matrix.compare(asked, nearest=5).best]


def test_the_nearest_of_many_are_found_by_their_signs(many_vectors: Any) -> None:
    matrix = filled(many_vectors)
    for one in range(0, 100, 10):
        asked = many_vectors[one].astype(numpy.float32)
        compared = matrix.compare(asked, nearest=50)
        cosines = expected(many_vectors, asked)
        found = [row for row, _ in compared.best]
        assert len(found) == 50
        assert cosines[found].min() > numpy.partition(cosines, -50)[-50] - 1e-3
        assert abs(compared.highest - 1) < 1e-3
        assert cosines.min() - 1e-3 < compared.lowest < cosines.min() + 0.05
        for some in (range(0, len(many_vectors), 997), range(len(cosines))):
            assert numpy.allclose(compared.similarities(some), cosines[some], atol=1e-3)
    assert not matrix.compares_all


def test_all_are_compared_if_signs_do_not_find_the_nearest() -> None:
    vectors = made(ALL_COMPARED + 4_000)
    matrix = filled(vectors)
    asked = vectors[7].astype(numpy.float32)
    found = {row for row, _ in matrix.compare(asked, nearest=50).best}
    assert found == set(numpy.argsort(-expected(vectors, asked))[:50].tolist())
    assert matrix.compares_all


def test_of_many_what_is_gone_is_not_near_and_what_is_added_is(many_vectors: Any) -> None:
    matrix = filled(many_vectors)
    asked = many_vectors[3].astype(numpy.float32)
    matrix.compare(asked, nearest=5)
    matrix.remove(range(5_000))
    compared = matrix.compare(asked, nearest=100)
    assert len(compared.best) == 100
    assert all(row >= 5_000 for row, _ in compared.best)
    opposite = (-asked).astype(numpy.float16)
    (row,) = matrix.append(opposite.tobytes(), [0], [(1, 1, 1, 1, 1, 1)])
    assert row in [found for found, _ in matrix.compare(-asked, nearest=5).best]
    assert row not in [found for found, _ in matrix.compare(asked, nearest=100).best]
    assert not matrix.compares_all


@pytest.mark.parametrize("size", [40, 64, 100, 256])
def test_differences_of_signs_are_counted(size: int) -> None:
    chance = numpy.random.default_rng(5)
    rows, centre, direction = (chance.normal(size=shape) for shape in ((70_000, size), size, size))
    signs = Signs(centre, rows[:5_000])
    signs.add(rows[5_000:5_001])
    signs.add(rows[5_001:])
    differences = ((rows > centre) != (direction > 0)).sum(axis=1)
    assert numpy.array_equal(signs.differences(direction), differences)
