"""What the user hears when a turn failed. Below: errors. Above: the supervisor, the entity."""

from aforesaid.errors import AgentRateLimited, AgentRefused, AgentUnavailable, RequestTooLong, TooManySteps

_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (AgentRateLimited, "I'm sorry, I am being asked too much at once. Please try again in a moment."),
    (AgentUnavailable, "I'm sorry, I can't reach the service that I need right now. Please try again."),
    (AgentRefused, "I'm sorry, I can't help with that."),
    (RequestTooLong, "I'm sorry, that was too much for me at once. Please try it in smaller parts."),
    (TooManySteps, "I'm sorry, I could not finish that. Please try asking in another way."),
)
_ANYTHING_ELSE = "I'm sorry, something went wrong. Please try again."


def apology_for(error: BaseException) -> str:
    """An apology that says what the user can do. What went wrong inside is for the log."""
    return next((words for kind, words in _WORDS if isinstance(error, kind)), _ANYTHING_ELSE)
