"""Measure calls and changes: duration, errors, spans, counters and log events."""

import inspect
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from hashlib import blake2b
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from aforesaid._internal.arguments import as_checked, check_of
from aforesaid._internal.patterns import lazy_pattern
from aforesaid.errors import AforesaidError, InvalidInput, NotFound
from aforesaid.telemetry import tracing
from aforesaid.telemetry.logs import describe, event
from aforesaid.telemetry.metrics import Counter, Histogram, telemetry
from aforesaid.telemetry.tracing import Attribute

if TYPE_CHECKING:
    from aforesaid.model.contexts import Context
    from aforesaid.model.messages import Message


# Metrics and log events for changes to conversations.
#
# One function for each event, so that this page is the list. Only counts, ids and keyed hashes: never text,
# names, subjects, tags or sessions. `logging_words` adds the words of searches and identifications, where an
# operator asks for them.


log = logging.getLogger("aforesaid.conversations")

_HASH_KEY = secrets.token_bytes(32)

_UUID = lazy_pattern(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

_turns = telemetry.counter("aforesaid_turns_total")
_messages: dict[str, Counter] = {
    role: telemetry.counter("aforesaid_messages_total", role=role)
    for role in ("user", "assistant", "tool", "system")
}
_characters = telemetry.lengths("aforesaid_message_characters")
_lengths = telemetry.lengths("aforesaid_conversation_messages")
_context_messages = telemetry.lengths("aforesaid_context_messages")
_context_tokens = telemetry.lengths("aforesaid_context_tokens")
_contexts_degraded = telemetry.counter("aforesaid_contexts_degraded_total")
_associations = telemetry.counter("aforesaid_client_associations_total")
_results = telemetry.lengths("aforesaid_search_results")
_violations = telemetry.counter("aforesaid_log_violations_total")
_unreadable = telemetry.counter("aforesaid_unreadable_messages_total")


def turn_stored(conversation_id: str, messages: "Sequence[Message]", *, known: int = 0) -> None:
    """Count a stored turn; `known` of its messages were stored before. This is on the path of every turn."""
    new = messages[known:] if known else messages
    if not new:
        return
    _turns.value += 1
    for message in new:
        content = message.content
        _messages[message.role].value += 1
        _characters.observe(len(content) if type(content) is str else _size(content))
    if log.isEnabledFor(logging.DEBUG):
        fields = {"messages": len(new)} | _id(conversation_id)
        event(log, logging.DEBUG, "turn_stored", "a turn was stored", **fields)


def conversation_started(conversation_id: str, channel: str) -> None:
    telemetry.counter("aforesaid_conversations_started_total", channel=channel).add()
    event(
        log,
        logging.INFO,
        "conversation_started",
        "a conversation was started",
        channel=channel,
        **_id(conversation_id),
    )


def conversation_ended(conversation_id: str, how: str) -> None:
    """Count a deleted or archived conversation."""
    telemetry.counter("aforesaid_conversations_ended_total", how=how).add()
    event(log, logging.INFO, f"conversation_{how}", f"a conversation was {how}", **_id(conversation_id))


def erased(count: int, conversation_id: str | None) -> None:
    """Count an erased conversation, or an erased owner."""
    telemetry.counter("aforesaid_conversations_ended_total", how="erased").add(count)
    sentence = "an owner was erased" if conversation_id is None else "a conversation was erased"
    event(log, logging.INFO, "erased", sentence, count=count, **_id(conversation_id))


def conversation_event(kind: str) -> None:
    """Count an event of a conversation: assigned, closed, reopened or merged."""
    telemetry.counter("aforesaid_conversation_events_total", kind=kind).add()


def conversations_expired(count: int) -> None:
    """Count the conversations that a purge removed."""
    if count:
        telemetry.counter("aforesaid_conversations_ended_total", how="expired").add(count)
        event(log, logging.INFO, "conversations_expired", "expired conversations were removed", count=count)


def conversation_changed(name: str, sentence: str, conversation_id: str = "", **counts: int) -> None:
    """Log another event that an operator may look for later."""
    event(log, logging.INFO, name, sentence, **_id(conversation_id), **counts)


def log_violated(conversation_id: str, count: int) -> None:
    """Count entries of a sealed log that were changed or cannot be decrypted."""
    _violations.add(count)
    event(
        log,
        logging.WARNING,
        "log_violated",
        "a sealed log was changed: entries were altered, added, removed, moved or restored",
        count=count,
        **_id(conversation_id),
    )


def message_unreadable(conversation_id: str, sequence: int) -> None:
    """Count a stored message that cannot be read. Each read counts again: the damage is still there."""
    _unreadable.add()
    sentence = "a stored message cannot be read"
    event(log, logging.WARNING, "message_unreadable", sentence, sequence=sequence, **_id(conversation_id))


def client_associated(conversation_id: str) -> None:
    _associations.add()
    event(
        log,
        logging.INFO,
        "client_associated",
        "a client was linked",
        **_id(conversation_id),
    )


def context_loaded(conversation_id: str, context: "Context") -> None:
    report = context.report
    _context_messages.observe(len(context.messages))
    if report.message_count:
        _lengths.observe(report.message_count)
    if report.counter is not None:
        _context_tokens.observe(report.tokens.total)
    if report.degraded:
        _contexts_degraded.add()
        event(
            log,
            logging.WARNING,
            "context_degraded",
            "a context was built from the last known state",
            **_id(conversation_id),
        )


def searched(by: str, results: int, *, query: str = "", degraded: bool = False) -> None:
    """Count and log a search."""
    telemetry.counter("aforesaid_searches_total", by=by).add()
    _results.observe(results)
    fields = {"by": by, "results": results, "degraded": degraded} | words_fields("query", query)
    event(log, logging.INFO, "searched", "a search was made", **fields)


def client_sought(text: str, outcome: str, candidates: "Sequence[str]" = ()) -> None:
    """Log an attempt to identify a client: `identified`, `ambiguous` or `unidentified`, and the ids found."""
    fields = {"outcome": outcome, "candidates": list(candidates)} | words_fields("text", text)
    event(log, logging.INFO, "client_sought", f"a text was searched for clients: {outcome}", **fields)


@contextmanager
def logging_words(*, enabled: bool) -> Iterator[None]:
    """Log the words of searches and identifications until the block ends, if enabled."""
    before, _words.logged = _words.logged, enabled or _words.logged
    try:
        yield
    finally:
        _words.logged = before


class _Words:
    """Whether logs contain words. For the whole process, as a log is."""

    logged = False


_words = _Words()


def words_fields(name: str, words: str) -> dict[str, Any]:
    """Return the length and hash of a text, and the text itself where an operator asked for it.

    The key of the hash is random: within one process, equal texts have equal hashes, and a list of likely
    texts does not reveal one.
    """
    digest = blake2b(words.encode("utf-8", "surrogatepass"), key=_HASH_KEY, digest_size=8).hexdigest()
    fields = {f"{name}_characters": len(words), f"{name}_hash": digest}
    return fields | {name: words} if _words.logged else fields


def _id(conversation_id: object) -> dict[str, Any]:
    """Return the id as a field. A value that does not look like an id may be anything, and is omitted."""
    text = str(conversation_id)
    return {"conversation_id": text} if _UUID.fullmatch(text) else {}


def _size(content: object) -> int:
    """Count the characters in content that is not plain text."""
    match content:
        case str():
            return len(content)
        case list() | tuple():
            return sum(map(_size, content))
        case dict():
            return sum(map(_size, content.values()))
    return 0


# Measure the manager's calls and blocks of code: duration, errors, spans.
#
# Every public coroutine method is measured under its own name, including delegated ones, so a new method
# needs no further code. Arguments are validated first, by `aforesaid._internal.arguments`.


call_log = logging.getLogger("aforesaid.calls")

C = TypeVar("C", bound=type)
Method = Callable[..., Awaitable[Any]]


def watched(kind: C) -> C:
    """Measure every public coroutine method of the class."""
    return watched_as("")(kind)


def watched_as(prefix: str) -> Callable[[C], C]:
    """Measure a class that a manager returns; its call names get this prefix."""

    def watching(kind: C) -> C:
        return _with_watched_methods(kind, prefix)

    return watching


def _with_watched_methods(kind: C, prefix: str) -> C:
    for name, method in inspect.getmembers(kind, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            setattr(kind, name, watched_method(prefix + name, method))
    return kind


def watched_method(name: str, method: Method) -> Method:
    """Measure one coroutine method under this name."""
    observe = telemetry.histogram("aforesaid_call_seconds", call=name).observe
    # A series that an alert counts exists from the start: a rate does not see the first value of a series.
    telemetry.counter("aforesaid_call_errors_total", call=name, error="other")
    check = check_of(method)

    @wraps(method)
    async def call(*given: Any, **named: Any) -> Any:
        began = perf_counter()
        try:
            check(given, named)
            if tracing.tracer is not None:
                with tracing.span(name):
                    return await method(*given, **named)
            return await method(*given, **named)
        except BaseException as error:
            _failed(name, error)
            raise
        finally:
            observe(perf_counter() - began)

    return as_checked(call)


def _failed(call: str, error: BaseException) -> None:
    """Count an error once, where it is first raised, and log it. A cancellation is not an error."""
    if not isinstance(error, Exception) or getattr(error, "_seen_by_aforesaid", False):
        return
    # Calls contain calls, such as `add_message` and `append`: the mark prevents a second count.
    error._seen_by_aforesaid = True  # type: ignore[attr-defined]
    kind = error_kind(error)
    telemetry.counter("aforesaid_call_errors_total", call=call, error=kind).add()
    event(call_log, _level(error), "call_failed", f"{call} failed: {describe(error)}", call=call, error=kind)


def error_kind(error: BaseException) -> str:
    """Return the class of our own error as a label; `other` for any other error."""
    return type(error).__name__ if type(error).__module__ == "aforesaid.errors" else "other"


def _level(error: Exception) -> int:
    """Return the log level; a caller's mistake is not a failure of ours."""
    if isinstance(error, InvalidInput | NotFound):
        return logging.INFO
    return logging.WARNING if isinstance(error, AforesaidError) else logging.ERROR


# Blocks


class timed:  # noqa: N801  reads as a statement
    """Records the block's duration in the histogram, also when it raises."""

    __slots__ = ("_began", "_seconds", "_span")

    def __init__(self, name: str, seconds: Histogram, **attributes: Attribute) -> None:
        self._seconds = seconds
        self._span = tracing.span(name, **attributes)

    def __enter__(self) -> Self:
        self._span.__enter__()
        self._began = perf_counter()
        return self

    def note(self, **attributes: Attribute) -> None:
        """Add attributes to the span."""
        self._span.note(**attributes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seconds.observe(perf_counter() - self._began)
        self._span.__exit__(kind, error, trace)
