"""From a URL to a backend. Each store is imported only when its URL is asked for."""

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import cast
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from aforesaid.contracts import Backend
from aforesaid.errors import InvalidSetting, shown
from aforesaid.model.clock import Clock, system_clock
from aforesaid.model.ids import storable_text

STORES = {
    "file": "aforesaid.stores.json_file",
    "memory": "aforesaid.stores.memory",
    "postgres": "aforesaid.stores.postgres",
    "postgresql": "aforesaid.stores.postgres",
    "sqlite": "aforesaid.stores.sqlite",
    "redis": "aforesaid.stores.redis",
    "rediss": "aforesaid.stores.redis",
    "redis+cluster": "aforesaid.stores.redis",
    "rediss+cluster": "aforesaid.stores.redis",
}
"""URL scheme → the module whose `backend(address, clock)` opens it."""

SERVERS = {"http": "aforesaid.remote", "https": "aforesaid.remote"}
"""URL scheme → the module whose `RemoteMemory` is a memory behind a server."""


def is_server(url: object) -> bool:
    """Whether this is the address of a server, and not of a store."""
    return isinstance(url, str) and url.partition(":")[0].lower() in SERVERS


class Address(Struct, frozen=True, kw_only=True):
    """A store's URL, taken apart.

    `host` is what stands between `//` and the next slash. `path` is the rest up to the options, its
    leading slash included: where a path begins, each store says for itself.
    """

    url: str
    scheme: str
    host: str = ""
    path: str = ""
    options: dict[str, str] = {}

    def take(self, **allowed: Callable[[str], object]) -> dict[str, object]:
        """The options as values. One that is not known, or does not parse, is an error that names it."""
        values: dict[str, object] = {}
        for name, text in self.options.items():
            if name not in allowed:
                known = ", ".join(sorted(allowed)) or "none"
                raise InvalidSetting(
                    f"{self.scheme}: URLs have no option {shown(name)}; known: {known}",
                    field=name,
                    value=text,
                )
            try:
                values[name] = allowed[name](text)
            except (ValueError, KeyError):
                raise InvalidSetting(
                    f"the option {name} of a {self.scheme}: URL cannot be {shown(text)}",
                    field=name,
                    value=text,
                ) from None
        return values


def parse_url(url: str) -> Address:
    """The address of a store."""
    if not isinstance(url, str) or ":" not in url:
        raise InvalidSetting(
            f"a store URL looks like sqlite:///memory.db; got {shown(url)}", field="url", value=url
        )
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidSetting(f"{shown(url)} is no URL: {error}", field="url", value=url) from None
    if not storable_text(unquote(url)):
        raise InvalidSetting(f"a URL is valid Unicode without NUL; got {shown(url)}", field="url", value=url)
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
        options=dict(parse_qsl(parts.query, keep_blank_values=True)),
    )


OTHERS = {
    "mysql": "PostgreSQL is the SQL server that is supported",
    "mariadb": "PostgreSQL is the SQL server that is supported",
    "mssql": "PostgreSQL is the SQL server that is supported",
    "cockroachdb": "PostgreSQL is the SQL server that is supported",
    "mongodb": "use postgresql: or redis:",
    "dynamodb": "use postgresql: or redis:",
    "valkey": "Valkey is reached by redis:",
    "valkeys": "Valkey is reached by rediss:",
    "supabase": "use the connection string of the project's database, postgresql://…",
    "ws": "a server of ours is reached by http:",
    "wss": "a server of ours is reached by https:",
}
"""Schemes that people try → what to write instead."""


def _hint(scheme: str) -> str:
    """What was most likely meant: another product, a driver in the scheme, or a typing mistake."""
    base = scheme.partition("+")[0]
    if base in OTHERS:
        return f". {OTHERS[base]}"
    near = [base] if base in STORES else get_close_matches(base, [*STORES, *SERVERS], n=1)
    return f". Did you mean {near[0]}:?" if near else ""


def backend_for(url: str, *, clock: Clock = system_clock) -> Backend:
    """The backend of this URL, not yet open."""
    address = parse_url(url)
    return cast(Backend, import_module(STORES[address.scheme]).backend(address, clock))
