"""A PostgreSQL primary with a streaming standby, which change roles when the primary fails."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psycopg.conninfo import conninfo_to_dict

from tests.chaos.servers import family
from tests.servers.postgres import Databases, PostgresServer

LAG = 20
CONNECT = "target_session_attrs=read-write&connect_timeout=2"


class Replicas:
    """Two servers. With `synchronous`, a commit waits until the standby has it on disk."""

    def __init__(self, *, synchronous: bool) -> None:
        settings = ["synchronous_standby_names=*"] if synchronous else []
        self._servers = [PostgresServer(*settings) for _ in range(2)]
        self.primary, self.standby = self._servers

    def start(self) -> None:
        self.primary.start()
        self.standby.follow(self.primary)
        self._database = conninfo_to_dict(Databases(self.primary.url).new())

    @property
    def url(self) -> str:
        """The database on whichever server is the primary."""
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self._servers)
        return f"{self._login}@{hosts}/{self._database['dbname']}?{CONNECT}"

    @property
    def _login(self) -> str:
        return f"postgresql://{self._database['user']}:{self._database['password']}"

    def send(self, server: PostgresServer, kind: signal.Signals) -> None:
        """Send a signal to a server and all its processes."""
        for process in family(server.process_id):
            try:
                os.kill(process, kind)
            except ProcessLookupError:
                continue

    def lose_primary(self) -> None:
        """Kill the primary and promote the standby."""
        self.send(self.primary, signal.SIGKILL)
        self.primary.reap()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def repair(self) -> None:
        """Make the failed server the standby."""
        self.standby.follow(self.primary)

    def stop(self) -> None:
        for each in self._servers:
            each.stop()


@contextmanager
def replicas(*, synchronous: bool) -> Iterator[Replicas]:
    pair = Replicas(synchronous=synchronous)
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()


# Failures of a primary. `meanwhile` lets the clients go on for a while.


def kill(pair: Replicas, meanwhile: Callable[[], None]) -> None:
    """The primary dies, and the standby takes over a moment later."""
    pair.lose_primary()
    meanwhile()


def freeze(pair: Replicas, meanwhile: Callable[[], None]) -> None:
    """The primary hangs without closing a connection, until it is fenced."""
    pair.send(pair.primary, signal.SIGSTOP)
    meanwhile()
    pair.lose_primary()


def lag(pair: Replicas, meanwhile: Callable[[], None]) -> None:
    """The primary dies while the standby has not received what the clients stored last."""
    pair.standby.interrupt()
    # Long enough that turns time out, go to the spool, and are replayed to the lone primary.
    for _ in range(LAG):
        meanwhile()
    pair.send(pair.primary, signal.SIGKILL)
    pair.primary.reap()
    pair.standby.resume()
    pair.standby.promote()
    pair.primary, pair.standby = pair.standby, pair.primary


FAULTS = {"kill": kill, "freeze": freeze, "lag": lag}
