"""tiktoken itself, as the truth to compare with: its own loader, its own check of the ranks."""

import hashlib
import os
import socket
from pathlib import Path
from unittest.mock import patch

import pytest
import tiktoken

from aforesaid.tokens.exact import ENCODINGS, as_tiktoken_file, read_ranks

ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tiktoken.Encoding]:
    """Encodings by `tiktoken.get_encoding`, which finds the files in its cache and checks their SHA-256."""
    cache = tmp_path_factory.mktemp("tiktoken")
    for name in ENCODINGS:
        _put_into_cache(cache, name)
    with patch.dict(os.environ, {"TIKTOKEN_CACHE_DIR": str(cache)}):
        return {name: tiktoken.get_encoding(name) for name in ENCODINGS}


def _put_into_cache(cache: Path, name: str) -> None:
    key = hashlib.sha1(ADDRESS.format(name).encode()).hexdigest()
    (cache / key).write_bytes(as_tiktoken_file(read_ranks(name)[0]))


@pytest.fixture(params=ENCODINGS)
def reference(request: pytest.FixtureRequest, references: dict[str, tiktoken.Encoding]) -> tiktoken.Encoding:
    return references[request.param]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("somebody wants the network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
