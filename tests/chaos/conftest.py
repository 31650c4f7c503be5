"""The layer in a world of its own, as the tests of layers have it."""

from tests.unit.layers.conftest import world

__all__ = ["world"]
