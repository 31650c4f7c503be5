"""Vectors in a matrix: every one is compared, exactly."""

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.search.vector_matrix import VectorMatrix

DIMENSION = 256


def unit(rows: Any) -> Any:
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def vectors() -> Any:
    """As an encoder makes them: something in common, and directions that matter more than others."""
    chance = numpy.random.default_rng(3)
    scales = 1 / numpy.arange(1, DIMENSION + 1) ** 0.5
    return unit(chance.normal(size=(3_000, DIMENSION)) * scales + 0.3).astype(numpy.float16)


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
