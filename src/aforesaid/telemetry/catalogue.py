"""Every metric as data: name, kind, meaning, labels, buckets.

Tests compare `docs/reference/metrics.md`, the alert rules and the dashboard with this list, and a metric of
ours must be in it. Label values come from sets known when the program is written or configured: never an
owner, an id, or content.
"""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


# Upper bounds of time histograms, from ten microseconds (a read in memory) to ten seconds (a store that
# hangs). Five steps per power of ten: the error of a quantile is at most one step, a factor of 1.6.
SECONDS = (
    *(float(f"{step}e{power}") for power in range(-5, 1) for step in (1.0, 1.6, 2.5, 4.0, 6.3)),
    10.0,
)
# Upper bounds of lengths and counts: powers of two up to a million, so that a bucket is a number of bits.
LENGTHS = tuple(float(2**power) for power in range(21))


class Family(NamedTuple):
    """All series of one name."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    across: Literal["sum", "max"] = "sum"
    """How the values of several processes are combined."""


def _counter(name: str, meaning: str, *labels: str) -> Family:
    return Family(name, "counter", meaning, labels)


def _gauge(name: str, meaning: str, *labels: str, across: Literal["sum", "max"] = "sum") -> Family:
    return Family(name, "gauge", meaning, labels, across=across)


def _times(name: str, meaning: str, *labels: str) -> Family:
    return Family(name, "histogram", meaning, labels, SECONDS)


def _lengths(name: str, meaning: str, *labels: str) -> Family:
    return Family(name, "histogram", meaning, labels, LENGTHS)


CHAPTERS: dict[str, tuple[Family, ...]] = {
    "Conversations": (
        _counter("aforesaid_conversations_started_total", "Conversations started", "channel"),
        _counter(
            "aforesaid_conversations_ended_total",
            "Conversations removed: deleted (also where there was none), expired, erased, archived",
            "how",
        ),
        _counter("aforesaid_turns_total", "Turns stored"),
        _counter("aforesaid_messages_total", "Messages stored", "role"),
        _counter("aforesaid_client_associations_total", "Conversations linked to a client"),
        _counter("aforesaid_clients_ambiguous_total", "Messages that may name several clients"),
        _counter(
            "aforesaid_client_notes_dropped_total",
            "Conversations not searched for clients because the queue was full",
        ),
        _lengths("aforesaid_message_characters", "Characters in a stored message"),
        _lengths("aforesaid_conversation_messages", "Messages in a conversation when a context is built"),
    ),
    "Contexts": (
        _lengths("aforesaid_context_messages", "Messages in a context"),
        _lengths("aforesaid_context_tokens", "Tokens in a context, where they were counted"),
        _counter(
            "aforesaid_contexts_degraded_total",
            "Contexts built from the last known state while the store was unavailable",
        ),
    ),
    "Calls": (
        _times(
            "aforesaid_call_seconds",
            "Duration of a call of the manager; one may contain another, as add_message contains append",
            "call",
        ),
        _counter(
            "aforesaid_call_errors_total",
            "Calls of the manager that raised an error; each error counts once, where it was first raised",
            "call",
            "error",
        ),
    ),
    "Search": (
        _counter(
            "aforesaid_searches_total",
            "Searches by kind: words, meaning, time, conversations, likeness",
            "by",
        ),
        _lengths("aforesaid_search_results", "Results of a search"),
        _times(
            "aforesaid_search_stage_seconds",
            "Duration of a stage of a search: candidates, reading, browsing",
            "stage",
        ),
    ),
    "Agents": (
        _times("aforesaid_agent_step_seconds", "Duration of one reply of an agent", "agent"),
        _counter("aforesaid_agent_errors_total", "Replies that failed", "agent", "error"),
        _counter("aforesaid_agent_tokens_total", "Tokens as counted by providers", "agent", "direction"),
        _counter(
            "aforesaid_unstored_turns_total",
            "Answered turns that could not be stored: queued, stored later, or lost",
            "status",
        ),
        _times("aforesaid_tool_seconds", "Duration of a tool call", "tool"),
        _counter("aforesaid_tool_errors_total", "Tool calls that failed", "tool"),
    ),
    "Stores": (
        _times("aforesaid_store_seconds", "Duration of a store operation", "store", "operation"),
        _counter(
            "aforesaid_store_errors_total",
            "Store operations that were refused or failed",
            "store",
            "operation",
            "error",
        ),
        _counter(
            "aforesaid_log_violations_total",
            "Entries of sealed logs that were changed or cannot be decrypted",
        ),
        _counter("aforesaid_cache_hits_total", "Reads served from the cache", "store"),
        _counter("aforesaid_cache_misses_total", "Reads that were loaded", "store"),
        _gauge("aforesaid_cache_bytes", "Bytes in the cache", "store"),
        _counter("aforesaid_retries_total", "Retries", "store"),
        _counter("aforesaid_degraded_reads_total", "Reads answered from the last known state", "store"),
        _gauge("aforesaid_breaker_state", "0 closed, 1 half open, 2 open", "store", across="max"),
        _gauge("aforesaid_known_bytes", "Bytes of the last known state", "store"),
        _counter("aforesaid_spool_accepted_total", "Operations accepted into the spool", "store"),
        _counter("aforesaid_spool_replayed_total", "Spooled operations that were replayed", "store"),
        _counter("aforesaid_dead_letters_total", "Spooled operations that the store refused", "store"),
        _counter("aforesaid_spool_damaged_total", "Damaged parts of the spool that were set aside", "store"),
        _gauge("aforesaid_spool_operations", "Operations in the spool", "store"),
        _gauge("aforesaid_spool_bytes", "Bytes in the spool", "store"),
        _gauge("aforesaid_spool_limit_bytes", "The most bytes that the spool may take", "store"),
        _gauge(
            "aforesaid_spool_oldest_seconds",
            "Age of the oldest operation in the spool",
            "store",
            across="max",
        ),
    ),
    "HTTP": (
        _counter(
            "aforesaid_http_requests_total",
            "Requests answered, by the template of their route",
            "method",
            "route",
            "status",
        ),
        _times(
            "aforesaid_http_request_seconds",
            "Duration of a request, from its first byte to the last byte of the response",
            "method",
            "route",
        ),
        _gauge("aforesaid_http_requests_in_progress", "Requests being answered"),
    ),
    "WebSocket": (
        _gauge("aforesaid_live_connections", "Open connections"),
        _counter("aforesaid_live_opened_total", "Opened connections"),
        _counter("aforesaid_live_closed_total", "Closed connections, by code", "code"),
        _counter("aforesaid_live_frames_total", "Frames in and out", "direction", "kind"),
        _gauge("aforesaid_live_queued", "Frames waiting to be sent, over all connections"),
        _gauge(
            "aforesaid_live_queue_longest",
            "Frames waiting on the connection with the longest queue",
            across="max",
        ),
        _gauge("aforesaid_live_feeds", "Watched conversations"),
        _gauge("aforesaid_live_turns", "Turns in progress"),
    ),
    "Process": (
        _gauge("aforesaid_build_info", "Always 1; the label is the release", "version", across="max"),
        _gauge("aforesaid_processes", "Server processes included in these metrics"),
        _gauge("aforesaid_start_time_seconds", "When the process started, in Unix time", across="max"),
    ),
}

CATALOGUE: dict[str, Family] = {family.name: family for chapter in CHAPTERS.values() for family in chapter}
