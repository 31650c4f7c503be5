"""Settings in groups of frozen values, read once by the command line or the server and passed down.

A value comes from code, an environment variable or a YAML file. `aforesaid config` shows the source.
"""

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from aforesaid._internal.arguments import (
    CheckedFields,
    parse_bool,
    parse_choice,
    parse_count,
    parse_counts,
    parse_optional_text,
    parse_text,
    parse_zone_name,
    validated,
)
from aforesaid.errors import InvalidSetting, MissingExtra, shown
from aforesaid.model.conversations import LONGEST_TTL
from aforesaid.model.lifetimes import Archiving, days

# The default store of the command line: SQLite in the current folder.
DEFAULT_URL = "sqlite:///aforesaid.db"


class Setting(Struct, frozen=True, kw_only=True):
    """A value with its source."""

    name: str
    value: Any
    source: str


@validated
class _Group(CheckedFields, frozen=True, kw_only=True):
    """The base class of all groups: read values from the environment or a mapping."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Values from code do not pass the parsers, which refuse negative numbers from the
        # environment.
        for name, value in asdict(self).items():
            if isinstance(value, int) and value < 0:
                message = f"{name} must be a whole number, zero or more; got {value}"
                raise InvalidSetting(message, field=name, value=value)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Return the group with values from the environment. An invalid value names its variable."""
        return cls(**{setting.name: setting.value for setting in cls.read(environ=environ)})

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Return the group with values from a dict. Ignore the settings of other groups."""
        return cls(**{setting.name: setting.value for setting in cls.read(environ={}, values=values)})

    @classmethod
    def read(
        cls,
        *,
        environ: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
        source: str = "file",
    ) -> list[Setting]:
        """Return all settings of the group. Precedence: environment, file, default."""
        environ = os.environ if environ is None else environ
        return [
            _read_one(name, default, _parser_for(name, default), environ, values or {}, source)
            for name, default in asdict(cls()).items()
        ]


G = TypeVar("G", bound=_Group)


class ConversationConfig(_Group, frozen=True, kw_only=True):
    """Contexts, searches, notes and summaries."""

    context_window_size: int = 20
    """Messages in a context: ten exchanges; 0 means all."""
    request_tokens: int | None = None
    """Token budget of a request; 0 means no limit. Unset: three quarters of the model's window, at most
    96,000, and 6,000 without a model.
    """
    context_deadline: int = 3
    """Maximum seconds to wait for a context; 0 means no limit."""
    cache_ttl: int = 300
    """Lifetime of cached reads in seconds; 0 disables the cache."""
    search_limit: int = 50
    """Default limit of lists and searches."""
    notes_tokens: int = 500
    """Tokens for the owner's notes in a context, about 25 sentences; 0 omits them."""
    summaries: str = "off"
    """off, or extract: summarize messages outside the window by their most important sentences."""
    summary_tokens: int = 300
    """Tokens for the summary in a context."""
    continue_minutes: int = 0
    """How long the owner's last conversation may have been idle to be continued under a new session id by
    `get_or_create_conversation`; 0 starts a conversation for each session id.
    """
    timezone: str = ""
    """The zone of times without one, such as Europe/Berlin; empty uses this machine's."""
    enable_client_association: bool = True
    """Link a conversation to the client that it names."""
    enable_agent_filtering: bool = True
    """Give an agent its own view on request; if false, every agent gets the whole context."""


class SlidingWindowConfig(_Group, frozen=True, kw_only=True):
    """The token window."""

    sliding_window_enable: bool = True
    """If false, the context keeps all messages."""
    sliding_window_max_tokens: int = 4000
    """Ten to fifteen exchanges with tool calls."""
    sliding_window_preserve_system: bool = True
    """Keep system messages when others are removed."""


# The key of a YAML file under which the design document has the settings of the sliding window.
SLIDING_WINDOW_KEY = "azure_openai_sdk_conversation"


class RetentionConfig(_Group, frozen=True, kw_only=True):
    """Lifetimes and archives."""

    ttl_days: int = 30
    """Days after the last activity; 0 keeps forever."""
    ttl_owners: dict[str, int] = {}
    """Days by owner, as in erin=90,kiosk=1; 0 keeps forever."""
    ttl_channels: dict[str, int] = {}
    """Days by channel, as in voice=7,email=365."""
    ttl_tags: dict[str, int] = {}
    """Days by tag, as in legal=0,small talk=1."""
    archive_after_days: int = 0
    """Days without activity before a conversation is archived; 0 means never."""
    archive_delete_days: int = 0
    """Days without activity before an archive is deleted; 0 keeps it."""
    archive_folder: str = ""
    """The archive folder; empty disables archives."""
    archive_key_file: str = ""
    """A file with the passphrase that encrypts archives; empty uses the master key of an encrypted store."""

    @property
    def ttl(self) -> timedelta | None:
        if self.ttl_days > LONGEST_TTL.days:
            raise InvalidSetting(
                f"ttl_days must be at most {LONGEST_TTL.days:,}, or 0 to keep; got {self.ttl_days}",
                field="ttl_days",
                value=self.ttl_days,
            )
        return timedelta(days=self.ttl_days) if self.ttl_days else None

    @property
    def archiving(self) -> Archiving | None:
        """The archiving rules; None without an archive folder."""
        if not self.archive_after_days or not self.archive_folder:
            return None
        return Archiving(
            after=timedelta(days=self.archive_after_days),
            delete_after=days(self.archive_delete_days, field="archive_delete_days"),
        )


class StoreConfig(_Group, frozen=True, kw_only=True):
    """The store or server of the command line."""

    url: str = DEFAULT_URL
    blobs_folder: str = ""
    """The folder for images; empty disables it."""
    key: str = ""
    """The API key, if `url` is a server's."""


class ProtectionConfig(_Group, frozen=True, kw_only=True):
    """Encryption and audit trail."""

    master_key: str = ""
    """One or more master keys in base64, the current one first. A master key enables encryption."""
    master_key_file: str = ""
    """A file with the master keys."""
    encrypt_records: bool = False
    """Also encrypt subject, client name, notes and tags of conversations."""
    keyring_url: str = ""
    """A separate store for the data keys; empty stores them with the data."""
    audit_file: str = ""
    """The file of the audit trail; empty disables it."""
    audit_key: str = ""
    """A key in base64 that signs the audit trail."""
    audit_hide_owners: bool = False
    """Replace owners in the audit trail by keyed digests."""


class ServerConfig(_Group, frozen=True, kw_only=True):
    """Address, authentication and limits of the server."""

    server_host: str = "127.0.0.1"
    """The address to listen on. Other than loopback requires keys or tokens."""
    server_port: int = 8765
    """The port; 0 chooses a free one."""
    server_workers: int = 1
    """Worker processes that share the port."""
    require_keys: bool = False
    """Refuse to start and to answer without keys or tokens, even on loopback."""
    key_grace_seconds: int = 0
    """Seconds, beyond five, for which a verified key stays valid while the store is unavailable."""
    owner: str = "default"
    """The owner of requests without a key and without an owner."""
    docs_folder: str = ""
    """The folder of the built documentation site, served at /docs/; empty does not serve it."""
    max_body_kb: int = 4096
    """Maximum kilobytes of a request body; folders and recordings have separate limits."""
    request_seconds: int = 10
    """Maximum seconds for sending the head of a request."""
    waiting_connections: int = 1000
    """Maximum connections without a request for each process; capped at a tenth of its file handles."""
    drain_seconds: int = 10
    """Seconds for running requests to finish when the server stops."""
    jwt_issuer: str = ""
    """The issuer of JSON Web Tokens; empty disables them."""
    jwt_audience: str = ""
    """The required audience of tokens."""
    jwt_jwks: str = ""
    """The issuer's public keys: a file or an https URL."""
    jwt_leeway: int = 30
    """Tolerated clock difference in seconds."""
    jwt_scope: str = "write"
    """The scope of a token without one: read, write or admin."""
    rate_read: int = 6000
    """Reads per minute for each key; 0 means no limit."""
    rate_write: int = 3000
    """Writes per minute for each key."""
    rate_search: int = 600
    """Searches per minute for each key."""
    rate_ask: int = 120
    """Questions to the assistant per minute for each key."""
    live_rate: int = 50
    """Frames per second for each WebSocket connection, with bursts of four seconds."""
    live_frame_kb: int = 256
    """Maximum kilobytes of a WebSocket text frame."""
    live_connections: int = 10000
    """Maximum WebSocket connections for each process."""
    live_connections_per_key: int = 200
    """Maximum WebSocket connections and event streams for each process and key."""
    live_heartbeat: int = 20
    """Idle seconds before the server pings a WebSocket client; 0 disables pings."""


class TelemetryConfig(_Group, frozen=True, kw_only=True):
    """Logs and traces of the server."""

    log: str = "text"
    """Log format: text or json."""
    log_level: str = "info"
    """Minimum level: debug, info, warning or error."""
    log_words: bool = False
    """Log the words of searches and of texts that may name a client, not only their length and a hash."""
    traces_url: str = ""
    """The OTLP/HTTP URL of an OpenTelemetry collector; empty disables traces."""
    traces_percent: int = 100
    """Percentage of traced requests; requests with a sampled parent are always traced."""


# Settings that are masked in output.
SECRETS = ("key", "master_key", "audit_key", "provider_key", "transcriber_key")


class ResilienceConfig(_Group, frozen=True, kw_only=True):
    """Behaviour while the store is unavailable, and the cache."""

    resilience: str = "auto"
    """auto (fallback for network stores), fallback, fail_closed or off."""
    spool_folder: str = ""
    """The folder of the spool; empty uses the user's state folder."""
    spool_limit_mb: int = 64
    """Maximum megabytes of the spool."""
    start_unreached: bool = False
    """Start while the store is unavailable even if this machine has never reached it."""
    cache: bool = False
    """Cache reads. Changes of other processes appear when the store has announced them."""


RESILIENCE = ("auto", "fallback", "fail_closed", "off")
PROVIDERS = ("recall", "anthropic", "openai", "openai_responses", "bedrock")


class AgentConfig(_Group, frozen=True, kw_only=True):
    """The assistant's model."""

    provider: str = "recall"
    """recall (no model), anthropic, openai, openai_responses or bedrock."""
    model: str = ""
    """The model's name at the provider."""
    provider_url: str = ""
    """A server compatible with the provider: Ollama, vLLM, Azure."""
    provider_key: str = ""
    """The provider's API key. If this and `provider_url` are empty, the SDK finds its key itself."""
    provider_api_version: str = ""
    """Azure's API version; setting it selects Azure."""
    instructions: str = ""
    """The system prompt; empty uses the built-in one."""


SUMMARIES = ("off", "extract")
TRANSCRIBERS = ("embedded", "off", "wyoming", "openai")


class VoiceConfig(_Group, frozen=True, kw_only=True):
    """Speech recognition."""

    transcriber: str = "embedded"
    """embedded (English, local), wyoming (Home Assistant speech service), openai (or compatible) or off."""
    transcriber_url: str = ""
    """tcp://host:port for wyoming; the URL of a compatible server for openai."""
    transcriber_model: str = ""
    """The model's name; empty uses the service's default."""
    transcriber_key: str = ""
    """The API key for openai."""
    least_confidence_percent: int = 40
    """Minimum transcription confidence; below it the user is asked to repeat."""


LOGS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
# Allowed values of enumerated settings.
CHOICES = {
    "resilience": RESILIENCE,
    "provider": PROVIDERS,
    "summaries": SUMMARIES,
    "transcriber": TRANSCRIBERS,
    "jwt_scope": ("read", "write", "admin"),
    "log": LOGS,
    "log_level": LOG_LEVELS,
}

# Variables that are not AFORESAID_ and the setting's name.
_VARIABLES = {
    "context_window_size": "CONVERSATION_CONTEXT_WINDOW_SIZE",
    "request_tokens": "CONVERSATION_REQUEST_TOKENS",
    "context_deadline": "CONVERSATION_CONTEXT_DEADLINE",
    "cache_ttl": "CONVERSATION_CACHE_TTL",
    "search_limit": "CONVERSATION_SEARCH_LIMIT",
    "notes_tokens": "CONVERSATION_NOTES_TOKENS",
    "summaries": "CONVERSATION_SUMMARIES",
    "summary_tokens": "CONVERSATION_SUMMARY_TOKENS",
    "continue_minutes": "CONVERSATION_CONTINUE_MINUTES",
    "timezone": "CONVERSATION_TIMEZONE",
    "enable_client_association": "ENABLE_CLIENT_ASSOCIATION",
    "enable_agent_filtering": "ENABLE_AGENT_FILTERING",
    "sliding_window_enable": "SLIDING_WINDOW_ENABLE",
    "sliding_window_max_tokens": "SLIDING_WINDOW_MAX_TOKENS",
    "sliding_window_preserve_system": "SLIDING_WINDOW_PRESERVE_SYSTEM",
    "server_host": "AFORESAID_HOST",
    "server_port": "AFORESAID_PORT",
    "server_workers": "AFORESAID_WORKERS",
}


@validated
class Settings(Struct, frozen=True, kw_only=True):
    """All groups of settings."""

    store: StoreConfig = StoreConfig()
    conversation: ConversationConfig = ConversationConfig()
    sliding_window: SlidingWindowConfig = SlidingWindowConfig()
    retention: RetentionConfig = RetentionConfig()
    protection: ProtectionConfig = ProtectionConfig()
    resilience: ResilienceConfig = ResilienceConfig()
    server: ServerConfig = ServerConfig()
    agent: AgentConfig = AgentConfig()
    voice: VoiceConfig = VoiceConfig()
    telemetry: TelemetryConfig = TelemetryConfig()

    @classmethod
    def load(cls, *, file: Path | str | None = None, environ: Mapping[str, str] | None = None) -> Self:
        """Load the settings from the environment and a YAML file. The environment takes precedence."""
        found = {setting.name: setting.value for setting in every_setting(file=file, environ=environ)}
        groups: dict[str, Any] = {
            name: _group(type(default), found) for name, default in asdict(cls()).items()
        }
        return cls(**groups)


GROUPS: tuple[type[_Group], ...] = tuple(map(type, asdict(Settings()).values()))

# The environment variable of each setting.
ENVIRONMENT = {
    name: _VARIABLES.get(name, f"AFORESAID_{name.upper()}")
    for group in GROUPS
    for name in group.__struct_fields__
}


def _group(group: type[G], found: Mapping[str, Any]) -> G:
    return group(**{name: found[name] for name in group.__struct_fields__})


def every_setting(
    *, file: Path | str | None = None, environ: Mapping[str, str] | None = None
) -> list[Setting]:
    """Return all settings with their sources."""
    values = {} if file is None else read_yaml(file)
    source = "" if file is None else str(file)
    return [
        setting for group in GROUPS for setting in group.read(environ=environ, values=values, source=source)
    ]


def read_yaml(file: Path | str) -> dict[str, Any]:
    """Read a YAML file: a mapping of settings, at the top or under the key `aforesaid`.

    `azure_openai_sdk_conversation` at the top has the settings of the sliding window alone.
    """
    try:
        import yaml
    except ImportError:
        raise MissingExtra("a YAML settings file", extra="yaml") from None
    try:
        document = yaml.safe_load(Path(file).read_text("utf-8")) or {}
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise InvalidSetting(f"cannot read the settings file {file}: {error}", field=str(file)) from error
    # A misspelled setting is an error: ignored, it would look as if it had no effect.
    known = frozenset(ENVIRONMENT)
    if isinstance(document, dict) and isinstance(document.get("aforesaid"), dict):
        document = document["aforesaid"]
    elif isinstance(document, dict) and SLIDING_WINDOW_KEY in document:
        document, known = document[SLIDING_WINDOW_KEY], frozenset(SlidingWindowConfig.__struct_fields__)
        if not isinstance(document, dict):
            message = f"{SLIDING_WINDOW_KEY} must be a mapping of names to values; got {shown(document)}"
            raise InvalidSetting(message, field=SLIDING_WINDOW_KEY, value=document)
    if not isinstance(document, dict):
        raise InvalidSetting(
            f"the settings file {file} must be a mapping of names to values", field=str(file)
        )
    unknown = sorted(str(name) for name in document if name not in known)
    if unknown:
        raise InvalidSetting(
            f"the settings file {file} has unknown settings: {', '.join(unknown)}", field=str(file)
        )
    return document


def masked_url(url: str) -> str:
    """Return the URL with its password masked."""
    head, found, tail = url.partition("://")
    # The last @ separates the host; a password may contain others.
    credentials, at, rest = tail.rpartition("@")
    if not found or not at or ":" not in credentials:
        return url
    return f"{head}://{credentials.partition(':')[0]}:***@{rest}"


def _read_one(
    name: str,
    default: Any,
    parse: Callable[[Any], Any],
    environ: Mapping[str, str],
    values: Mapping[str, Any],
    source: str,
) -> Setting:
    variable = ENVIRONMENT[name]
    # An empty variable counts as set, so that a container can reset a value of the file.
    if variable in environ:
        return Setting(name=name, value=_parsed(parse, environ[variable], variable), source=variable)
    if name in values:
        return Setting(name=name, value=_parsed(parse, values[name], name), source=source)
    return Setting(name=name, value=default, source="default")


def _parsed(parse: Callable[[Any], Any], value: Any, where: str) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        raise InvalidSetting(f"{where} {error}; got {shown(value)}", field=where, value=value) from None


def _parser_for(name: str, default: Any) -> Callable[[Any], Any]:
    if name == "timezone":
        return parse_zone_name
    # The default decides the type. Booleans come before numbers, because a bool is an int.
    if name in CHOICES:
        return partial(parse_choice, CHOICES[name])
    if isinstance(default, bool):
        return parse_bool
    if isinstance(default, dict):
        return parse_counts
    if default == "":
        return parse_optional_text
    return parse_count if default is None or isinstance(default, int) else parse_text
