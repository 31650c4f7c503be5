"""Quote another agent's message as text."""

from aforesaid.dialects.parse import meaning_of
from aforesaid.model.messages import Message


def narrate(message: Message, agent_name: str) -> Message | None:
    """Return the message, quoted as text if another agent wrote it. None if that has no text."""
    if message.role != "assistant" or message.agent_name in (None, agent_name):
        return message
    words = meaning_of(message).text.strip()
    if not words:
        return None
    # A user message: an assistant message would count as this agent's own.
    quoted = f"[{message.agent_name} answered:] {words}"
    return Message(role="user", content=quoted, timestamp=message.timestamp, agent_name=message.agent_name)
