"""The table at the end of a run counts every test for the stores that it is about."""

from types import SimpleNamespace

import pytest

from tests.report import counted, lines, stores_of


@pytest.mark.parametrize(
    ("test", "stores"),
    [
        ("tests/contract/stores/test_memory.py::TestInMemory::test_x", ["memory"]),
        ("tests/integration/stores/test_json_file_kills.py::test_x[redis]", ["file"]),
        ("tests/contract/stores/test_sqlite.py::test_x", ["sqlite"]),
        ("tests/integration/stores/test_redis_keys.py::test_x[cluster]", ["redis"]),
        ("tests/integration/stores/test_postgres_api.py::test_x", ["postgres"]),
        ("tests/unit/stores/test_urls.py::test_x", []),
        ("tests/acceptance/test_sessions.py::test_x[file]", ["file"]),
        ("tests/acceptance/test_sessions.py::test_x[file]@tests.acceptance.test_sessions.test_x", ["file"]),
        ("tests/unit/memory/test_chats.py::test_x[redis-broken3]", ["redis"]),
        ("tests/unit/transfer/test_copy.py::test_x[sqlite-postgres]", ["sqlite", "postgres"]),
        ("tests/unit/transfer/test_copy.py::test_x[memory-memory]", ["memory"]),
        ("tests/unit/model/test_messages.py::test_x[a memory of mine]", []),
        ("tests/unit/model/test_messages.py::test_x", []),
    ],
)
def test_a_test_is_about_the_stores_that_its_name_says(test: str, stores: list[str]) -> None:
    assert stores_of(test) == stores


def report(test: str, reason: str = "") -> SimpleNamespace:
    crash = SimpleNamespace(message=reason) if reason else None
    return SimpleNamespace(nodeid=test, longrepr=SimpleNamespace(reprcrash=crash))


def test_a_server_that_does_not_start_is_reported_with_its_reason() -> None:
    stats = {
        "passed": [report("t.py::a[redis]"), report("t.py::b[redis-sqlite]"), report("t.py::c")],
        "error": [report("t.py::a[postgres]", "RuntimeError: no server\nmore")],
        "skipped": [report("t.py::d[file]")],
    }
    table = counted(stats)
    assert table["redis"] == {"passed": 2}
    assert table["sqlite"] == {"passed": 1}
    assert table["file"] == {"skipped": 1}
    shown = list(lines(stats))
    assert "postgres: 1 tests could not be set up or cleared up: RuntimeError: no server" in shown
    assert "not tested in this run" in next(line for line in shown if line.startswith("memory"))
