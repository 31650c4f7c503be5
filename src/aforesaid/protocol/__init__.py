"""The wire format that the server and the remote client share.

Messages have the form of `Message.to_dict`. Durations are seconds. Times are ISO 8601.

    bodies       request and response bodies; the OpenAPI document is generated from them
    documents    conversion between values, JSON documents and bytes
    live         WebSocket frames
    problems     conversion between errors and RFC 9457 problems
"""

from aforesaid.protocol.documents import (
    PROBLEM_JSON,
    appended_document,
    appended_of,
    context_document,
    context_of,
    conversation_document,
    conversation_of,
    entry_document,
    entry_of,
    error_of,
    from_json,
    lifetime_document,
    message_document,
    open_turn_document,
    open_turn_of,
    page_document,
    page_of,
    problem_of,
    rules_document,
    rules_of,
    status_of,
    to_json,
)

# The owner of a request, percent-encoded UTF-8. Only keys with several owners need it.
OWNER_HEADER = "aforesaid-owner"
# The participant as whom a request acts, percent-encoded UTF-8.
PARTICIPANT_HEADER = "aforesaid-participant"
# Header of a response that was read from the last known state.
DEGRADED = "aforesaid-degraded"
# Seconds without a change after which an event stream sends a heartbeat.
HEARTBEAT = 15.0

__all__ = [
    "DEGRADED",
    "HEARTBEAT",
    "OWNER_HEADER",
    "PARTICIPANT_HEADER",
    "PROBLEM_JSON",
    "appended_document",
    "appended_of",
    "context_document",
    "context_of",
    "conversation_document",
    "conversation_of",
    "entry_document",
    "entry_of",
    "error_of",
    "from_json",
    "lifetime_document",
    "message_document",
    "open_turn_document",
    "open_turn_of",
    "page_document",
    "page_of",
    "problem_of",
    "rules_document",
    "rules_of",
    "status_of",
    "to_json",
]
