"""The bases of WebSocket frames."""

from msgspec import Struct


class ClientFrame(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """Base of client frames. Unknown fields are refused, so that misspelt names do not pass unnoticed."""


class Outgoing(Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of server frames. Clients ignore unknown fields and types."""
