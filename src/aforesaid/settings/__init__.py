"""Settings in groups of frozen values, read once by the command line or the server and passed down.

A value comes from code, an environment variable or a YAML file. `aforesaid config` shows the source.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from aforesaid._internal.arguments import validated
from aforesaid.errors import InvalidSetting, MissingExtra, shown
from aforesaid.settings.groups import (
    DEFAULT_URL,
    AgentConfig,
    ConversationConfig,
    ProtectionConfig,
    ResilienceConfig,
    RetentionConfig,
    ServerConfig,
    SlidingWindowConfig,
    StoreConfig,
    TelemetryConfig,
    VoiceConfig,
)
from aforesaid.settings.reading import (
    CACHES,
    CHOICES,
    ENCODERS,
    LOG_LEVELS,
    LOGS,
    PROVIDERS,
    RESILIENCE,
    SUMMARIES,
    TRANSCRIBERS,
    Group,
    Setting,
    variable_of,
)

__all__ = [
    "CACHES",
    "CHOICES",
    "DEFAULT_URL",
    "ENCODERS",
    "ENVIRONMENT",
    "GROUPS",
    "LOGS",
    "LOG_LEVELS",
    "PROVIDERS",
    "RESILIENCE",
    "SECRETS",
    "SUMMARIES",
    "TRANSCRIBERS",
    "AgentConfig",
    "ConversationConfig",
    "ProtectionConfig",
    "ResilienceConfig",
    "RetentionConfig",
    "ServerConfig",
    "Setting",
    "Settings",
    "SlidingWindowConfig",
    "StoreConfig",
    "TelemetryConfig",
    "VoiceConfig",
    "every_setting",
    "masked_url",
    "read_yaml",
]

# Settings that are masked in output.
SECRETS = ("key", "master_key", "audit_key", "provider_key", "transcriber_key")

# The key of a YAML file under which the design document has the settings of the sliding window.
SLIDING_WINDOW_KEY = "azure_openai_sdk_conversation"

G = TypeVar("G", bound=Group)


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


GROUPS: tuple[type[Group], ...] = tuple(map(type, asdict(Settings()).values()))

# The environment variable of each setting.
ENVIRONMENT = {name: variable_of(name) for group in GROUPS for name in group.__struct_fields__}


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
