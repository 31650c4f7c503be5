"""Names and defaults that several modules use."""

from typing import Final

DOMAIN: Final = "aforesaid"
DEFAULT_TITLE: Final = "Aforesaid"
SUBENTRY_AGENT: Final = "conversation"

# The entry's data: where the memory is.
CONF_MODE: Final = "mode"
MODE_EMBEDDED: Final = "embedded"
MODE_SERVER: Final = "server"
CONF_URL: Final = "url"
CONF_KEY: Final = "key"
CONF_PLAIN_HTTP: Final = "plain_http"

# The options of the documents, with their defaults in `options.py`.
CONF_WINDOW: Final = "sliding_window_enable"
CONF_MAX_TOKENS: Final = "sliding_window_max_tokens"
CONF_PRESERVE_SYSTEM: Final = "sliding_window_preserve_system"
CONF_MAX_TURNS: Final = "max_history_turns"
CONF_AUTO_CREATE: Final = "auto_create_conversation_id"
CONF_LIFETIME: Final = "lifetime"
CONF_TTL_DAYS: Final = "ttl_days"

# What is recorded, and whose it is.
CONF_RECORD: Final = "record_all_agents"
CONF_TOOLS: Final = "offer_tools"
CONF_UNMAPPED: Final = "unmapped_devices"
UNMAPPED_DEVICE: Final = "device"
UNMAPPED_SHARED: Final = "shared"
CONF_DEVICES: Final = "device_owners"
CONF_DEVICE: Final = "device"
CONF_PERSON: Final = "person"

CONF_TARGET: Final = "target"

DATABASE: Final = "memory.db"
SPOOL: Final = "spool.jsonl"

TAG: Final = "home_assistant"
"""The tag of every conversation that this integration stores."""
