"""A list of role messages with tool calls beside the words: what OpenAI's chat interface and plain share.

An assistant's message holds its text and its calls together, and the results follow directly, one
message each. Messages of other dialects are brought into that form here. Below: carrying, order.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from aforesaid.dialects.conversion import Draft, speaks, verbatim
from aforesaid.dialects.order import results_after_calls
from aforesaid.model.messages import Message

Convert = Callable[[Message], Iterable[Draft]]


def thread(messages: Sequence[Message], dialect: str, convert: Convert) -> list[dict[str, Any]]:
    """The messages in a dialect of this form; `convert` turns one message of another dialect into drafts."""
    drafts: list[Draft] = []
    for message in results_after_calls(messages):
        if speaks(message, dialect):
            drafts.append(Draft(document=verbatim(message), converted=False))
        else:
            drafts.extend(convert(message))
    joined: list[Draft] = []
    for draft in drafts:
        _add(joined, draft)
    return [draft.document for draft in joined]


def _add(drafts: list[Draft], draft: Draft) -> None:
    if draft.document["role"] == "tool":
        drafts.insert(_behind_results(drafts), draft)
    elif drafts and _belong_together(drafts[-1], draft):
        drafts[-1] = _joined(drafts[-1], draft)
    else:
        drafts.append(draft)


def _behind_results(drafts: list[Draft]) -> int:
    """Where the next result goes: before what was set aside until all results are there."""
    position = len(drafts)
    while position and drafts[position - 1].trailing:
        position -= 1
    return position


def _belong_together(earlier: Draft, later: Draft) -> bool:
    """Whether conversion has torn apart what is one message here: words and calls, calls and calls."""
    if not (earlier.converted or later.converted):
        return False
    if earlier.document["role"] != "assistant" or later.document["role"] != "assistant":
        return False
    return bool(earlier.document.get("tool_calls") or later.document.get("tool_calls"))


def _joined(earlier: Draft, later: Draft) -> Draft:
    first, second = earlier.document, later.document
    document = {**first, **second, "content": _both(first.get("content"), second.get("content"))}
    calls = [*_calls_of(first), *_calls_of(second)]
    return replace(earlier, document={**document, "tool_calls": calls}, converted=True)


def _both(first: Any, second: Any) -> Any:
    if not first or not second:
        return first or second or None
    return [*_as_blocks(first), *_as_blocks(second)]


def _calls_of(document: dict[str, Any]) -> list[Any]:
    calls = document.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _as_blocks(content: Any) -> list[Any]:
    return list(content) if isinstance(content, list) else [{"type": "text", "text": content}]
