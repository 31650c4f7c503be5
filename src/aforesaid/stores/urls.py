"""Parse store URLs and create backends. Import a store's module only when its URL is used."""

from urllib.parse import parse_qsl, unquote, urlsplit

from aforesaid.contracts import Backend
from aforesaid.errors import InvalidSetting, shown
from aforesaid.model.clock import Clock, system_clock
from aforesaid.model.ids import storable_text
from aforesaid.stores._arguments import Address

# URL scheme → the store's package in `stores`.
STORES = {
    "file": "json_file",
    "memory": "memory",
    "postgres": "postgres",
    "postgresql": "postgres",
    "sqlite": "sqlite",
    "redis": "redis",
    "rediss": "redis",
    "redis+cluster": "redis",
    "rediss+cluster": "redis",
}

# URL schemes of servers, which `aforesaid.connect` opens.
SERVERS = ("http", "https")


def is_server(url: object) -> bool:
    """Return whether the URL addresses a server rather than a store."""
    return isinstance(url, str) and url.partition(":")[0].lower() in SERVERS


def parse_url(url: str) -> Address:
    """Parse the URL of a store. Raise `InvalidSetting`."""
    if not isinstance(url, str) or ":" not in url:
        raise InvalidSetting(
            f"a store URL looks like sqlite:///memory.db; got {shown(url)}", field="url", value=url
        )
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidSetting(f"{shown(url)} is not a URL: {error}", field="url", value=url) from None
    if not storable_text(unquote(url)):
        raise InvalidSetting(
            f"a URL must be valid Unicode without NUL; got {shown(url)}", field="url", value=url
        )
    if parts.scheme not in STORES:
        raise InvalidSetting(
            f"there is no store for {shown(parts.scheme + ':')}; known: {', '.join(sorted(STORES))}"
            f"{_hint(parts.scheme)}",
            field="url",
            value=url,
        )
    return Address(
        url=url,
        scheme=parts.scheme,
        host=parts.netloc,
        path=unquote(parts.path),
        # Keep empty values, so that `?search=` is refused instead of ignored.
        options=dict(parse_qsl(parts.query, keep_blank_values=True)),
    )


# Unsupported scheme → what to use instead.
UNSUPPORTED = {
    "mysql": "the supported SQL server is PostgreSQL",
    "mariadb": "the supported SQL server is PostgreSQL",
    "mssql": "the supported SQL server is PostgreSQL",
    "cockroachdb": "the supported SQL server is PostgreSQL",
    "mongodb": "use postgresql: or redis:",
    "dynamodb": "use postgresql: or redis:",
    "valkey": "for Valkey use redis:",
    "valkeys": "for Valkey use rediss:",
    "supabase": "use the connection string of the project's database, postgresql://…",
    "ws": "for an Aforesaid server use http:",
    "wss": "for an Aforesaid server use https:",
}


def _hint(scheme: str) -> str:
    """Suggest a scheme: for another product, for a driver in the scheme, or for a typing error."""
    base = scheme.partition("+")[0]
    if base in UNSUPPORTED:
        return f"; {UNSUPPORTED[base]}"
    from difflib import get_close_matches

    near = [base] if base in STORES else get_close_matches(base, [*STORES, *SERVERS], n=1)
    return f"; did you mean {near[0]}:?" if near else ""


def backend_for(url: str, *, clock: Clock = system_clock) -> Backend:
    """Return the backend for this URL, not opened. Import only the module of its store."""
    address = parse_url(url)
    match STORES[address.scheme]:
        case "json_file":
            from aforesaid.stores import json_file

            return json_file.backend(address, clock)
        case "memory":
            from aforesaid.stores import memory

            return memory.backend(address, clock)
        case "postgres":
            from aforesaid.stores import postgres

            return postgres.backend(address, clock)
        case "redis":
            from aforesaid.stores import redis

            return redis.backend(address, clock)
        case _:
            from aforesaid.stores import sqlite

            return sqlite.backend(address, clock)
