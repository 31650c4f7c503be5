"""Rules for the `input` list of OpenAI's Responses API."""

import re
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
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
# The output that each call needs.
_OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
    "program": "program_output",
}
_MAX_CALL_ID_LENGTH = 64
_NO_FILES = ("data:audio/", "data:video/")


def problems(items: Messages, *, continues: bool = False) -> Iterator[str]:
    """`continues`: the provider has earlier items, of `previous_response_id` or `conversation`."""
    for at, item in enumerate(items):
        yield from _item_problems(item, f"item {at}")
    calls = [(at, item) for at, item in enumerate(items) if str(item.get("type")) in _OUTPUTS]
    # Ids tie outputs to calls: unique, and at most sixty-four characters.
    yield from id_problems(
        [Call(_call_id(item), f"item {at}") for at, item in calls if not _is_hosted(item)],
        max_length=_MAX_CALL_ID_LENGTH,
    )
    yield from _pairing_problems(items, continues=continues)
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
    elif kind == "computer_call_output":
        # The output is a screenshot.
        if not isinstance(item.get("output"), dict) or item["output"].get("type") != "computer_screenshot":
            yield f"{place} has an output that is no screenshot"
    elif kind == "shell_call_output":
        # The output is a list of chunks with stdout, stderr and an outcome.
        chunks = item.get("output")
        if not isinstance(chunks, list) or any("outcome" not in chunk for chunk in blocks_in(chunks)):
            yield f"{place} has an output that is no list of chunks"
    elif kind in ("local_shell_call_output", "program_output"):
        if not isinstance(item.get("output" if kind.startswith("local") else "result"), str):
            yield f"{place} has an output that is not text"
    elif kind == "mcp_approval_response" and not isinstance(item.get("approve"), bool):
        yield f"{place} neither approves nor refuses"
    elif kind == "tool_search_output" and not isinstance(item.get("tools"), list):
        yield f"{place} has no list of tools"
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
        # "unsupported MIME type 'audio/mpeg'"
        if block.get("type") == "input_file" and str(block.get("file_data")).startswith(_NO_FILES):
            yield f"{place} has a file of a type that is refused: {block['file_data']:.20}"


def _call_problems(item: dict[str, Any], place: str) -> Iterator[str]:
    # A call names its function, with letters, digits, underscores and hyphens.
    if not isinstance(item.get("name"), str) or not _NAME.fullmatch(item["name"]):
        yield f"{place} is a function call without a name that is accepted: {item.get('name')!r:.80}"
    # The arguments are generated and sent back as JSON text.
    yield from arguments_problems(item.get("arguments"), place)


def _call_id(item: dict[str, Any]) -> Any:
    """Return the id that ties an output to its call. An approval is tied by the id of the request."""
    field = {
        "mcp_approval_request": "id",
        "mcp_approval_response": "approval_request_id",
        "local_shell_call_output": "id",
    }.get(str(item.get("type")), "call_id")
    return item.get(field)


def _is_hosted(item: dict[str, Any]) -> bool:
    # The provider runs its tool search by itself and needs no ids.
    return str(item.get("type")).startswith("tool_search_") and (
        item.get("execution") == "server" or item.get("call_id") is None
    )


def _pairing_problems(items: Messages, *, continues: bool) -> Iterator[str]:
    open_calls: dict[str, Any] = {}
    answered: set[str] = set()
    for at, item in enumerate(items):
        call_id = str(_call_id(item))
        if _is_hosted(item):
            continue
        if str(item.get("type")) in _OUTPUTS:
            open_calls[call_id] = item["type"]
        elif item.get("type") in _OUTPUTS.values():
            # No tool call found for a function call output: the call comes first.
            if call_id not in open_calls:
                if continues and call_id not in answered:
                    answered.add(call_id)
                    continue
                how = "a second time" if call_id in answered else "before any such call"
                yield f"item {at} answers {call_id!r} {how}"
            # Each type of call has its own type of output.
            elif not _fits(open_calls.pop(call_id), str(item["type"])):
                yield f"item {at} answers {call_id!r} with a {item['type']}"
            answered.add(call_id)
    # No tool output found for a function call: each is answered. A program may still be running.
    yield from (
        f"the tool call {call_id!r} has no output"
        for call_id, kind in open_calls.items()
        if kind != "program"
    )


def _fits(call: str, output: str) -> bool:
    # A tool search may also be answered as a function.
    return output == _OUTPUTS[call] or (call, output) == ("tool_search_call", "function_call_output")


def _reasoning_problems(items: Messages) -> Iterator[str]:
    for at, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        # A reasoning item has a summary, which may be an empty list.
        if not isinstance(item.get("summary"), list):
            yield f"item {at} is reasoning without a summary"
        # A reasoning item was provided without its required following item. After one with an id, a message
        # without an id is none. Items that the provider does not store have no ids.
        behind = items[at + 1] if at + 1 < len(items) else {"role": "user"}
        is_nameless = "role" in behind and bool(item.get("id")) and not behind.get("id")
        if not _is_from_model(behind) or is_nameless:
            yield f"item {at} is reasoning without a following item of the model"


def _is_from_model(item: dict[str, Any]) -> bool:
    if "role" in item:
        return str(item["role"]) == "assistant"
    own = item.get("type") == "program_output" or _is_hosted(item)
    return own or not str(item.get("type", "")).endswith(("_output", "_response"))
