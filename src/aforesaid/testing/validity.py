"""Would the provider take this request? The rules of each, as a pure function. For tests of windows.

The rules are written down from the providers' documentation and error messages, in
`provider_rules`, one module a dialect, and share no code with the writers that they judge. They
cover what can be seen in the messages alone. Left out is what depends on the model or on other
parameters: limits on length, whether a request may end with the assistant's words.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from aforesaid.dialects.meaning import Request
from aforesaid.errors import InvalidInput
from aforesaid.testing.provider_rules import anthropic, openai_chat, openai_responses, plain
from aforesaid.testing.provider_rules.common import Messages, shape_problems

Rules = Callable[[Messages], Iterator[str]]

_RULES: Mapping[str, Rules] = {
    "plain": plain.problems,
    "anthropic": anthropic.problems,
    "openai_chat": openai_chat.problems,
    "openai_responses": openai_responses.problems,
}


def problems(request: Request | Sequence[Any], dialect: str) -> list[str]:
    """What the provider would refuse in this request, each in one sentence; nothing when it is valid."""
    if dialect not in _RULES:
        raise InvalidInput.not_in("dialect", dialect, _RULES)
    messages = request.messages if isinstance(request, Request) else request
    system = request.system if isinstance(request, Request) else None
    found = list(_system_problems(system, dialect))
    shape = list(shape_problems(messages))
    # The rules may rely on the shape; where it is broken, that is the finding.
    return [*found, *shape] if shape else [*found, *_RULES[dialect](messages)]


def _system_problems(system: Any, dialect: str) -> Iterator[str]:
    if system is None:
        return
    if dialect != "anthropic":
        # Elsewhere the system prompt is a message of the list; there is no such parameter here.
        yield f"{dialect} keeps the system prompt in the list, not apart"
    else:
        yield from anthropic.system_problems(system)
