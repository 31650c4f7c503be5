"""Settings in small groups: read once, by a surface, and passed down. Below: errors, lifetimes.

Each group is a frozen value with defaults. A value comes from code, from an environment variable
or from a YAML file; `Setting` remembers which, and `aforesaid config` shows it.
"""

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from aforesaid._internal.arguments import CheckedFields, validated
from aforesaid.errors import InvalidSetting, MissingExtra, shown
from aforesaid.model.conversations import LONGEST_TTL
from aforesaid.model.lifetimes import Archiving, Retention, RetentionRules, days

DEFAULT_URL = "sqlite:///aforesaid.db"
"""Where the command line keeps conversations when it is told nothing: the embedded store, here."""


class Setting(Struct, frozen=True, kw_only=True):
    """One value and where it came from."""

    name: str
    value: Any
    source: str


@validated
class _Group(CheckedFields, frozen=True, kw_only=True):
    """What all groups can do: be read from the environment or a mapping, and say where values came from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in asdict(self).items():
            if isinstance(value, int) and value < 0:
                words = f"{name} must be a whole number, zero or more; got {value}"
                raise InvalidSetting(words, field=name, value=value)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """The group with what the environment says. A value that does not parse names its variable."""
        return cls(**{setting.name: setting.value for setting in cls.read(environ=environ)})

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """The group from parsed YAML or a dict. Names of other groups are passed over."""
        return cls(**{setting.name: setting.value for setting in cls.read(environ={}, values=values)})

    @classmethod
    def read(
        cls,
        *,
        environ: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
        source: str = "file",
    ) -> list[Setting]:
        """Every setting of the group: the environment goes before the file, the file before the default."""
        environ = os.environ if environ is None else environ
        return [
            _read_one(name, default, _parser_for(name, default), environ, values or {}, source)
            for name, default in asdict(cls()).items()
        ]


G = TypeVar("G", bound=_Group)


class ConversationConfig(_Group, frozen=True, kw_only=True):
    """How conversations are handled. Environment: see `ENVIRONMENT`."""

    context_window_size: int = 20
    """Messages in a context: ten exchanges, enough to follow a conversation, cheap to send; 0 is all of
    them."""
    context_deadline: int = 3
    """Seconds that an agent waits for its context at most; 0 waits as long as it takes."""
    cache_ttl: int = 300
    """Seconds that a read may be served from the cache, where there is one; 0 is no cache."""
    search_limit: int = 50
    """Results of a listing or search, when the caller names no limit."""
    notes_tokens: int = 500
    """Tokens for the owner's notes in a context: some twenty-five sentences; 0 leaves them out."""
    summaries: str = "off"
    """off; or extract: what a context no longer shows is summarized by sentences that say most."""
    summary_tokens: int = 300
    """Tokens for a summary of what a context no longer shows, where summaries are made."""
    enable_client_association: bool = True
    """Whether clients named in a conversation are linked to it."""
    enable_agent_filtering: bool = True
    """Whether an agent may ask for its own view; off, every agent gets the whole context."""


class SlidingWindowConfig(_Group, frozen=True, kw_only=True):
    """The token window."""

    sliding_window_enable: bool = True
    """Off, everything is kept in the context."""
    sliding_window_max_tokens: int = 4000
    """Ten to fifteen exchanges with room for tools."""
    sliding_window_preserve_system: bool = True
    """Whether system messages stay when others go."""


class RetentionConfig(_Group, frozen=True, kw_only=True):
    """How long conversations are kept."""

    ttl_days: int = 30
    """Days after the last activity; 0 keeps forever."""
    ttl_owners: dict[str, int] = {}
    """Days by owner, as in erin=90,kiosk=1; 0 keeps."""
    ttl_channels: dict[str, int] = {}
    """Days by channel, as in voice=7,email=365."""
    ttl_tags: dict[str, int] = {}
    """Days by tag, as in legal=0,small talk=1."""
    archive_after_days: int = 0
    """Days of silence after which a conversation is archived; 0 never does."""
    archive_delete_days: int = 0
    """Days of silence after which an archive is deleted; 0 keeps it."""
    archive_folder: str = ""
    """Where archives are kept; empty is nowhere."""
    archive_key_file: str = ""
    """A file with the passphrase that archives are sealed with; empty leaves them open."""

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
    def retention(self) -> Retention:
        """What a memory is opened with."""
        rules = RetentionRules(channels=_lifetimes(self.ttl_channels), tags=_lifetimes(self.ttl_tags))
        return Retention(rules=rules, owners=_lifetimes(self.ttl_owners), archiving=self.archiving)

    @property
    def archiving(self) -> Archiving | None:
        """When conversations are archived, and archives deleted; never without a folder for them."""
        if not self.archive_after_days or not self.archive_folder:
            return None
        return Archiving(
            after=timedelta(days=self.archive_after_days),
            delete_after=days(self.archive_delete_days, field="archive_delete_days"),
        )


def _lifetimes(values: Mapping[str, int]) -> dict[str, timedelta | None]:
    return {name: days(value, field=f"ttl of {name}") for name, value in values.items()}


class StoreConfig(_Group, frozen=True, kw_only=True):
    """Where conversations are kept."""

    url: str = DEFAULT_URL
    blobs_folder: str = ""
    """Where pictures are kept beside the store; empty is nowhere."""
    key: str = ""
    """What opens the server, where `url` is that of a server."""


class ProtectionConfig(_Group, frozen=True, kw_only=True):
    """How what is kept is protected."""

    master_key: str = ""
    """The master key in base64, or several, the current one first. Setting it turns encryption on."""
    master_key_file: str = ""
    """A file that holds it instead."""
    encrypt_records: bool = False
    """Whether subject, client name, notes and tags of conversations are encrypted too."""
    keyring_url: str = ""
    """A store of its own for the data keys; without it they lie beside the data."""
    audit_file: str = ""
    """The audit trail. Naming it turns auditing on."""
    audit_key: str = ""
    """A key in base64 that signs the trail."""
    audit_hide_owners: bool = False
    """Whether the trail keeps owners as keyed digests only."""


class ServerConfig(_Group, frozen=True, kw_only=True):
    """How the server listens, whom it lets in, and how much it takes."""

    server_host: str = "127.0.0.1"
    """The address it listens on. Beyond this machine it wants keys or tokens."""
    server_port: int = 8765
    """The port; 0 takes any that is free."""
    server_workers: int = 1
    """Processes that share the port."""
    require_keys: bool = False
    """Whether the server refuses to start, and to answer, without keys or tokens, also on this machine."""
    key_grace_seconds: int = 0
    """Seconds, beyond five, that a verified key goes on working while the store is away."""
    owner: str = "default"
    """Whose data it is where there are no keys and the request does not say."""
    max_body_kb: int = 4096
    """Kilobytes that a request may have; folders and recordings have limits of their own."""
    request_seconds: int = 10
    """Seconds that a connection may take to send the head of a request."""
    waiting_connections: int = 1000
    """Connections to a process that have sent no request yet, and at most a tenth of its file handles."""
    drain_seconds: int = 10
    """Seconds that running requests get to finish when the server stops."""
    jwt_issuer: str = ""
    """Who issues JSON Web Tokens. Naming it turns them on."""
    jwt_audience: str = ""
    """For whom they are issued: this server."""
    jwt_jwks: str = ""
    """The issuer's public keys: a file or an https URL."""
    jwt_leeway: int = 30
    """Seconds that clocks may differ."""
    jwt_scope: str = "write"
    """What a token allows that names no scope: read, write or admin."""
    rate_read: int = 6000
    """Reads a minute for each key; 0 is no limit."""
    rate_write: int = 3000
    """Writes a minute for each key."""
    rate_search: int = 600
    """Searches a minute for each key."""
    rate_ask: int = 120
    """Questions to the assistant a minute for each key."""
    live_rate: int = 50
    """Frames a second that a WebSocket connection may send; four seconds of them at once."""
    live_frame_kb: int = 256
    """Kilobytes of a WebSocket frame of text."""
    live_connections: int = 10000
    """WebSocket connections to a process."""
    live_connections_per_key: int = 200
    """WebSocket connections, and streams of changes, to a process with one key."""
    live_heartbeat: int = 20
    """Seconds of silence after which a WebSocket client is asked for a sign of life; 0 never asks."""


class TelemetryConfig(_Group, frozen=True, kw_only=True):
    """What a server says about how it is going."""

    log: str = "text"
    """How lines of the log look: text for people, json for machines."""
    log_level: str = "info"
    """From which level on: debug, info, warning, error."""
    traces_url: str = ""
    """Where an OpenTelemetry collector takes spans by OTLP over HTTP. Naming it turns tracing on."""
    traces_percent: int = 100
    """How many of a hundred requests are traced; those that are traced already stay so."""


SECRETS = ("key", "master_key", "audit_key", "provider_key", "transcriber_key")
"""Settings that are never shown."""


class ResilienceConfig(_Group, frozen=True, kw_only=True):
    """What happens when the store is away, and what is read twice."""

    resilience: str = "auto"
    """auto: `fallback` for stores behind a network; or fallback, fail_closed, off."""
    spool_folder: str = ""
    """Where turns are kept while the store is away; empty is this user's folder for state."""
    spool_limit_mb: int = 64
    """Megabytes of turns that are kept at most."""
    start_unreached: bool = False
    """Whether to start while the store is away although this machine has never reached it."""
    cache: bool = False
    """Whether reads are remembered. Other processes' changes then show when the store has told of them."""


RESILIENCE = ("auto", "fallback", "fail_closed", "off")
PROVIDERS = ("recall", "anthropic", "openai", "openai_responses", "bedrock")


class AgentConfig(_Group, frozen=True, kw_only=True):
    """Who answers."""

    provider: str = "recall"
    """recall: from the owner's own history, without a model; or whose model: anthropic, openai,
    openai_responses, bedrock."""
    model: str = ""
    """The provider's name of the model."""
    provider_url: str = ""
    """Another server that speaks as the provider does: Ollama, vLLM, Azure."""
    provider_key: str = ""
    """The key of the provider. Without it and without another server, the one that its SDK finds."""
    provider_api_version: str = ""
    """Azure's version of its interface: with it the server is Azure's."""
    instructions: str = ""
    """The system prompt; empty is one for an assistant that remembers."""


SUMMARIES = ("off", "extract")
TRANSCRIBERS = ("embedded", "off", "wyoming", "openai")


class VoiceConfig(_Group, frozen=True, kw_only=True):
    """Who understands what is said by voice."""

    transcriber: str = "embedded"
    """embedded: English, on board; off; wyoming: a speech service of Home Assistant's; openai: OpenAI's
    interface, wherever it is spoken."""
    transcriber_url: str = ""
    """Where it is: tcp://host:port for wyoming; for openai a server other than OpenAI's own."""
    transcriber_model: str = ""
    """Its name of the model; empty is its own choice."""
    transcriber_key: str = ""
    """The key that openai wants."""
    least_confidence_percent: int = 40
    """Words that are less sure than this are asked for again."""


LOGS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
CHOICES = {
    "resilience": RESILIENCE,
    "provider": PROVIDERS,
    "summaries": SUMMARIES,
    "transcriber": TRANSCRIBERS,
    "jwt_scope": ("read", "write", "admin"),
    "log": LOGS,
    "log_level": LOG_LEVELS,
}
"""Settings that are one of a few words."""

GROUPS: tuple[type[_Group], ...] = (
    StoreConfig,
    ConversationConfig,
    SlidingWindowConfig,
    RetentionConfig,
    ProtectionConfig,
    ResilienceConfig,
    ServerConfig,
    AgentConfig,
    VoiceConfig,
    TelemetryConfig,
)

ENVIRONMENT = {
    "url": "AFORESAID_URL",
    "blobs_folder": "AFORESAID_BLOBS_FOLDER",
    "key": "AFORESAID_KEY",
    "context_window_size": "CONVERSATION_CONTEXT_WINDOW_SIZE",
    "context_deadline": "CONVERSATION_CONTEXT_DEADLINE",
    "cache_ttl": "CONVERSATION_CACHE_TTL",
    "search_limit": "CONVERSATION_SEARCH_LIMIT",
    "notes_tokens": "CONVERSATION_NOTES_TOKENS",
    "summaries": "CONVERSATION_SUMMARIES",
    "summary_tokens": "CONVERSATION_SUMMARY_TOKENS",
    "enable_client_association": "ENABLE_CLIENT_ASSOCIATION",
    "enable_agent_filtering": "ENABLE_AGENT_FILTERING",
    "sliding_window_enable": "SLIDING_WINDOW_ENABLE",
    "sliding_window_max_tokens": "SLIDING_WINDOW_MAX_TOKENS",
    "sliding_window_preserve_system": "SLIDING_WINDOW_PRESERVE_SYSTEM",
    "ttl_days": "AFORESAID_TTL_DAYS",
    "master_key": "AFORESAID_MASTER_KEY",
    "master_key_file": "AFORESAID_MASTER_KEY_FILE",
    "encrypt_records": "AFORESAID_ENCRYPT_RECORDS",
    "keyring_url": "AFORESAID_KEYRING_URL",
    "audit_file": "AFORESAID_AUDIT_FILE",
    "audit_key": "AFORESAID_AUDIT_KEY",
    "audit_hide_owners": "AFORESAID_AUDIT_HIDE_OWNERS",
    "ttl_owners": "AFORESAID_TTL_OWNERS",
    "ttl_channels": "AFORESAID_TTL_CHANNELS",
    "ttl_tags": "AFORESAID_TTL_TAGS",
    "archive_after_days": "AFORESAID_ARCHIVE_AFTER_DAYS",
    "archive_delete_days": "AFORESAID_ARCHIVE_DELETE_DAYS",
    "archive_folder": "AFORESAID_ARCHIVE_FOLDER",
    "archive_key_file": "AFORESAID_ARCHIVE_KEY_FILE",
    "resilience": "AFORESAID_RESILIENCE",
    "spool_folder": "AFORESAID_SPOOL_FOLDER",
    "spool_limit_mb": "AFORESAID_SPOOL_LIMIT_MB",
    "start_unreached": "AFORESAID_START_UNREACHED",
    "cache": "AFORESAID_CACHE",
    "server_host": "AFORESAID_HOST",
    "server_port": "AFORESAID_PORT",
    "server_workers": "AFORESAID_WORKERS",
    "require_keys": "AFORESAID_REQUIRE_KEYS",
    "key_grace_seconds": "AFORESAID_KEY_GRACE_SECONDS",
    "owner": "AFORESAID_OWNER",
    "max_body_kb": "AFORESAID_MAX_BODY_KB",
    "request_seconds": "AFORESAID_REQUEST_SECONDS",
    "waiting_connections": "AFORESAID_WAITING_CONNECTIONS",
    "drain_seconds": "AFORESAID_DRAIN_SECONDS",
    "jwt_issuer": "AFORESAID_JWT_ISSUER",
    "jwt_audience": "AFORESAID_JWT_AUDIENCE",
    "jwt_jwks": "AFORESAID_JWT_JWKS",
    "jwt_leeway": "AFORESAID_JWT_LEEWAY",
    "jwt_scope": "AFORESAID_JWT_SCOPE",
    "rate_read": "AFORESAID_RATE_READ",
    "rate_write": "AFORESAID_RATE_WRITE",
    "rate_search": "AFORESAID_RATE_SEARCH",
    "rate_ask": "AFORESAID_RATE_ASK",
    "provider": "AFORESAID_PROVIDER",
    "model": "AFORESAID_MODEL",
    "provider_url": "AFORESAID_PROVIDER_URL",
    "provider_key": "AFORESAID_PROVIDER_KEY",
    "provider_api_version": "AFORESAID_PROVIDER_API_VERSION",
    "instructions": "AFORESAID_INSTRUCTIONS",
    "transcriber": "AFORESAID_TRANSCRIBER",
    "transcriber_url": "AFORESAID_TRANSCRIBER_URL",
    "transcriber_model": "AFORESAID_TRANSCRIBER_MODEL",
    "transcriber_key": "AFORESAID_TRANSCRIBER_KEY",
    "least_confidence_percent": "AFORESAID_LEAST_CONFIDENCE_PERCENT",
    "log": "AFORESAID_LOG",
    "log_level": "AFORESAID_LOG_LEVEL",
    "traces_url": "AFORESAID_TRACES_URL",
    "traces_percent": "AFORESAID_TRACES_PERCENT",
    "live_rate": "AFORESAID_LIVE_RATE",
    "live_frame_kb": "AFORESAID_LIVE_FRAME_KB",
    "live_connections": "AFORESAID_LIVE_CONNECTIONS",
    "live_connections_per_key": "AFORESAID_LIVE_CONNECTIONS_PER_KEY",
    "live_heartbeat": "AFORESAID_LIVE_HEARTBEAT",
}
"""Setting → the environment variable that sets it."""


@validated
class Settings(Struct, frozen=True, kw_only=True):
    """All groups, for a surface to pass down."""

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
        """The settings of the environment and, below it, of a YAML file."""
        found = {setting.name: setting.value for setting in every_setting(file=file, environ=environ)}
        return cls(
            store=_group(StoreConfig, found),
            conversation=_group(ConversationConfig, found),
            sliding_window=_group(SlidingWindowConfig, found),
            retention=_group(RetentionConfig, found),
            protection=_group(ProtectionConfig, found),
            resilience=_group(ResilienceConfig, found),
            server=_group(ServerConfig, found),
            agent=_group(AgentConfig, found),
            voice=_group(VoiceConfig, found),
            telemetry=_group(TelemetryConfig, found),
        )


def _group(group: type[G], found: Mapping[str, Any]) -> G:
    return group(**{name: found[name] for name in group.__struct_fields__})


def every_setting(
    *, file: Path | str | None = None, environ: Mapping[str, str] | None = None
) -> list[Setting]:
    """Each setting, its value and where it came from."""
    values = {} if file is None else read_yaml(file)
    source = "" if file is None else str(file)
    return [
        setting for group in GROUPS for setting in group.read(environ=environ, values=values, source=source)
    ]


def read_yaml(file: Path | str) -> dict[str, Any]:
    """The settings in a YAML file: a mapping of names, on its own or under the key `aforesaid`."""
    try:
        import yaml
    except ImportError:
        raise MissingExtra("a YAML settings file", extra="yaml") from None
    try:
        document = yaml.safe_load(Path(file).read_text("utf-8")) or {}
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise InvalidSetting(f"the settings file {file} cannot be read: {error}", field=str(file)) from error
    if isinstance(document, dict) and isinstance(document.get("aforesaid"), dict):
        document = document["aforesaid"]
    if not isinstance(document, dict):
        raise InvalidSetting(f"the settings file {file} must hold names and values", field=str(file))
    unknown = sorted(str(name) for name in document if name not in ENVIRONMENT)
    if unknown:
        raise InvalidSetting(
            f"the settings file {file} has settings that do not exist: {', '.join(unknown)}", field=str(file)
        )
    return document


def masked_url(url: str) -> str:
    """The URL with its password hidden."""
    head, found, tail = url.partition("://")
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
    if name in CHOICES:
        return partial(_parse_choice, CHOICES[name])
    if isinstance(default, bool):
        return _parse_bool
    if isinstance(default, dict):
        return _parse_counts
    if default == "":
        return _parse_optional_text
    return _parse_count if isinstance(default, int) else _parse_text


def _parse_choice(allowed: tuple[str, ...], value: Any) -> str:
    word = str(value).strip().lower()
    if value is False:  # `off`, as YAML reads it
        word = "off"
    if word not in allowed:
        raise ValueError(f"must be one of {', '.join(allowed)}")
    return word


def _parse_bool(value: Any) -> bool:
    words = {
        "true": True,
        "1": True,
        "yes": True,
        "on": True,
        "false": False,
        "0": False,
        "no": False,
        "off": False,
    }
    if isinstance(value, bool):
        return value
    try:
        return words[str(value).strip().lower()]
    except KeyError:
        raise ValueError("must be true or false") from None


def _parse_count(value: Any) -> int:
    message = "must be a whole number, zero or more"
    try:
        number = int(str(value).strip())
    except ValueError:
        raise ValueError(message) from None
    if number < 0 or isinstance(value, bool):
        raise ValueError(message)
    return number


def _parse_counts(value: Any) -> dict[str, int]:
    """Names and whole numbers: a mapping, or text such as `voice=7,email=365`."""
    if isinstance(value, Mapping):
        return {str(name): _parse_count(number) for name, number in value.items()}
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be names and whole numbers, as in voice=7,email=365")
    counts: dict[str, int] = {}
    for pair in filter(str.strip, value.split(",")):
        name, equals, number = pair.rpartition("=")
        if not equals or not name.strip():
            raise ValueError("must be names and whole numbers, as in voice=7,email=365")
        counts[name.strip()] = _parse_count(number)
    return counts


def _parse_optional_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004
    return value.strip()


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text")
    return value.strip()
