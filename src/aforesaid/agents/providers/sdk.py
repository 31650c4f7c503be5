"""Import provider SDKs on demand, translate their errors, and convert their responses to replies.

SDKs take seconds to import and read certificates from disk, so that happens on a thread. SDK errors may quote
a key or a header. Our errors quote only the provider's message with secrets removed, and are not chained to
the SDK's error.
"""

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from aforesaid.contracts import Reply, Stop, Usage
from aforesaid.dialects import meaning_of, read
from aforesaid.errors import (
    AforesaidError,
    AgentError,
    AgentRateLimited,
    AgentRefused,
    AgentRejected,
    AgentUnavailable,
    InvalidMessage,
    InvalidSetting,
    MissingExtra,
    RequestTooLong,
)
from aforesaid.model.messages import Message

T = TypeVar("T")

_MAX_MESSAGE_CHARS = 300
# Providers quote parts of keys and headers in their messages. Errors reach logs and users.
_SECRETS = re.compile(
    r"\b(?:sk|pk|rk|key|api|xox\w|gh[pousr])[-_][\w*.-]{6,}"
    r"|\bAKIA[0-9A-Z]{12,}|\bASIA[0-9A-Z]{12,}|\beyJ[\w-]{8,}\.[\w.-]+"
    r"|(?i:\b(?:bearer|basic)\s+[\w.~+/=*-]{6,})"
    r"|(?i:\b(?:x-api-key|api[-_ ]?key|authorization|token|secret|password)\b\s*[=:]\s*"
    r"(?:\w+\s+)?[^\s,;]{4,})"
)
# Providers report a request that is too long with status 400 and one of these texts.
_TOO_LONG = re.compile(
    r"context_length_exceeded|prompt is too long|context window|maximum context length|too many tokens"
    r"|input is too long",
    re.IGNORECASE,
)


# Reasons of Anthropic's Messages API, which Strands passes on.
ANTHROPIC_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "pause",
}


class LazyClient(Generic[T]):
    """A client that was passed in, or one that is created on a thread when first needed."""

    def __init__(self, make: Callable[[], T], *, existing: T | None = None) -> None:
        self._make = make
        self._client = existing
        self._is_ours = existing is None
        self._lock = asyncio.Lock()

    async def get(self) -> T:
        if self._client is None:
            async with self._lock:
                # Checked again inside the lock: concurrent first requests must share one client.
                if self._client is None:
                    self._client = await asyncio.to_thread(self._make)
        return self._client

    def take(self) -> T | None:
        """Return the client for closing if this object created it, and forget it."""
        # A client that was passed in may be in use elsewhere: its owner closes it.
        if not self._is_ours:
            return None
        client, self._client = self._client, None
        return client


def require(package: str, *, what: str, extra: str) -> None:
    """Raise `MissingExtra` at construction instead of at the first request."""
    if find_spec(package) is None:
        raise MissingExtra(what, extra=extra)


def missing_key(provider: str, variable: str) -> InvalidSetting:
    """Return the error of a client without credentials."""
    return InvalidSetting(f"{provider} needs an API key: set {variable} or pass api_key=…", field=variable)


def tools_or_placeholders(
    tools: Sequence[Mapping[str, Any]], messages: Sequence[Message]
) -> list[Mapping[str, Any]]:
    """Return the tools in Anthropic's format, or placeholders for earlier calls when there are none.

    The API requires tool definitions whenever the messages contain tool calls, also those of another agent.
    """
    if tools:
        return list(tools)
    names = dict.fromkeys(call.name for message in messages for call in meaning_of(message).calls)
    gone = {"description": "No longer available.", "input_schema": {"type": "object"}}
    return [{"name": name, **gone} for name in names]


async def translate_errors(
    call: Awaitable[T], *, sdk: str, provider: str, secrets: tuple[str, ...] = ()
) -> T:
    """Await the call. Translate errors of the SDK named `sdk` and of its HTTP client."""
    try:
        return await call
    except AforesaidError:
        raise
    except _errors_of(sdk) as error:
        problem = agent_error(error, provider=provider, secrets=secrets)
    # Raise outside the handler, so that the SDK's error with its request and key is not chained.
    raise problem


def _errors_of(sdk: str) -> tuple[type[BaseException], ...]:
    """Return the base classes of an SDK's errors, of its HTTP client's, and ValueError for unreadable
    responses.
    """
    roots = [
        getattr(sys.modules.get(module), name, None)
        for module, *names in (*_ERROR_CLASSES[sdk], *_ERROR_CLASSES["transport"])
        for name in names
    ]
    return (ValueError, *(root for root in roots if isinstance(root, type)))


# Modules and their error base classes. A module that is not imported cannot have raised.
_ERROR_CLASSES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "anthropic": (("anthropic", "AnthropicError"),),
    "openai": (("openai", "OpenAIError"),),
    "botocore": (("botocore.exceptions", "BotoCoreError", "ClientError"),),
    "strands": (("strands.types.exceptions", "ModelThrottledException", "ContextWindowOverflowException"),),
    "transport": (
        ("httpx", "HTTPError", "StreamError"),
        ("httpx2", "HTTPError", "StreamError"),
    ),
}


def agent_error(error: BaseException, *, provider: str, secrets: tuple[str, ...] = ()) -> AgentError:
    """Translate an SDK error, without secrets."""
    status = _status_of(error)
    request_id = getattr(error, "request_id", None)
    words = without_secrets(_message_of(error), secrets)
    if status is None:
        return AgentUnavailable(f"{provider}: {words}", request_id=request_id)
    return error_for_status(
        status,
        f"{provider} answered {status}: {words}",
        retry_after=_retry_after(error),
        request_id=request_id,
    )


# HTTP status for error codes inside a stream, where the response itself was 200. Other codes count as 500.
_STATUS_BY_CODE = {
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "context_length_exceeded": 413,
}


def _status_of(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and status >= 400:
        return status
    kind = _kind_of(error)
    return None if kind is None else _STATUS_BY_CODE.get(kind, 500)


def _kind_of(error: BaseException) -> str | None:
    match getattr(error, "body", None):
        case {"error": {"code": str(kind)} | {"type": str(kind)}} | {"code": str(kind)} | {"type": str(kind)}:
            return kind
    return None


def error_for_status(
    status: int, message: str, *, retry_after: float | None = None, request_id: str | None = None
) -> AgentError:
    """Return the error for an HTTP status."""
    if status == 429:
        return AgentRateLimited(message, retry_after=retry_after, status=status, request_id=request_id)
    # 408 and 409 are timeouts and conflicts inside the provider: a retry can succeed.
    if status >= 500 or status in (408, 409):
        return AgentUnavailable(message, status=status, request_id=request_id)
    kind = RequestTooLong if status == 413 or _TOO_LONG.search(message) else AgentRejected
    return kind(message, status=status, request_id=request_id)


def without_secrets(words: str, secrets: tuple[str, ...] = ()) -> str:
    """Return the text shortened, without these secrets and without anything that looks like one."""
    for secret in secrets:
        if secret:
            words = words.replace(secret, "[secret]")
    words = " ".join(_SECRETS.sub("[secret]", words).split())
    return words if len(words) <= _MAX_MESSAGE_CHARS else f"{words[:_MAX_MESSAGE_CHARS]}…"


def _message_of(error: BaseException) -> str:
    """Return the provider's message if there is one, else the SDK's."""
    match getattr(error, "body", None):
        case {"error": {"message": str(words), **rest}} | {"message": str(words), **rest}:
            kind = rest.get("code") or rest.get("type")
            return f"{words} ({kind})" if isinstance(kind, str) else words
    return str(error) or type(error).__name__


def _retry_after(error: BaseException) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        return None
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        seconds = _number(headers.get(name))
        if seconds is not None:
            return seconds / unit
    return None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None  # an HTTP date, which some proxies send, is ignored


UNREADABLE = "unreadable_arguments"
ENDED_EARLY = "the response ended early"


def build_reply(content: Any, *, dialect: str, provider: str, stop: Stop, usage: Usage | None) -> Reply:
    """Return the reply with the provider's messages unchanged. Raise `AgentUnavailable` when it is empty."""
    messages = _read(content, dialect, provider)
    meanings = [meaning_of(message) for message in messages]
    calls = any(meaning.calls for meaning in meanings)
    if not calls and stop != "pause" and not any(meaning.text.strip() for meaning in meanings):
        raise AgentUnavailable(f"{provider}: the response is empty")
    if calls and stop == "end":
        stop = "tools"  # some servers report "stop" for a reply with tool calls
    return Reply(messages=messages, stop=stop, usage=usage)


def _read(content: Any, dialect: str, provider: str) -> tuple[Message, ...]:
    try:
        return tuple(_with_valid_arguments(message) for message in read(content, dialect=dialect))
    except InvalidMessage as error:
        problem = f"{provider}: the response cannot be parsed: {error}"
    raise AgentUnavailable(problem)


def _with_valid_arguments(message: Message) -> Message:
    """Return the message with malformed call arguments wrapped as JSON.

    Models that reach their output limit, and small models, write malformed arguments. Servers reject them
    when they are sent back. Wrapped, the tool reports them as unknown and the model can correct them.
    """
    extra = message.extra
    match extra:
        case {"type": "function_call", "arguments": str(text)} if as_json_object(text) != text:
            return message.with_(extra=extra | {"arguments": as_json_object(text)})
        case {"tool_calls": [*calls]} if [_with_json_arguments(call) for call in calls] != calls:
            return message.with_(extra=extra | {"tool_calls": [_with_json_arguments(call) for call in calls]})
    return message


def _with_json_arguments(call: Any) -> Any:
    match call:
        case {"function": {"arguments": str(text), **rest}}:
            return {**call, "function": {**rest, "arguments": as_json_object(text)}}
    return call


def as_json_object(arguments: str) -> str:
    """Return call arguments unchanged if they are empty or a JSON object, else wrapped in one."""
    try:
        is_object = not arguments.strip() or isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        is_object = False
    return arguments if is_object else json.dumps({UNREADABLE: arguments})


def list_field(response: Any, field: str, provider: str) -> list[Any]:
    """Return a list field of a response. SDKs return an HTML page as text, which raises
    `AgentUnavailable`.
    """
    found = getattr(response, field, None)
    if not isinstance(found, list):
        raise AgentUnavailable(f"{provider}: the response has an unexpected format")
    return found


def refusal_error(provider: str, words: str | None = None) -> AgentRefused:
    """Return the error for a refusal, with the model's text if there is one."""
    text = (words or "").strip()
    return AgentRefused(f"{provider}: {text or 'the model refused to answer'}", words=text)


def usage_of(usage: Any, *inputs: str, output: str) -> Usage | None:
    """Return the token counts in these fields, or None without usage."""
    if usage is None:
        return None
    return Usage(
        input_tokens=sum(_count_in(usage, field) for field in inputs), output_tokens=_count_in(usage, output)
    )


def _count_in(usage: Any, field: str) -> int:
    count = getattr(usage, field, None)
    return count if isinstance(count, int) else 0
