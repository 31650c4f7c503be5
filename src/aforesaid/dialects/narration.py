"""A message as another agent is told of it: in words, as whose they are. Below: reading.

Above: windows, which weigh it like that, and the views of agents, which show it.
"""

from aforesaid.dialects.parse import meaning_of
from aforesaid.model.messages import Message


def narrate(message: Message, agent_name: str) -> Message | None:
    """The message; where another agent said it, its words, told as theirs. None: it has no words to tell."""
    if message.role != "assistant" or message.agent_name in (None, agent_name):
        return message
    words = meaning_of(message).text.strip()
    if not words:
        return None
    # As the user's, because only those are not this agent's own; every provider takes several in a row.
    describe = f"[{message.agent_name} answered:] {words}"
    return Message(role="user", content=describe, timestamp=message.timestamp, agent_name=message.agent_name)
