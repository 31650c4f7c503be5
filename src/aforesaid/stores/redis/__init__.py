"""The Redis store: one server or a cluster, shared by many processes and machines.

- `backend` opens the server; `addresses` parses URLs and `connections` sends commands.
- `store` is one owner's part. It consists of `records`, `log` and `conversation_index`, which share an
  `owner_connection`, which also names the keys.
- `values` encodes what the keys contain; `scripts` loads the scripts in `lua/`.

`docs/stores/redis.md` describes the keys and the recovery after a crash between two of them.
"""

from aforesaid.errors import MissingExtra
from aforesaid.model.clock import Clock
from aforesaid.stores._arguments import Address

try:
    import hiredis as _hiredis  # noqa: F401
    import redis.asyncio as _redis  # noqa: F401
except ImportError as error:
    raise MissingExtra("the Redis store", extra="redis") from error

from aforesaid.stores.redis.addresses import OPTIONS, TLS_OPTIONS
from aforesaid.stores.redis.backend import RedisBackend

__all__ = ["RedisBackend", "backend"]


def backend(address: Address, clock: Clock) -> RedisBackend:
    """Open `redis://host:6379/0`, or `rediss://` for TLS; `redis+cluster://` or `rediss+cluster://` for a
    cluster.

    Options: `prefix` of every key, `max_connections`, `timeout` in seconds, `eviction` (refuse or
    accept), and for TLS `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_cert_reqs`.
    """
    taken = address.take(**OPTIONS)
    tls = {name: str(taken.pop(name)) for name in TLS_OPTIONS if name in taken}
    return RedisBackend(address.url.partition("?")[0], clock=clock, tls=tls, **taken)  # type: ignore[arg-type]
