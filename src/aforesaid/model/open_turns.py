"""Open turns: words of a user that have no answer yet."""

from datetime import datetime

from msgspec import Struct

from aforesaid.model.messages import Message


class OpenTurn(Struct, frozen=True, kw_only=True):
    """The words of a turn without an answer. They are stored, and no part of the log."""

    id: str
    """The id of the first message. An answer that is stored with this message closes the turn."""
    conversation_id: str
    messages: tuple[Message, ...]
    opened_at: datetime
