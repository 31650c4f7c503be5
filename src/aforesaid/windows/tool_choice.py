"""Write the choice of tools into a request, in the form of each provider.

A choice is `auto`, `none`, `any` (the model must call a tool), or the name of the tool that it must call.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from aforesaid.dialects import ChatVariantName
from aforesaid.errors import InvalidInput
from aforesaid.tokens import names_of_tools

MODES = ("auto", "none", "any")

Arguments = dict[str, Any]


def check_choice(choice: str, tools: Sequence[Mapping[str, object]]) -> None:
    """Refuse a choice that every provider refuses: without tools, or of an unknown tool."""
    if not tools:
        raise InvalidInput("tool_choice needs tools", field="tool_choice", value=choice)
    if choice not in MODES and choice not in (names := names_of_tools(tools)):
        raise InvalidInput.not_in("tool_choice", choice, (*MODES, *names))


def with_choice(arguments: Arguments, choice: str, dialect: str) -> Arguments:
    """Return the arguments of a request with this choice. Raise `InvalidInput` where a provider has none."""
    add = _CHOICES.get(dialect)
    if add is None:
        raise InvalidInput(f"{dialect} has no tool_choice", field="tool_choice", value=choice)
    return add(arguments, choice)


def _anthropic(arguments: Arguments, choice: str) -> Arguments:
    chosen = {"type": choice} if choice in MODES else {"type": "tool", "name": choice}
    return {**arguments, "tool_choice": chosen}


def _chat(arguments: Arguments, choice: str) -> Arguments:
    named = {"type": "function", "function": {"name": choice}}
    return {**arguments, "tool_choice": _OPENAI_MODES.get(choice, named)}


def _responses(arguments: Arguments, choice: str) -> Arguments:
    named = {"type": "function", "name": choice}
    return {**arguments, "tool_choice": _OPENAI_MODES.get(choice, named)}


def _gemini(arguments: Arguments, choice: str) -> Arguments:
    calling: dict[str, Any] = {"mode": choice.upper()}
    if choice not in MODES:
        calling = {"mode": "ANY", "allowed_function_names": [choice]}
    config = {**arguments["config"], "tool_config": {"function_calling_config": calling}}
    return {**arguments, "config": config}


def _bedrock(arguments: Arguments, choice: str) -> Arguments:
    if choice == "none":
        raise InvalidInput(
            "bedrock has no tool_choice none; send the request without tools", field="tool_choice"
        )
    chosen: dict[str, Any] = {choice: {}} if choice in MODES else {"tool": {"name": choice}}
    return {**arguments, "toolConfig": {**arguments["toolConfig"], "toolChoice": chosen}}


_OPENAI_MODES: Mapping[str, Any] = {"auto": "auto", "none": "none", "any": "required"}
_CHOICES: Mapping[str, Callable[[Arguments, str], Arguments]] = {
    "anthropic": _anthropic,
    "openai_responses": _responses,
    "gemini": _gemini,
    "bedrock": _bedrock,
    # Ollama's interface has no such field.
    **{name: _chat for name in ("openai_chat", *get_args(ChatVariantName)) if name != "ollama"},
}
