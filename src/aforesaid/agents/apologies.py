"""Texts for the user when a turn failed."""

from aforesaid.errors import AgentRateLimited, AgentRefused, AgentUnavailable, RequestTooLong, TooManySteps

_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (AgentRateLimited, "I'm sorry, I have too many requests right now. Please try again in a moment."),
    (AgentUnavailable, "I'm sorry, I can't reach the service that I need right now. Please try again."),
    (AgentRefused, "I'm sorry, I can't help with that."),
    (RequestTooLong, "I'm sorry, that was too long for me. Please try it in smaller parts."),
    (TooManySteps, "I'm sorry, I could not finish that. Please try asking in another way."),
)
_DEFAULT = "I'm sorry, something went wrong. Please try again."


def apology_for(error: BaseException) -> str:
    """Return an apology that tells the user what to do. Details of the error belong in the log."""
    return next((words for kind, words in _WORDS if isinstance(error, kind)), _DEFAULT)
