"""Parse and check the URL and the key of a server. No I/O."""

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from aforesaid.errors import InvalidSetting, shown
from aforesaid.stores.urls import is_server


class Secret:
    """A key that does not appear in repr or logs."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret('…')"


class Server(Struct, frozen=True, kw_only=True):
    """A server's address. `base` has no trailing slash; it may have a path if a proxy adds a prefix."""

    base: str
    host: str
    tls: bool
    loopback: bool
    key: Secret | None = None

    @property
    def authorization(self) -> dict[str, str]:
        return {} if self.key is None else {"authorization": f"Bearer {self.key.reveal()}"}


def server_at(url: str, *, key: str | None = None, plain_http: bool = False) -> Server:
    """Return the server at this URL. Without `plain_http`, a key for another machine requires TLS."""
    parts = _parts(url)
    host = parts.hostname or ""
    _refuse_other_services(host, url)
    server = Server(
        # Without a trailing slash, because paths begin with one.
        base=f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}",
        host=host,
        tls=parts.scheme == "https",
        loopback=_is_loopback(host),
        key=_key(key),
    )
    if server.key is not None and not (server.tls or server.loopback or plain_http):
        raise InvalidSetting(
            f"the key would be sent to {host} unencrypted: use https://, "
            "or allow `plain_http` on a private network",
            field="url",
            value=url,
        )
    return server


def _parts(url: str) -> SplitResult:
    if not is_server(url):
        raise InvalidSetting(
            f"a server's URL must look like https://memory.example.org; got {shown(url)}",
            field="url",
            value=url,
        )
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise InvalidSetting(f"{shown(url)} is not a URL: {error}", field="url", value=url) from None
    if parts.username is not None or parts.password is not None:
        # The message does not quote the URL, because it contains a secret.
        raise InvalidSetting(
            "a server's URL must not contain a user or password; pass the key on its own", field="url"
        )
    if not usable or parts.query or parts.fragment or not url.isascii() or any(c <= " " for c in url):
        raise InvalidSetting(
            f"a server's URL must be a host, a port and a path, in ASCII; got {shown(url)}",
            field="url",
            value=url,
        )
    return parts


def _refuse_other_services(host: str, url: str) -> None:
    """Raise `InvalidSetting` for hosts of other services, before anything is sent."""
    if host.endswith((".supabase.co", ".supabase.com")):
        # A common mistake, and the key would go to a service that is not ours.
        project = host.partition(".")[0]
        raise InvalidSetting(
            f"{host} is the API of a Supabase project, not an Aforesaid server; use the connection string of "
            f"its database: postgresql://postgres:PASSWORD@db.{project}.supabase.co:5432/postgres",
            field="url",
            value=url,
        )


def _key(key: str | None) -> Secret | None:
    if key is None:
        return None
    if not isinstance(key, str) or not key or not all("!" <= character <= "~" for character in key):
        raise InvalidSetting(
            "a key must be printable ASCII without spaces", field="key"
        )  # do not quote the key
    return Secret(key)


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
