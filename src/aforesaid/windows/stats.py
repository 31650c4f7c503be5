"""A window in numbers, in the documented form. Below: contexts, grouping. Above: the manager."""

from collections import Counter
from typing import Any

from aforesaid.model.contexts import Context
from aforesaid.windows.groups import tags_of


def stats_of(context: Context | None) -> dict[str, Any]:
    """What the window holds; None stands for a conversation that does not exist.

    `message_count` counts the window's messages; `context.report.message_count` the conversation's.
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
