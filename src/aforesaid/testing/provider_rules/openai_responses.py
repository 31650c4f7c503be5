"""Rules for the `input` list of OpenAI's Responses API."""

from collections.abc import Iterator
from typing import Any

from aforesaid.testing.provider_rules.common import (
    Call,
    Messages,
    arguments_problems,
    block_problems,
    blocks_in,
    id_problems,
)

_KINDS = {
    # An assistant message contains output content; other roles contain input content.
    "user": ("input_text", "input_image", "input_file", "input_audio"),
    "system": ("input_text", "input_image", "input_file"),
    "developer": ("input_text", "input_image", "input_file"),
    "assistant": ("output_text", "refusal"),
}
_OUTPUT_KINDS = ("input_text", "input_image", "input_file")
_CALLS = ("function_call", "custom_tool_call", "computer_call", "shell_call", "apply_patch_call")
_OUTPUTS = tuple(f"{kind}_output" for kind in _CALLS)
_MAX_CALL_ID_LENGTH = 64


def problems(items: Messages) -> Iterator[str]:
    for at, item in enumerate(items):
        yield from _item_problems(item, f"item {at}")
    calls = [(at, item) for at, item in enumerate(items) if item.get("type") in _CALLS]
    # Ids tie outputs to calls: unique, and at most sixty-four characters.
    yield from id_problems(
        [Call(item.get("call_id"), f"item {at}") for at, item in calls], max_length=_MAX_CALL_ID_LENGTH
    )
    yield from _pairing_problems(items)
    yield from _reasoning_problems(items)


def _item_problems(item: dict[str, Any], place: str) -> Iterator[str]:
    kind = item.get("type", "message" if "role" in item else "item_reference")
    if kind == "message":
        yield from _message_problems(item, place)
    elif kind == "function_call":
        yield from _call_problems(item, place)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        # An output is text or a list of input content.
        yield from block_problems(item.get("output"), place, _OUTPUT_KINDS)
        yield from _part_problems(item.get("output"), place)
    elif kind == "item_reference" and not isinstance(item.get("id"), str):
        # An item without a type refers to another one by its id.
        yield f"{place} has neither a role nor a type nor an id"


def _message_problems(item: dict[str, Any], place: str) -> Iterator[str]:
    role = str(item.get("role"))
    # There is no tool role here; results are items.
    if role not in _KINDS:
        yield f"{place} has the role {role!r}"
        return
    yield from block_problems(item.get("content"), place, _KINDS[role])
    yield from _part_problems(item.get("content"), place)


def _part_problems(content: Any, place: str) -> Iterator[str]:
    for block in blocks_in(content):
        # A text part carries text.
        if block.get("type") in ("input_text", "output_text") and not isinstance(block.get("text"), str):
            yield f"{place} has a text part without text"
        # An image is a URL, possibly a data URL, or an uploaded file.
        has_image = isinstance(block.get("image_url"), str) or isinstance(block.get("file_id"), str)
        if block.get("type") == "input_image" and not has_image:
            yield f"{place} has an image without image_url or file_id"


def _call_problems(item: dict[str, Any], place: str) -> Iterator[str]:
    # A call names its function.
    if not isinstance(item.get("name"), str) or not item["name"]:
        yield f"{place} is a function call without a name"
    # The arguments are generated and sent back as JSON text.
    yield from arguments_problems(item.get("arguments"), place)


def _pairing_problems(items: Messages) -> Iterator[str]:
    open_calls: dict[str, Any] = {}
    answered: set[str] = set()
    for at, item in enumerate(items):
        call_id = str(item.get("call_id"))
        if item.get("type") in _CALLS:
            open_calls[call_id] = item["type"]
        elif item.get("type") in _OUTPUTS:
            # No tool call found for a function call output: the call comes first.
            if call_id not in open_calls:
                how = "a second time" if call_id in answered else "before any such call"
                yield f"item {at} answers {call_id!r} {how}"
            # Each type of call has its own type of output.
            elif f"{open_calls.pop(call_id)}_output" != item["type"]:
                yield f"item {at} answers {call_id!r} with a {item['type']}"
            answered.add(call_id)
    # No tool output found for a function call: each is answered.
    yield from (f"the tool call {call_id!r} has no output" for call_id in open_calls)


def _reasoning_problems(items: Messages) -> Iterator[str]:
    for at, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        # A reasoning item has a summary, which may be an empty list.
        if not isinstance(item.get("summary"), list):
            yield f"item {at} is reasoning without a summary"
        # A reasoning item was provided without its required following item.
        if at + 1 == len(items) or not _is_from_model(items[at + 1]):
            yield f"item {at} is reasoning without a following item of the model"


def _is_from_model(item: dict[str, Any]) -> bool:
    if "role" in item:
        return str(item["role"]) == "assistant"
    return not str(item.get("type", "")).endswith(("_output", "_response"))
