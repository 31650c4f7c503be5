"""A window in numbers."""

from collections import Counter
from typing import Any

from aforesaid.model.contexts import Context
from aforesaid.windows.groups import tags_of


def stats_of(context: Context | None) -> dict[str, Any]:
    """Return a window's numbers; None means a conversation that does not exist.

    `message_count` is the window's; `context.report.message_count` is the conversation's.
    """
    window = context or Context()
    counts = Counter(tag for message in window.messages for tag in tags_of(message))
    return {
        "exists": context is not None,
        "message_count": len(window),
        "current_tokens": window.report.tokens.total,
        "max_tokens": window.report.max_tokens,
        "utilization": window.report.utilization,
        "tag_distribution": dict(sorted(counts.items())),
    }
