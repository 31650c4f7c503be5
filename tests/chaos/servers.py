"""Real servers that can be killed, frozen and started again on the same data. Linux only, for its /proc."""

import os
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from shutil import rmtree

from psycopg.conninfo import conninfo_to_dict

from tests.servers.ports import free_port
from tests.servers.postgres import Databases, PostgresServer
from tests.servers.redis import _await_answer, _end_with_parent, packaged_binary

RESTART_SECONDS = 60


class Server(ABC):
    """What happens to a server. Everything here blocks."""

    port: int

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def url(self, port: int) -> str:
        """The store's URL, by way of this port."""

    @abstractmethod
    def process_id(self) -> int: ...

    @abstractmethod
    def restart(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    def kill(self) -> None:
        """SIGKILL, to all of it at once."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in family(self.process_id()):
            try:
                os.kill(process, number)
            except ProcessLookupError:
                continue


class Redis(Server):
    """A server with an append-only file."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="aforesaid-chaos-redis-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder)]
        with (self._folder / f"server-{self.port}.log").open("ab") as output:
            self._process = subprocess.Popen(
                [packaged_binary(), *options, "--save", "", "--appendonly", "yes"],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509  one call into the C library
            )
        _await_answer(self.port, self._process, self._folder)

    def url(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}/0?timeout=5"

    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        super().kill()
        assert self._process is not None
        self._process.wait()

    def restart(self) -> None:
        self.start()

    def stop(self) -> None:
        self.kill()
        rmtree(self._folder, ignore_errors=True)


class Postgres(Server):
    """A server with one database in it."""

    def __init__(self) -> None:
        self._server = _KeptPrograms()

    def start(self) -> None:
        self._server.start()
        self._database = Databases(self._server.url).new()
        self.port = int(conninfo_to_dict(self._database)["port"] or 0)

    def url(self, port: int) -> str:
        return self._database.replace(f":{self.port}/", f":{port}/") + "?connect_timeout=2"

    def process_id(self) -> int:
        assert self._server._process is not None
        return self._server._process.pid

    def kill(self) -> None:
        super().kill()
        assert self._server._process is not None
        self._server._process.wait()

    def restart(self) -> None:
        """Its children may take a moment to notice that they are orphans; until then it does not start."""
        deadline = time.monotonic() + RESTART_SECONDS
        while True:
            self._server._launch(self._server._programs(), self._server._folder / "data")
            try:
                self._server._wait()
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def stop(self) -> None:
        self.thaw()
        self._server.stop()


class _KeptPrograms(PostgresServer):
    """The programs are copied once, however often the server is started."""

    _kept: Path | None = None

    def _programs(self) -> Path:
        if self._kept is None:
            self._kept = super()._programs()
        return self._kept


SERVERS: dict[str, type[Server]] = {"redis": Redis, "postgres": Postgres}


def family(process: int) -> list[int]:
    """The process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # it has just ended
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found = [process]
    for one in found:
        found += children.get(one, [])
    return found
