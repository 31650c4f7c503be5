"""Summaries, as calls. Below: base. The signatures are the manager's."""

from typing import Any

import msgspec

from recollect.client.calls import Call
from recollect.client.describing.base import Calls, conversation
from recollect.summaries import Summary
from recollect.windows import WindowPolicy


class SummarizingCalls(Calls):
    """What stands for what a context no longer shows."""

    def summary(self, conversation_id: str) -> Call[Summary | None]:
        return self._call("GET", "conversations", conversation(conversation_id), "summary", read=_summary)

    def summarize(self, conversation_id: str, *, policy: WindowPolicy | None = None) -> Call[Summary | None]:
        return self._call(
            "POST",
            "conversations",
            conversation(conversation_id),
            "summary",
            read=_summary,
            body={"policy": None if policy is None else msgspec.to_builtins(policy)},
        )


def _summary(document: Any) -> Summary | None:
    return msgspec.convert(document["summary"], Summary | None)
