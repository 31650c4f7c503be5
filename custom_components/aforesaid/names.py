"""The names of stored conversations.

Home Assistant replaces an id of its own (a ULID) after five minutes, and keeps ids that a caller has chosen.
"""

from homeassistant.components import conversation
from homeassistant.util.ulid import ulid_to_bytes

from .const import DOMAIN


def is_generated(conversation_id: str | None) -> bool:
    """Return whether Home Assistant generated the id, or would: a caller's own id is no ULID."""
    if conversation_id is None:
        return True
    try:
        ulid_to_bytes(conversation_id)
    except ValueError:
        return False
    return True


def rolling_name(place: str | None, agent: str) -> str:
    """Return the name of the one conversation at a place with an agent: it has no end.

    The agent is part of it, so that two assistants of one satellite do not share a history.
    """
    return f"{DOMAIN}:{place or 'user'}:{agent}"


def conversation_name(
    user_input: conversation.ConversationInput, log_id: str, agent: str, *, auto_create: bool
) -> str:
    """Return the name of the conversation that an input continues.

    An expired id of the caller still names the stored conversation, although the core has a new one.
    """
    given = user_input.conversation_id
    if auto_create and is_generated(given):
        return rolling_name(user_input.satellite_id or user_input.device_id, agent)
    return given or log_id
