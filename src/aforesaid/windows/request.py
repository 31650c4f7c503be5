"""Write a context as a request that a provider takes, or refuse.

A window is valid whatever the log and the policy, with two exceptions that no cut brings about. The
filters pass no message, or the conversation has none: the report says so. Or the provider refuses blank
messages, and without them no message is left to answer: only the written request shows that.
"""

from collections.abc import Sequence
from typing import Any

from aforesaid.dialects import Request, is_from_model, write
from aforesaid.errors import NothingToSend
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message

BLANK = "the newest message is blank"


def write_request(context: Context, dialect: str) -> Request:
    """Write the context as a request in this dialect. Raises `NothingToSend` where it asks nothing.

    A request ends with the assistant's words only where the context does: the model is to continue them.
    """
    if context.report.nothing_to_send is not None:
        raise NothingToSend(context.report.nothing_to_send)
    request = write(context.messages, dialect)
    if not _has_question(request.messages, context.messages):
        raise NothingToSend(BLANK)
    return request


def _has_question(documents: Sequence[dict[str, Any]], messages: Sequence[Message]) -> bool:
    last = next(
        (each for each in reversed(documents) if each.get("role") not in ("system", "developer")), None
    )
    if last is None:
        return False
    return not is_from_model(last) or _last_role(messages) == "assistant"


def _last_role(messages: Sequence[Message]) -> str | None:
    return next((message.role for message in reversed(messages) if message.role != "system"), None)
