"""Keep of the imported tests those that reach a server."""

from pathlib import Path

import pytest

from tests.report import parameters_of

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [
        item
        for item in items
        if not item.path.is_relative_to(FOLDER) or "server" in parameters_of(item.nodeid)
    ]
