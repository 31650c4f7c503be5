"""The fixture of the resilient layer."""

from tests.unit.layers.conftest import setup

__all__ = ["setup"]
