"""Where the server is and what opens it: the URL and the key, checked. No I/O. Below: stores.urls, errors."""

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from aforesaid.errors import InvalidSetting, shown
from aforesaid.stores.urls import is_server


class Secret:
    """A key that shows itself to nobody who prints it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret('…')"


class Server(Struct, frozen=True, kw_only=True):
    """A server's address. `base` ends without a slash; a path in it is where a proxy has put the server."""

    base: str
    host: str
    tls: bool
    loopback: bool
    key: Secret | None = None

    @property
    def authorization(self) -> dict[str, str]:
        return {} if self.key is None else {"authorization": f"Bearer {self.key.reveal()}"}


def server_at(url: str, *, key: str | None = None, plain_http: bool = False) -> Server:
    """The server at this URL. A key goes to another machine over TLS, or not at all without `plain_http`."""
    parts = _parts(url)
    host = parts.hostname or ""
    _refuse_other_services(host, url)
    server = Server(
        base=f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}",
        host=host,
        tls=parts.scheme == "https",
        loopback=_is_loopback(host),
        key=_key(key),
    )
    if server.key is not None and not (server.tls or server.loopback or plain_http):
        raise InvalidSetting(
            f"the key would go to {host} unencrypted: use https://, or plain_http=True where the way "
            "there is private",
            field="url",
            value=url,
        )
    return server


def _parts(url: str) -> SplitResult:
    if not is_server(url):
        raise InvalidSetting(
            f"a server's URL looks like https://memory.example.org; got {shown(url)}", field="url", value=url
        )
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise InvalidSetting(f"{shown(url)} is no URL: {error}", field="url", value=url) from None
    if parts.username is not None or parts.password is not None:
        # Not shown: what stands there is a secret.
        raise InvalidSetting("a server's URL has no user and password in it; give key=…", field="url")
    if not usable or parts.query or parts.fragment or not url.isascii() or any(c <= " " for c in url):
        raise InvalidSetting(
            f"a server's URL is a host, a port and a path, in ASCII; got {shown(url)}", field="url", value=url
        )
    return parts


def _refuse_other_services(host: str, url: str) -> None:
    """Refuse addresses that are known to be something else, before anything is sent there."""
    if host.endswith((".supabase.co", ".supabase.com")):
        project = host.partition(".")[0]
        raise InvalidSetting(
            f"{host} is the API of a Supabase project, not a Aforesaid server; use the connection string of "
            f"its database: postgresql://postgres:PASSWORD@db.{project}.supabase.co:5432/postgres",
            field="url",
            value=url,
        )


def _key(key: str | None) -> Secret | None:
    if key is None:
        return None
    if not isinstance(key, str) or not key or not all("!" <= character <= "~" for character in key):
        raise InvalidSetting("a key is printable ASCII without spaces", field="key")  # and is not shown
    return Secret(key)


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
