"""Parse Redis URLs and create clients."""

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
# URL option → its parser.
OPTIONS: dict[str, Callable[[str], object]] = {
    "prefix": str,
    "max_connections": int,
    "timeout": float,
    "eviction": str,
    **dict.fromkeys(TLS_OPTIONS, str),
}

DEFAULT_PORT = 6379


class Target(Struct, frozen=True, kw_only=True):
    """The parts of a Redis URL."""

    hosts: tuple[tuple[str, int], ...]
    cluster: bool
    tls: bool
    database: int
    username: str | None
    password: str | None

    @property
    def name(self) -> str:
        """The server's name for errors and logs, without a password."""
        return ",".join(f"{host}:{port}" for host, port in self.hosts)


def parse_target(url: str) -> Target:
    """Parse the URL; `redis+cluster://a:7000,b:7000` names several start nodes."""
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
    """Create a client that never repeats a command: a turn must not be stored twice after a lost reply."""
    common: dict[str, Any] = {
        "username": target.username,
        "password": target.password,
        # `connections` sets a deadline for each command, including the time to connect.
        "socket_timeout": None,
        "protocol": 2,
        "client_name": "aforesaid",
        # Otherwise the driver reads its own version from disk for every connection and blocks the event loop.
        "driver_info": None,
        "retry": Retry(NoBackoff(), 0),
        **tls,
    }
    if target.cluster:
        nodes = [ClusterNode(host, port) for host, port in target.hosts]
        return RedisCluster(
            startup_nodes=nodes,
            # Per node. More than are in use at once, because some may be closing.
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
    """Return the server's name of a given client, for errors and logs."""
    if isinstance(client, RedisCluster):
        return ",".join(node.name for node in client.startup_nodes)
    settings = client.connection_pool.connection_kwargs
    return f"{settings.get('host', 'the server')}:{settings.get('port', DEFAULT_PORT)}"


def _host(text: str) -> tuple[str, int]:
    """Parse host and port; an IPv6 address is in brackets."""
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
