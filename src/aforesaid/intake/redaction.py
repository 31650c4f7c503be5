"""Redaction by an application's function, before a message is stored.

The function receives each message as it would be stored and returns it, changed or not, or None to omit it.
It runs on the event loop, so it must not block. When it raises or returns anything else, nothing of the turn
is stored.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from aforesaid.errors import AforesaidError, InvalidMessage
from aforesaid.model.messages import Message

Redactor: TypeAlias = Callable[[Message], Message | None]


def redacted(messages: Sequence[Message], redact: Redactor) -> list[Message]:
    """Return the redacted messages. Ids and roles stay, whatever the function returns."""
    seen = [_redacted(message, redact) for message in messages]
    return [message for message in seen if message is not None]


def _redacted(message: Message, redact: Redactor) -> Message | None:
    try:
        left = redact(message)
    except AforesaidError:
        raise
    except Exception as error:
        # The error's text may quote the message, so only its type is included.
        raise InvalidMessage(
            f"the redact function failed with {type(error).__name__}, and nothing was stored", field="redact"
        ) from error
    if left is None:
        return None
    if not isinstance(left, Message):
        raise InvalidMessage(
            f"the redact function must give back a Message or None; it gave a {type(left).__name__}, and "
            "nothing was stored",
            field="redact",
        )
    return (
        left if left is message else left.with_(message_id=message.message_id, role=message.role, tokens={})
    )
