"""Mark the stable prefix of a request, for providers whose prompt cache needs marks."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from aforesaid.dialects import Request, write
from aforesaid.dialects.anthropic_rules import MAX_CACHE_MARKS, with_marks_limited
from aforesaid.model.contexts import Context

Document = dict[str, Any]

_ANTHROPIC_MARK = {"cache_control": {"type": "ephemeral"}}
_BEDROCK_MARK = {"cachePoint": {"type": "default"}}


def with_cache_marks(request: Request, context: Context, dialect: str) -> Request:
    """Return the request with a mark after the system prompt, and one after the stable prefix."""
    mark = _MARKS.get(dialect)
    if mark is None:
        return request
    prefix = write(context.messages[: context.report.stable_prefix], dialect).messages
    # A message at the end of the prefix may be rendered in another way before the next ones.
    length = next(
        (at for at, (one, other) in enumerate(zip(prefix, request.messages, strict=False)) if one != other),
        min(len(prefix), len(request.messages)),
    )
    messages = list(request.messages)
    if length:
        messages[length - 1] = {**messages[length - 1], "content": mark(messages[length - 1]["content"])}
    system = mark(request.system) if request.system else request.system
    marked = replace(request, messages=messages, system=system)
    return with_marks_limited(marked, MAX_CACHE_MARKS) if dialect == "anthropic" else marked


def _mark_block(content: Any) -> Any:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    # The provider refuses marks on thinking.
    if not blocks or blocks[-1].get("type") in ("thinking", "redacted_thinking"):
        return content
    return [*blocks[:-1], {**blocks[-1], **_ANTHROPIC_MARK}]


def _add_point(content: Any) -> Any:
    return content if content and "cachePoint" in content[-1] else [*content, _BEDROCK_MARK]


_MARKS: Mapping[str, Callable[[Any], Any]] = {"anthropic": _mark_block, "bedrock": _add_point}
