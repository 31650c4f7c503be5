"""Parse store URLs and create backends. Import a store's module only when its URL is used."""

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
"""URL scheme → the module with the function `backend(address, clock)`."""

SERVERS = ("http", "https")
"""URL schemes of servers, which `aforesaid.connect` opens."""


def is_server(url: object) -> bool:
    """Return whether the URL addresses a server rather than a store."""
    return isinstance(url, str) and url.partition(":")[0].lower() in SERVERS


class Address(Struct, frozen=True, kw_only=True):
    """The parts of a store URL.

    `host` is the text between `//` and the next slash. `path` is the rest up to the options, with its leading
    slash. Each store interprets the path itself.
    """

    url: str
    scheme: str
    host: str = ""
    path: str = ""
    options: dict[str, str] = {}

    def take(self, **allowed: Callable[[str], object]) -> dict[str, object]:
        """Parse the options. Raise `InvalidSetting` for an unknown option or an invalid value."""
        values: dict[str, object] = {}
        for name, text in self.options.items():
            if name not in allowed:
                options = ", ".join(sorted(allowed)) or "none"
                raise InvalidSetting(
                    f"{self.scheme}: URLs have no option {shown(name)}; known: {options}",
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
        options=dict(parse_qsl(parts.query, keep_blank_values=True)),
    )


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
"""Unsupported scheme → what to use instead."""


def _hint(scheme: str) -> str:
    """Suggest a scheme: for another product, for a driver in the scheme, or for a typing error."""
    base = scheme.partition("+")[0]
    if base in UNSUPPORTED:
        return f"; {UNSUPPORTED[base]}"
    near = [base] if base in STORES else get_close_matches(base, [*STORES, *SERVERS], n=1)
    return f"; did you mean {near[0]}:?" if near else ""


def backend_for(url: str, *, clock: Clock = system_clock) -> Backend:
    """Return the backend for this URL, not opened."""
    address = parse_url(url)
    # Each store imports its driver, which is slow and may not be installed.
    return cast(Backend, import_module(STORES[address.scheme]).backend(address, clock))
