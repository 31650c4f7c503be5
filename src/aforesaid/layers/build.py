"""Which layers a store gets, from its URL and what was asked for. Below: the layers. Above: `memory`.

From the outside in: the audit sees also the reads that the cache serves; the cache holds plain text,
in memory only; what the spool holds is sealed where the store's content is.

By default a store on the other side of a network gets the resilient layer: networks and servers fail
by themselves, while the process that speaks goes on. An embedded store does not: it fails with the
disk that the spool would be on. A layer that nobody wants is not loaded.
"""

import os
import sys
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

from aforesaid.contracts import Backend
from aforesaid.errors import InvalidSetting, shown
from aforesaid.layers.reached import ReachedMark
from aforesaid.model.clock import Clock, system_clock
from aforesaid.settings import RESILIENCE, ResilienceConfig, Settings

if TYPE_CHECKING:
    from aforesaid.layers.cached import Cache
    from aforesaid.layers.options import AuditChoice, EncryptionChoice
    from aforesaid.layers.resilient import Resilience

ResilienceChoice: TypeAlias = "Resilience | Literal['auto', 'off']"
CacheChoice: TypeAlias = "Cache | Literal['off']"

SERVERS = ("redis", "rediss", "redis+cluster", "rediss+cluster", "postgres", "postgresql")

PLACE_OPTIONS = ("prefix", "host", "hostaddr", "port", "dbname", "service")
"""What may stand behind the `?` of a URL and leads to other data: Redis' prefix, and where PostgreSQL is."""


def layered(
    backend: Backend,
    url: str,
    *,
    resilience: ResilienceChoice = "auto",
    cache: CacheChoice = "off",
    encryption: "EncryptionChoice | None" = None,
    audit: "AuditChoice | None" = None,
    observe: bool = False,
    clock: Clock = system_clock,
) -> Backend:
    """The backend of this URL with the layers that are wanted around it."""
    if observe:
        from aforesaid.layers.timed import observed

        backend = observed(backend, name=store_name(url))
    backend = with_resilience(backend, url, resilience, sealed=encryption is not None)
    if encryption is not None:
        from aforesaid.layers.encrypted import encrypted
        from aforesaid.layers.options import encryption_of

        backend = encrypted(backend, encryption_of(encryption))
    backend = with_cache(backend, url, cache)
    if audit is not None:
        from aforesaid.layers.audited import audited
        from aforesaid.layers.options import trail_of

        backend = audited(backend, trail_of(audit, clock=clock))
    return backend


def layers_in(settings: Settings) -> dict[str, Any]:
    """What `aforesaid.open` is told about layers where the settings decide."""
    return {
        "resilience": resilience_in(settings.resilience, settings.store.url),
        "cache": _cache_in(settings),
        **_protection_in(settings),
    }


def _cache_in(settings: Settings) -> CacheChoice:
    seconds = settings.conversation.cache_ttl
    if not settings.resilience.cache or seconds <= 0:
        return "off"
    from aforesaid.layers.cached import Cache

    return Cache(ttl=timedelta(seconds=seconds))


def resilience_in(config: ResilienceConfig, url: str) -> ResilienceChoice:
    """What the settings say about outages of the store at this URL."""
    if config.resilience not in RESILIENCE:
        raise InvalidSetting.not_in("resilience", config.resilience, RESILIENCE)
    if config.resilience == "off" or (config.resilience == "auto" and not is_behind_network(url)):
        return "off"
    from aforesaid.layers.resilient import Resilience

    return Resilience(
        policy="fail_closed" if config.resilience == "fail_closed" else "fallback",
        folder=Path(config.spool_folder).expanduser() if config.spool_folder else None,
        spool_limit=config.spool_limit_mb * 1024 * 1024,
        start_unreached=config.start_unreached,
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
    """The backend of this URL with the resilient layer around it, if that is wanted."""
    if wanted == "off" or (wanted == "auto" and not is_behind_network(url)):
        return backend
    from aforesaid.layers.resilient import POLICIES, Resilience, resilient

    chosen = Resilience() if wanted == "auto" else wanted
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


def with_cache(backend: Backend, url: str, wanted: CacheChoice = "off") -> Backend:
    """The backend with the cached layer around it, if that is wanted."""
    if wanted == "off":
        return backend
    from aforesaid.layers.cached import Cache, cached

    if not isinstance(wanted, Cache):
        raise InvalidSetting(f"cache must be a Cache or 'off'; got {shown(wanted)}", field="cache")
    return cached(backend, wanted, name=store_name(url))


def store_name(url: str) -> str:
    """What logs and metrics call the store: scheme and place, never a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def spool_folder(url: str, folder: Path | None = None) -> Path:
    """Where the spool of this store is: below the folder, or below this user's folder for state.

    Each store has one of its own, so that what was meant for one database never reaches another.
    Who logs in makes no difference, and neither does an option that does not say where the data are.
    """
    base = state_folder() / "spool" if folder is None else folder
    return base / sha256(_place(url).encode()).hexdigest()[:16]


def reached_mark(url: str, folder: Path | None = None) -> ReachedMark:
    """Whether this machine has reached the store or server at this URL: kept beside its spool."""
    return ReachedMark(spool_folder(url, folder).with_suffix(".reached"))


def _place(url: str) -> str:
    options = sorted(one for one in parse_qsl(urlsplit(url).query) if one[0] in PLACE_OPTIONS)
    return store_name(url) + (f"?{urlencode(options)}" if options else "")


def state_folder() -> Path:
    """This user's folder for what a program keeps between runs."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "aforesaid"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "aforesaid"
    given = os.environ.get("XDG_STATE_HOME")
    return (Path(given) if given else Path.home() / ".local" / "state") / "aforesaid"
