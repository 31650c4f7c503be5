"""What goes over the wire: bodies of requests and answers, and errors as problems.

The server renders with it, the client reads with it, and neither knows the other. A message is in its
documented form (`Message.to_dict`), a length of time is a number of seconds, a moment is ISO 8601.

    bodies       what is sent and what comes back, as frozen values: the OpenAPI document is made from them
    documents    our values ↔ their documents
    problems     our errors ↔ RFC 9457 problems

Below: values, errors. Above: the server, the client.
"""

from aforesaid.protocol.documents import (
    appended_document,
    appended_of,
    context_document,
    context_of,
    conversation_document,
    conversation_of,
    entry_document,
    entry_of,
    lifetime_document,
    message_document,
    page_document,
    page_of,
    rules_document,
    rules_of,
)
from aforesaid.protocol.jsons import from_json, to_json
from aforesaid.protocol.problems import PROBLEM_JSON, error_of, problem_of, status_of

OWNER_HEADER = "aforesaid-owner"
"""Whose data a request is about, percent-encoded UTF-8; needed by a key of several owners only."""
DEGRADED = "aforesaid-degraded"
"""The header of an answer that comes from the last known state."""
HEARTBEAT = 15.0
"""Seconds of silence after which a stream of changes says that the line is still good."""

__all__ = [
    "DEGRADED",
    "HEARTBEAT",
    "OWNER_HEADER",
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
    "page_document",
    "page_of",
    "problem_of",
    "rules_document",
    "rules_of",
    "status_of",
    "to_json",
]
