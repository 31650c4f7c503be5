"""Role messages with tool calls as a field: the form that OpenAI's chat API and plain share.

An assistant message contains its text and its calls. The results follow directly, one message each.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from aforesaid.dialects.conversion import Draft, is_native, verbatim
from aforesaid.dialects.order import results_after_calls
from aforesaid.model.messages import Message

Convert = Callable[[Message], Iterable[Draft]]


def write_role_messages(messages: Sequence[Message], dialect: str, convert: Convert) -> list[dict[str, Any]]:
    """Render the messages in a dialect of this form. `convert` turns a message of another dialect into
    drafts.
    """
    drafts: list[Draft] = []
    for message in results_after_calls(messages):
        if is_native(message, dialect):
            drafts.append(Draft(document=verbatim(message), converted=False))
        else:
            drafts.extend(convert(message))
    joined: list[Draft] = []
    for draft in drafts:
        _add(joined, draft)
    return [draft.document for draft in joined]


def _add(drafts: list[Draft], draft: Draft) -> None:
    if draft.document["role"] == "tool":
        drafts.insert(_index_after_results(drafts), draft)
    elif drafts and _should_merge(drafts[-1], draft):
        drafts[-1] = _merge(drafts[-1], draft)
    else:
        drafts.append(draft)


def _index_after_results(drafts: list[Draft]) -> int:
    """Return the index for the next result: before drafts that must follow all results."""
    position = len(drafts)
    while position and drafts[position - 1].trailing:
        position -= 1
    return position


def _should_merge(earlier: Draft, later: Draft) -> bool:
    """Return whether conversion has split one assistant message: text and calls, or calls and calls."""
    if not (earlier.converted or later.converted):
        return False
    if earlier.document["role"] != "assistant" or later.document["role"] != "assistant":
        return False
    return bool(earlier.document.get("tool_calls") or later.document.get("tool_calls"))


def _merge(earlier: Draft, later: Draft) -> Draft:
    first, second = earlier.document, later.document
    document = {**first, **second, "content": _merge_contents(first.get("content"), second.get("content"))}
    calls = [*_calls_of(first), *_calls_of(second)]
    return replace(earlier, document={**document, "tool_calls": calls}, converted=True)


def _merge_contents(first: Any, second: Any) -> Any:
    if not first or not second:
        return first or second or None
    return [*_as_blocks(first), *_as_blocks(second)]


def _calls_of(document: dict[str, Any]) -> list[Any]:
    calls = document.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _as_blocks(content: Any) -> list[Any]:
    return list(content) if isinstance(content, list) else [{"type": "text", "text": content}]
