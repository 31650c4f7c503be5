"""Items of OpenAI's Responses API: which of them call, which answer, and which belong together.

An item that calls a tool of ours needs an answer of the matching type (`CALLS`). Other items come in pairs
too: the provider runs a program or a tool search by itself and returns both halves, and a later version of
the interface may add types that this module does not know. Such items are linked by their `call_id`; an
item without one stands alone.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

Item = dict[str, Any]

# The type of the answer that each call needs from us. The provider answers its other calls by itself.
CALLS: Mapping[str, str] = MappingProxyType(
    {
        "function_call": "function_call_output",
        "custom_tool_call": "custom_tool_call_output",
        "computer_call": "computer_call_output",
        "shell_call": "shell_call_output",
        "local_shell_call": "local_shell_call_output",
        "apply_patch_call": "apply_patch_call_output",
        "tool_search_call": "tool_search_output",
        "mcp_approval_request": "mcp_approval_response",
    }
)
ANSWERS: Mapping[str, str] = MappingProxyType({answer: call for call, answer in CALLS.items()})

# Second halves of pairs that the model writes by itself.
_MODEL_ANSWERS = frozenset(("program_output",))

# A one-pixel image, for answers that must contain a screenshot.
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAA"
    "DUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Link(Struct, frozen=True):
    """One half of a pair that the provider answers, or of a type that is not known."""

    id: str
    closes: bool
    """Whether this is the second half."""


def id_field(item: Mapping[str, Any]) -> str:
    """Return the name of the field that connects an item to its call or answer."""
    kind = item.get("type")
    if kind == "mcp_approval_request":
        return "id"
    if kind == "mcp_approval_response":
        return "approval_request_id"
    # The only output item that names its call `id`.
    return "id" if kind == "local_shell_call_output" and item.get("call_id") is None else "call_id"


def call_id_of(item: Mapping[str, Any]) -> str | None:
    """Return the id that connects an item to its call or answer."""
    call_id = item.get(id_field(item))
    return call_id if isinstance(call_id, str) else None


def is_call(item: Mapping[str, Any]) -> bool:
    """Return whether the item needs an answer from us."""
    return str(item.get("type")) in CALLS and call_id_of(item) is not None and not _runs_at_provider(item)


def is_answer(item: Mapping[str, Any]) -> bool:
    """Return whether the item answers a call of `CALLS`."""
    return str(item.get("type")) in ANSWERS and call_id_of(item) is not None and not _runs_at_provider(item)


def link_of(item: Mapping[str, Any]) -> Link | None:
    """Return the link of an item that is neither a call nor an answer; None without an id."""
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or is_call(item) or is_answer(item):
        return None
    return Link(call_id, closes=_is_second_half(item))


def is_from_model(item: Mapping[str, Any]) -> bool:
    """Return whether the model, or a tool of the provider, wrote the item."""
    if str(item.get("type")) in _MODEL_ANSWERS or _runs_at_provider(item):
        return True
    if is_answer(item):
        return False
    # An item of an unknown type that answers nothing is kept as part of an answer.
    return not (_is_second_half(item) and call_id_of(item) is not None)


def answer_to(call: Mapping[str, Any], *, call_id: str, text: str) -> Item:
    """Return an answer of the type that this call needs, with the text where it has one."""
    kind = str(call["type"])
    return {"type": CALLS[kind], **_ANSWER_FIELDS[kind](call_id, text)}


def answered_call_type(item: Mapping[str, Any]) -> str:
    """Return the type of the call that an answer belongs to."""
    return ANSWERS[str(item["type"])]


def _runs_at_provider(item: Mapping[str, Any]) -> bool:
    return item.get("type") in ("tool_search_call", "tool_search_output") and (
        item.get("execution") == "server" or call_id_of(item) is None
    )


def _is_second_half(item: Mapping[str, Any]) -> bool:
    return str(item.get("type", "")).endswith(("_output", "_response"))


def _with_output(call_id: str, text: str) -> Item:
    return {"call_id": call_id, "output": text}


_ANSWER_FIELDS: Mapping[str, Callable[[str, str], Item]] = {
    "function_call": _with_output,
    "custom_tool_call": _with_output,
    "computer_call": lambda call_id, text: {
        "call_id": call_id,
        "output": {"type": "computer_screenshot", "image_url": PIXEL},
    },
    "shell_call": lambda call_id, text: {
        "call_id": call_id,
        "output": [{"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": 1}}],
    },
    "local_shell_call": lambda call_id, text: {"id": call_id, "output": text},
    "apply_patch_call": lambda call_id, text: {"call_id": call_id, "status": "failed", "output": text},
    "tool_search_call": lambda call_id, text: {"call_id": call_id, "execution": "client", "tools": []},
    # Nothing is approved that a person did not approve.
    "mcp_approval_request": lambda call_id, text: {
        "approval_request_id": call_id,
        "approve": False,
        "reason": text,
    },
}
