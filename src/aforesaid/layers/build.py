"""Wrap a backend in layers, chosen by its URL, options and settings.

The order, from the outside in:

- audited: it also records cache hits
- cached: it holds plain text, in memory only
- encrypted: it also seals the content of the spool
- resilient
- timed: it measures the store alone

By default a store behind a network gets the resilient layer, because networks and servers fail independently
of this process, and the cached layer, which checks every read. An embedded store gets neither: it fails
together with the disk that holds the spool, and its data are in this process. A layer that is not used is
not imported.
"""

import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec.structs import replace

from aforesaid._internal.arguments import validated
from aforesaid.contracts import Backend
from aforesaid.errors import InvalidSetting, shown
from aforesaid.layers.base import ReachedMark
from aforesaid.model.clock import Clock, system_clock
from aforesaid.settings import CACHES, RESILIENCE, ResilienceConfig, Settings

if TYPE_CHECKING:
    from aforesaid.layers.cached import Cache
    from aforesaid.layers.options import AuditChoice, EncryptionChoice
    from aforesaid.layers.resilient import Resilience

ResilienceChoice: TypeAlias = "Resilience | Literal['auto', 'off']"
CacheChoice: TypeAlias = "Cache | Literal['auto', 'off']"

SERVERS = ("redis", "rediss", "redis+cluster", "rediss+cluster", "postgres", "postgresql")

# URL query options that select other data: the prefix of Redis, and the server and database of PostgreSQL.
PLACE_OPTIONS = ("prefix", "host", "hostaddr", "port", "dbname", "service")


# Not a msgspec Struct: its signature would need the types of the layers, which are slow to import.
@validated
@dataclass(frozen=True, kw_only=True)
class Layers:
    """The layers around a store.

    - `encryption`: the master key (`env:NAME`, `file:PATH`, the key itself, a `KeyProvider`), or an
      `Encryption`. Images cannot be stored as blobs then.
    - `audit`: the path of the audit trail, or an `AuditTrail`.
    - `cache`: "auto" caches reads of a store behind a network for the `cache_ttl` of the configuration and
      checks each against the record, so that none is stale. A `Cache` caches with its own options.
    - `resilience`: behaviour while the store is unavailable. "auto" spools turns for a store behind a network
      and is "off" for an embedded one. A store that this machine has never reached must be available at the
      start, unless `Resilience(start_unreached=True)`.
    - `timed`: measure every store operation, as a server does. Calls of the manager are always measured.
    """

    encryption: "EncryptionChoice | None" = None
    audit: "AuditChoice | None" = None
    cache: CacheChoice = "auto"
    resilience: ResilienceChoice = "auto"
    timed: bool = False


def layered(
    backend: Backend, url: str, layers: Layers, *, cache_ttl: int = 0, clock: Clock = system_clock
) -> Backend:
    """Wrap the backend of this URL in the layers. `cache_ttl` is in seconds, for `cache="auto"`."""
    if layers.timed:
        from aforesaid.layers.timed import timed

        backend = timed(backend, name=store_name(url))
    backend = with_resilience(backend, url, layers.resilience, sealed=layers.encryption is not None)
    if layers.encryption is not None:
        from aforesaid.layers.encrypted import encrypted
        from aforesaid.layers.options import encryption_of

        backend = encrypted(backend, encryption_of(layers.encryption))
    backend = with_cache(backend, url, layers.cache, ttl=cache_ttl)
    if layers.audit is not None:
        from aforesaid.layers.audited import audited
        from aforesaid.layers.options import trail_of

        backend = audited(backend, trail_of(layers.audit, clock=clock))
    return backend


def layers_in(settings: Settings, url: str) -> Layers:
    """Return the layers that the settings configure for the store at this URL."""
    return Layers(
        resilience=resilience_in(settings.resilience, url),
        cache=_cache_in(settings),
        **_protection_in(settings),
    )


def _cache_in(settings: Settings) -> CacheChoice:
    wanted, seconds = settings.resilience.cache, settings.conversation.cache_ttl
    if wanted not in CACHES:
        raise InvalidSetting.not_in("cache", wanted, CACHES)
    if wanted == "off" or seconds <= 0:
        return "off"
    if wanted == "auto":
        return "auto"
    from aforesaid.layers.cached import Cache

    return Cache(ttl=timedelta(seconds=seconds))


def resilience_in(config: ResilienceConfig, url: str) -> ResilienceChoice:
    """Return the `resilience` argument that the settings configure for the store at this URL."""
    if config.resilience not in RESILIENCE:
        raise InvalidSetting.not_in("resilience", config.resilience, RESILIENCE)
    if config.resilience == "off" or (config.resilience == "auto" and not is_behind_network(url)):
        return "off"
    from aforesaid.layers.resilient import DEFAULT_RESILIENCE

    return replace(
        DEFAULT_RESILIENCE,
        policy="fail_closed" if config.resilience == "fail_closed" else "fallback",
        folder=Path(config.spool_folder).expanduser() if config.spool_folder else None,
        spool_limit=config.spool_limit_mb * 1024 * 1024,
        start_unreached=config.start_unreached,
        start_replaced=config.start_replaced,
    )


def _protection_in(settings: Settings) -> dict[str, Any]:
    config = settings.protection
    if not (config.master_key or config.master_key_file or config.audit_file):
        return {}
    from aforesaid.layers.options import encryption_in, trail_in

    return {"encryption": encryption_in(config), "audit": trail_in(config)}


def is_behind_network(url: str) -> bool:
    """Whether the store at this URL is a server."""
    return urlsplit(url).scheme in SERVERS


def with_resilience(
    backend: Backend, url: str, wanted: ResilienceChoice = "auto", *, sealed: bool = False
) -> Backend:
    """Wrap the backend of this URL in the resilient layer, unless it is off."""
    if wanted == "off" or (wanted == "auto" and not is_behind_network(url)):
        return backend
    from aforesaid.layers.resilient import DEFAULT_RESILIENCE, POLICIES, Resilience, resilient

    chosen = DEFAULT_RESILIENCE if wanted == "auto" else wanted
    if not isinstance(chosen, Resilience):
        raise InvalidSetting(
            f"resilience must be a Resilience, 'auto' or 'off'; got {shown(wanted)}", field="resilience"
        )
    if chosen.policy not in POLICIES:
        raise InvalidSetting.not_in("policy", chosen.policy, POLICIES)
    folder = spool_folder(url, chosen.folder)
    return resilient(
        backend,
        folder=folder,
        resilience=chosen,
        name=store_name(url),
        sealed=sealed,
        reached=reached_mark(url, chosen.folder) if is_behind_network(url) else None,
    )


def with_cache(backend: Backend, url: str, wanted: CacheChoice = "auto", *, ttl: int) -> Backend:
    """Wrap the backend of this URL in the cached layer, unless it is off. `ttl` is in seconds, for "auto"."""
    if wanted == "off" or (wanted == "auto" and (ttl <= 0 or not is_behind_network(url))):
        return backend
    from aforesaid.layers.cached import Cache, cached

    chosen = Cache(ttl=timedelta(seconds=ttl), watch=False) if wanted == "auto" else wanted
    if not isinstance(chosen, Cache):
        raise InvalidSetting(f"cache must be a Cache, 'auto' or 'off'; got {shown(wanted)}", field="cache")
    return cached(backend, chosen, name=store_name(url))


def store_name(url: str) -> str:
    """Return the name of the store for logs and metrics: scheme, host and path, without credentials."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def spool_folder(url: str, folder: Path | None = None) -> Path:
    """Return the spool folder of this store, below `folder` or below this user's state folder.

    Each store has its own folder, so that writes for one database never reach another. Credentials, and
    options that do not select other data, make no difference.
    """
    base = state_folder() / "spool" if folder is None else folder
    return base / sha256(_data_location(url).encode()).hexdigest()[:16]


def reached_mark(url: str, folder: Path | None = None) -> ReachedMark:
    """Return the mark of the store or server at this URL; it lies next to its spool folder."""
    return ReachedMark(spool_folder(url, folder).with_suffix(".reached"))


def _data_location(url: str) -> str:
    options = sorted(one for one in parse_qsl(urlsplit(url).query) if one[0] in PLACE_OPTIONS)
    return store_name(url) + (f"?{urlencode(options)}" if options else "")


def state_folder() -> Path:
    """Return this user's folder for program state."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "aforesaid"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "aforesaid"
    xdg = os.environ.get("XDG_STATE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".local" / "state") / "aforesaid"
