"""What a caller's own function does to messages before they are stored. Below: messages. Above: intake.

The function sees each message as it would be stored, and gives back the message (changed or not), or
None to leave it out. It is called on the event loop, so it has to be quick. When it raises, or gives
back something else, nothing of the turn is stored.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from aforesaid.errors import AforesaidError, InvalidMessage
from aforesaid.model.messages import Message

Redactor: TypeAlias = Callable[[Message], Message | None]


def redacted(messages: Sequence[Message], redact: Redactor) -> list[Message]:
    """The messages as the function leaves them. Id and role stay, whatever it gives back."""
    seen = [_redacted(message, redact) for message in messages]
    return [message for message in seen if message is not None]


def _redacted(message: Message, redact: Redactor) -> Message | None:
    try:
        left = redact(message)
    except AforesaidError:
        raise
    except Exception as error:
        # Its words may quote the message, so only its kind is told.
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
