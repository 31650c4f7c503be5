"""Metrics and log events for changes to conversations.

One function for each event, so that this page is the list. Only counts and ids: never text, names, subjects,
tags or sessions.
"""

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aforesaid.telemetry.logs import event
from aforesaid.telemetry.metrics import Counter, telemetry

if TYPE_CHECKING:
    from aforesaid.model.contexts import Context
    from aforesaid.model.messages import Message

log = logging.getLogger("aforesaid.conversations")

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

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
    telemetry.counter("aforesaid_log_violations_total").add(count)
    event(
        log,
        logging.WARNING,
        "log_violated",
        "a sealed log was changed: entries were altered, added, removed, moved or restored",
        count=count,
        **_id(conversation_id),
    )


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


def searched(by: str, results: int, *, degraded: bool = False) -> None:
    """Count a search."""
    telemetry.counter("aforesaid_searches_total", by=by).add()
    _results.observe(results)
    event(log, logging.INFO, "searched", "a search was made", by=by, results=results, degraded=degraded)


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
