"""`recollect show ID`: one conversation, all of it or a page."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from recollect.cli.rendering import ago, console, readable, spoken
from recollect.cli.running import (
    JsonOption,
    OwnerOption,
    UrlOption,
    find_conversation,
    memory_at,
    print_json,
    run,
)
from recollect.conversations import Conversation
from recollect.messages import Message


def show(
    conversation_id: Annotated[str, typer.Argument(metavar="ID")],
    url: UrlOption = None,
    owner: OwnerOption = None,
    limit: Annotated[int, typer.Option(help="At most so many messages.")] = 100,
    offset: Annotated[int, typer.Option(help="Counted from the oldest.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show one conversation: its record and its messages."""

    async def work() -> tuple[str, Conversation, list[Message]]:
        async with memory_at(url) as memory:
            name, manager, record = await find_conversation(memory, owner, conversation_id)
            return name, record, await manager.messages(record.id, limit=limit, offset=offset)

    name, record, messages = run(work)
    if as_json:
        print_json(
            {"owner": name, **record.to_dict(), "messages": [message.to_dict() for message in messages]}
        )
        return
    out = console()
    _print_record(out, name, record)
    for message in messages:
        out.print(spoken(message))
    rest = record.message_count - offset - len(messages)
    if rest > 0:
        out.print(f"[dim]… {rest:,} more; --offset {offset + len(messages)} goes on[/]")


def _print_record(out: Console, owner: str, record: Conversation) -> None:
    out.print(f"[bold]{escape(readable(record.subject or 'Conversation'))}[/]  [dim]{record.id}[/]")
    facts = [escape(readable(owner)), record.channel, record.status, f"{record.priority} priority"]
    facts += [escape(readable(record.client_name))] if record.client_name else []
    facts += [f"#{escape(readable(tag))}" for tag in record.tags]
    facts += [f"{record.message_count:,} messages", f"last {ago(record.last_activity)}"]
    out.print(f"[dim]{' · '.join(facts)}[/]\n")
