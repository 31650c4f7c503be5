"""Vectors in a matrix: every one is compared, exactly."""

from typing import Any

import numpy
import pytest

from recollect.search.comparing import VectorMatrix

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
        meta = [(0, start + at, 0, 0, 0) for at in range(len(block))]
        matrix.append(block.tobytes(), range(len(block)), meta)
    return matrix


def expected(vectors: Any, asked: Any) -> Any:
    rows = vectors.astype(numpy.float64)
    middle = rows.mean(axis=0)
    return unit(rows - middle) @ unit((asked - middle)[None])[0]


def test_every_vector_is_compared_exactly(vectors: Any) -> None:
    asked = vectors[7].astype(numpy.float32)
    compared = filled(vectors).compare(asked, nearest=50)
    cosines = expected(vectors, asked)
    assert {row for row, _ in compared.best} == set(numpy.argsort(-cosines)[:50].tolist())
    assert abs(compared.lowest - cosines.min()) < 1e-3
    assert abs(compared.highest - 1) < 1e-3
    some = list(range(0, 3_000, 97))
    assert numpy.allclose(compared.similarities(some), cosines[some], atol=1e-3)


def test_what_is_gone_is_not_near(vectors: Any) -> None:
    matrix = filled(vectors)
    matrix.remove(range(10))
    compared = matrix.compare(vectors[3].astype(numpy.float32), nearest=100)
    assert all(row >= 10 for row, _ in compared.best)
    assert matrix.alive == 2_990


def test_what_is_added_later_is_found(vectors: Any) -> None:
    matrix = filled(vectors)
    asked = -vectors[0].astype(numpy.float32)
    matrix.compare(asked, nearest=5)
    (row,) = matrix.append(asked.astype(numpy.float16).tobytes(), [0], [(1, 1, 1, 1, 1)])
    assert row in [found for found, _ in matrix.compare(asked, nearest=5).best]
