"""Read one setting from the environment, a file or its default."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

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
from aforesaid.errors import InvalidSetting, shown

CACHES = ("auto", "watched", "off")
RESILIENCE = ("auto", "fallback", "fail_closed", "off")
PROVIDERS = ("recall", "anthropic", "openai", "openai_responses", "bedrock")
SUMMARIES = ("off", "extract")
ENCODERS = ("installed", "universal", "minilm", "off")
TRANSCRIBERS = ("embedded", "off", "wyoming", "openai", "nova")
LOGS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
# Allowed values of enumerated settings.
CHOICES = {
    "resilience": RESILIENCE,
    "cache": CACHES,
    "provider": PROVIDERS,
    "encoder": ENCODERS,
    "summaries": SUMMARIES,
    "detect_notes": ("off", "rules"),
    "transcriber": TRANSCRIBERS,
    "jwt_scope": ("read", "write", "admin"),
    "log": LOGS,
    "log_level": LOG_LEVELS,
}

# Variables that are not AFORESAID_ and the setting's name.
_CONVERSATION = (
    *("context_window_size", "request_tokens", "context_deadline", "cache_ttl", "search_limit", "encoder"),
    *("notes_tokens", "detect_notes", "summaries", "summary_tokens", "continue_minutes", "timezone"),
)
_VARIABLES = {name: f"CONVERSATION_{name.upper()}" for name in _CONVERSATION} | {
    "enable_client_association": "ENABLE_CLIENT_ASSOCIATION",
    "enable_agent_filtering": "ENABLE_AGENT_FILTERING",
    "sliding_window_enable": "SLIDING_WINDOW_ENABLE",
    "sliding_window_max_tokens": "SLIDING_WINDOW_MAX_TOKENS",
    "sliding_window_preserve_system": "SLIDING_WINDOW_PRESERVE_SYSTEM",
    "server_host": "AFORESAID_HOST",
    "server_port": "AFORESAID_PORT",
    "server_workers": "AFORESAID_WORKERS",
}


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return _VARIABLES.get(name, f"AFORESAID_{name.upper()}")


class Setting(Struct, frozen=True, kw_only=True):
    """A value with its source."""

    name: str
    value: Any
    source: str


@validated
class Group(CheckedFields, frozen=True, kw_only=True):
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


def _read_one(
    name: str,
    default: Any,
    parse: Callable[[Any], Any],
    environ: Mapping[str, str],
    values: Mapping[str, Any],
    source: str,
) -> Setting:
    variable = variable_of(name)
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
