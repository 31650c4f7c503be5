"""From a URL to a client that is not connected yet. Below: the driver."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct
from redis.asyncio import Connection, ConnectionPool, Redis, RedisCluster, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from aforesaid.errors import InvalidSetting

Client = Redis | RedisCluster

TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
OPTIONS: dict[str, Callable[[str], object]] = {
    "prefix": str,
    "max_connections": int,
    "timeout": float,
    **dict.fromkeys(TLS_OPTIONS, str),
}
"""What may stand behind the `?` of a URL."""

DEFAULT_PORT = 6379


class Target(Struct, frozen=True, kw_only=True):
    """Where a URL leads."""

    hosts: tuple[tuple[str, int], ...]
    cluster: bool
    tls: bool
    database: int
    username: str | None
    password: str | None

    @property
    def name(self) -> str:
        """The server as errors and logs name it: never with a password."""
        return ",".join(f"{host}:{port}" for host, port in self.hosts)


def parse_target(url: str) -> Target:
    """Take the URL apart; `redis+cluster://a:7000,b:7000` names several nodes to start from."""
    parts = urlsplit(url)
    if parts.query:
        raise InvalidSetting("options of a Redis URL are arguments here", field="url")
    security, _, kind = parts.scheme.partition("+")
    if security not in ("redis", "rediss") or kind not in ("", "cluster"):
        raise InvalidSetting(
            f"a Redis URL begins with redis://, rediss://, redis+cluster:// or rediss+cluster://; "
            f"got {parts.scheme}://",
            field="url",
        )
    hosts = tuple(_host(text) for text in parts.netloc.rpartition("@")[2].split(","))
    if len(hosts) > 1 and not kind:
        raise InvalidSetting(f"a {security}:// URL names one server; several are a cluster", field="url")
    username, password = _credentials(parts)
    return Target(
        hosts=hosts,
        cluster=kind == "cluster",
        tls=security == "rediss",
        database=_database(parts, cluster=bool(kind)),
        username=username,
        password=password,
    )


def make_client(target: Target, *, connections: int, tls: Mapping[str, str]) -> Client:
    """A client that never sends a command twice: a turn whose answer got lost must not be doubled."""
    common: dict[str, Any] = {
        "username": target.username,
        "password": target.password,
        # Each command has its deadline in `connections`, connecting included.
        "socket_timeout": None,
        "protocol": 2,
        "client_name": "aforesaid",
        # Else the driver looks up its own version on disk for every connection, while the event loop waits.
        "driver_info": None,
        "retry": Retry(NoBackoff(), 0),
        **tls,
    }
    if target.cluster:
        nodes = [ClusterNode(host, port) for host, port in target.hosts]
        return RedisCluster(
            startup_nodes=nodes,
            # On each node. More than are ever in use at once: some may be on their way to be closed.
            max_connections=2 * connections + 8,
            ssl=target.tls,
            **common,
        )
    ((host, port),) = target.hosts
    pool = ConnectionPool(
        connection_class=SSLConnection if target.tls else Connection,
        host=host,
        port=port,
        db=target.database,
        **common,
    )
    return Redis.from_pool(pool)


def name_of(client: Client) -> str:
    """The server of a client that was handed in, for errors and logs."""
    if isinstance(client, RedisCluster):
        return ",".join(node.name for node in client.startup_nodes)
    settings = client.connection_pool.connection_kwargs
    return f"{settings.get('host', 'the server')}:{settings.get('port', DEFAULT_PORT)}"


def _host(text: str) -> tuple[str, int]:
    """Host and port; an address of version 6 stands in brackets."""
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise InvalidSetting(f"a Redis URL has host:port; got {text!r}", field="url") from None
    return parts.hostname or "localhost", port


def _credentials(parts: SplitResult) -> tuple[str | None, str | None]:
    username, _, password = parts.netloc.rpartition("@")[0].partition(":")
    return unquote(username) or None, unquote(password) or None


def _database(parts: SplitResult, *, cluster: bool) -> int:
    text = unquote(parts.path.strip("/")) or "0"
    if not (text.isascii() and text.isdigit()):
        raise InvalidSetting(f"the path of a Redis URL is a database number; got {text!r}", field="url")
    if cluster and int(text):
        raise InvalidSetting("a Redis Cluster has no databases but 0", field="url")
    return int(text)
