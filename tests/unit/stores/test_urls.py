"""URLs: each store says for itself where a path begins."""

from pathlib import Path

import pytest

from aforesaid.errors import InvalidSetting
from aforesaid.stores.sqlite import SQLiteBackend
from aforesaid.stores.urls import backend_for, parse_url


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///memory.db", "memory.db"),
        ("sqlite:///data/my%20memory.db", "data/my memory.db"),
        ("sqlite:////var/memory.db", "/var/memory.db"),
        ("sqlite:memory.db", "memory.db"),
    ],
)
def test_sqlite_paths(url: str, path: str) -> None:
    backend = backend_for(url)
    assert isinstance(backend, SQLiteBackend)
    assert Path(backend.path) == Path(path)


@pytest.mark.parametrize("url", ["sqlite:", "sqlite://", "sqlite:///", "sqlite://memory.db"])
def test_sqlite_without_a_path_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match=r"names no file|name of a machine"):
        backend_for(url)


def test_an_address_keeps_host_path_and_options() -> None:
    address = parse_url("file://host/a%20b/c.json?x=1&y=")
    assert (address.scheme, address.host, address.path) == ("file", "host", "/a b/c.json")
    assert address.options == {"x": "1", "y": ""}
