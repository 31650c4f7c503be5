"""Events of conversations as metrics."""

from aforesaid.memory.manager import ConversationManager
from tests.metric_values import value

KINDS = ("assigned", "closed", "reopened", "merged")


def counted() -> list[float]:
    return [value("aforesaid_conversation_events_total", {"kind": kind}) for kind in KINDS]


async def test_events_are_counted_for_metrics_as_for_reports() -> None:
    before = counted()
    manager = ConversationManager()
    await manager.add_message("c", "user", "hello")
    for status in ("open", "resolved", "closed", "open", "closed"):
        await manager.update_metadata("c", status=status)
    await manager.assign("c", "Sam")
    await manager.assign("c", None, expected="Sam")
    branch = await manager.fork("c")
    await manager.add_message(branch.id, "user", "more")
    await manager.merge("c", branch.id)
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 2, 1, 1]
    counts = (await manager.analytics()).total.counts
    assert [counts[kind] for kind in KINDS] == [1, 2, 1, 1]
