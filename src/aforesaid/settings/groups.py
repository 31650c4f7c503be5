"""The groups of settings. Each field has its default and its meaning."""

from datetime import timedelta

from aforesaid.errors import InvalidSetting
from aforesaid.model.conversations import LONGEST_TTL
from aforesaid.model.lifetimes import Archiving, days
from aforesaid.settings.reading import Group

# The default store of the command line: SQLite in the current folder.
DEFAULT_URL = "sqlite:///aforesaid.db"


class ConversationConfig(Group, frozen=True, kw_only=True):
    """Contexts, searches, notes and summaries."""

    context_window_size: int = 20
    """Messages in a context: ten exchanges; 0 means all."""
    request_tokens: int | None = None
    """Token budget of a request; 0 means no limit. Unset: three quarters of the model's window, at most
    96,000, and 8,000 without a model.
    """
    context_deadline: int = 3
    """Maximum seconds to wait for a context; 0 means no limit."""
    cache_ttl: int = 300
    """Lifetime of cached reads in seconds; 0 disables the cache."""
    search_limit: int = 50
    """Default limit of lists and searches."""
    encoder: str = "installed"
    """The encoder for search by meaning: installed (the first that is), universal, minilm, or off."""
    notes_tokens: int = 500
    """Tokens for the owner's notes in a context, about 25 sentences; 0 omits them."""
    detect_notes: str = "off"
    """off, or rules: store preferences and facts in users' messages as notes."""
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


class SlidingWindowConfig(Group, frozen=True, kw_only=True):
    """The token window."""

    sliding_window_enable: bool = True
    """If false, the context keeps all messages."""
    sliding_window_max_tokens: int = 4000
    """Ten to fifteen exchanges with tool calls."""
    sliding_window_preserve_system: bool = True
    """Keep system messages when others are removed."""


class RetentionConfig(Group, frozen=True, kw_only=True):
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


class StoreConfig(Group, frozen=True, kw_only=True):
    """The store or server of the command line."""

    url: str = DEFAULT_URL
    blobs_folder: str = ""
    """The folder for images; empty disables it."""
    key: str = ""
    """The API key, if `url` is a server's."""


class ProtectionConfig(Group, frozen=True, kw_only=True):
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


class ServerConfig(Group, frozen=True, kw_only=True):
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
    """The folder of the built documentation site, served at /docs/; empty serves the pages in the package."""
    max_body_kb: int = 4096
    """Maximum kilobytes of a request body; folders and recordings have separate limits."""
    request_seconds: int = 10
    """Maximum seconds for sending the head of a request."""
    waiting_connections: int = 1000
    """Maximum connections without a request for each process; capped at a tenth of its file handles."""
    keep_alive_seconds: int = 75
    """Seconds until an idle connection is closed. Behind a proxy: longer than the proxy keeps its own."""
    lame_duck_seconds: int = 0
    """Seconds after SIGTERM in which /ready answers 503 and requests are still served. Behind a proxy: longer
    than its interval of health checks, and than it keeps idle connections.
    """
    drain_seconds: int = 10
    """Seconds for running requests to finish when the server stops."""
    queue_seconds: int = 2
    """Expected wait beyond which a request is refused with 503 and Retry-After; 0 refuses none."""
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
    webhook_hosts: str = ""
    """Hosts of webhooks, as host or host:port, separated by commas; empty allows no webhooks."""


class TelemetryConfig(Group, frozen=True, kw_only=True):
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


class ResilienceConfig(Group, frozen=True, kw_only=True):
    """Behaviour while the store is unavailable, and the cache."""

    resilience: str = "auto"
    """auto (fallback for network stores), fallback, fail_closed or off."""
    spool_folder: str = ""
    """The folder of the spool; empty uses the user's state folder."""
    spool_limit_mb: int = 64
    """Maximum megabytes of the spool."""
    start_unreached: bool = False
    """Start while the store is unavailable even if this machine has never reached it."""
    start_replaced: bool = False
    """Start with a store whose data is not the data that this machine has reached before, and remember it."""
    cache: str = "auto"
    """auto (network stores, each read checked), watched (rely on announced changes) or off."""


class AgentConfig(Group, frozen=True, kw_only=True):
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


class VoiceConfig(Group, frozen=True, kw_only=True):
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
