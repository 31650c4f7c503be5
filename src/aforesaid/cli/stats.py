"""`aforesaid stats`: count owners, conversations and messages."""

from collections import Counter
from typing import Any

from rich.table import Table

from aforesaid.cli.render import ago, console
from aforesaid.cli.runtime import JsonOption, OwnerOption, UrlOption, managers, memory_at, print_json, run
from aforesaid.contracts.listing import check_complete
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Conversation


def stats(url: UrlOption = None, owner: OwnerOption = None, as_json: JsonOption = False) -> None:
    """Count owners, conversations and messages."""

    async def work() -> dict[str, Any]:
        totals: Counter[str] = Counter()
        by: dict[str, Counter[str]] = {"status": Counter(), "channel": Counter()}
        last = None
        async with memory_at(url) as memory:
            async for _, manager in managers(memory, owner):
                totals["owners"] += 1
                for record in await _all_records(manager):
                    totals["conversations"] += 1
                    totals["messages"] += record.message_count
                    totals["unread"] += record.unread_count
                    by["status"][record.status] += 1
                    by["channel"][record.channel] += 1
                    last = max(last or record.last_activity, record.last_activity)
        names = ("owners", "conversations", "messages", "unread")
        return {**{name: totals[name] for name in names}, **by, "last_activity": last}

    found = run(work)
    if as_json:
        print_json(found)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for name in ("owners", "conversations", "messages", "unread"):
        table.add_row(name, f"{found[name]:,}", style="bold" if name == "messages" else "")
    for name in ("status", "channel"):
        counts = ", ".join(f"{count:,} {value}" for value, count in found[name].most_common())
        table.add_row(name, counts or "none")
    table.add_row("last activity", ago(found["last_activity"]))
    console().print(table)


async def _all_records(manager: ConversationManager) -> list[Conversation]:
    records: list[Conversation] = []
    after: str | None = None
    while True:
        page = check_complete(await manager.list(limit=500, after=after))
        records += page.conversations
        after = page.next
        if after is None:
            return records
