"""The package as it is met: what it exports, what it pulls in."""

import subprocess
import sys

import aforesaid

HEAVY = (
    *("apsw", "numpy", "tiktoken", "psycopg", "redis", "typer", "rich", "litestar", "yaml", "pydantic"),
    *("httpx", "aforesaid.remote"),
)


def test_every_public_name_is_there_and_sorted() -> None:
    assert aforesaid.__all__ == sorted(aforesaid.__all__)
    for name in aforesaid.__all__:
        assert getattr(aforesaid, name).__doc__ or name in ("Channel", "Priority", "Role", "Status")


def test_importing_pulls_in_no_driver_no_server_and_no_numpy() -> None:
    code = "import sys, aforesaid; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not set(HEAVY) & set(loaded.split())


def test_sync_is_imported_at_its_first_use() -> None:
    """An error names `aforesaid.sync.open`, so it works after `import aforesaid`."""
    code = (
        "import sys, aforesaid; assert 'aforesaid.sync' not in sys.modules\n"
        "with aforesaid.sync.open() as memory: memory.of('erin').remember('leeks')\n"
        "from aforesaid import sync; assert sync is aforesaid.sync"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_line_needs_no_test_tools() -> None:
    """A user installs neither pytest nor Hypothesis."""
    program = "import sys; sys.modules |= dict.fromkeys(('pytest', 'hypothesis')); import aforesaid.cli.app"
    subprocess.run([sys.executable, "-c", program], check=True)
