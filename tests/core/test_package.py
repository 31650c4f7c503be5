"""The package as it is met: what it exports, what it pulls in."""

import subprocess
import sys

import recollect

HEAVY = (
    *("apsw", "numpy", "tiktoken", "psycopg", "redis", "typer", "rich", "litestar", "yaml", "pydantic"),
    *("httpx", "recollect.client"),
)


def test_every_public_name_is_there_and_sorted() -> None:
    assert recollect.__all__ == sorted(recollect.__all__)
    for name in recollect.__all__:
        assert getattr(recollect, name).__doc__ or name in ("Channel", "Priority", "Role", "Status")


def test_importing_pulls_in_no_driver_no_server_and_no_numpy() -> None:
    code = "import sys, recollect; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not set(HEAVY) & set(loaded.split())
