"""Render a context as a provider request, or refuse.

A window is a valid request with two exceptions. First, the filters pass no message, or the conversation
has none; the report says so. Second, the provider rejects blank messages, and without them no message
remains to be answered; only the rendered request shows that.
"""

from collections.abc import Sequence
from typing import Any

from aforesaid.dialects import Request, is_from_model, write
from aforesaid.errors import NothingToSend
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message

BLANK = "the newest message is blank"


def write_request(context: Context, dialect: str) -> Request:
    """Render the context in this dialect. Raises `NothingToSend` when it contains no question.

    A request ends with an assistant message only if the context does; the model then continues that
    message.
    """
    if context.report.nothing_to_send is not None:
        raise NothingToSend(context.report.nothing_to_send)
    request = write(context.messages, dialect)
    if not _has_question(request.messages, context.messages):
        raise NothingToSend(BLANK)
    return request


def _has_question(documents: Sequence[dict[str, Any]], messages: Sequence[Message]) -> bool:
    # A request whose last message is the assistant's asks the model to continue that message.
    last = next(
        (each for each in reversed(documents) if each.get("role") not in ("system", "developer")), None
    )
    if last is None:
        return False
    return not is_from_model(last) or _last_role(messages) == "assistant"


def _last_role(messages: Sequence[Message]) -> str | None:
    return next((message.role for message in reversed(messages) if message.role != "system"), None)
