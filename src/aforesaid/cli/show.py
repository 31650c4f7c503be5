"""`aforesaid show ID`: show one conversation, page by page."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from aforesaid.cli.render import ago, console, message_line, readable
from aforesaid.cli.runtime import (
    JsonOption,
    OwnerOption,
    UrlOption,
    find_conversation,
    memory_at,
    print_json,
    run,
)
from aforesaid.contracts import Entry, unreadable_reason
from aforesaid.model.conversations import Conversation


def show(
    conversation_id: Annotated[str, typer.Argument(metavar="ID")],
    url: UrlOption = None,
    owner: OwnerOption = None,
    limit: Annotated[int, typer.Option(help="Maximum number of messages.")] = 100,
    offset: Annotated[int, typer.Option(help="Number of oldest messages to skip.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show the record and the messages of one conversation."""

    async def work() -> tuple[str, Conversation, list[Entry]]:
        async with memory_at(url) as memory:
            name, manager, record = await find_conversation(memory, owner, conversation_id)
            return name, record, await manager.entries(record.id, limit, offset)

    name, record, entries = run(work)
    if as_json:
        print_json({"owner": name, **record.to_dict(), "messages": [_document(entry) for entry in entries]})
        return
    out = console()
    _print_record(out, name, record)
    for entry in entries:
        out.print(message_line(entry.message) if unreadable_reason(entry) is None else _unreadable(entry))
    rest = record.message_count - offset - len(entries)
    if rest > 0:
        out.print(f"[dim]… {rest:,} more; continue with --offset {offset + len(entries)}[/]")


def _document(entry: Entry) -> dict[str, Any]:
    why = unreadable_reason(entry)
    return entry.message.to_dict() if why is None else {"sequence": entry.sequence, "unreadable": why}


def _unreadable(entry: Entry) -> str:
    return (
        f"[red]message {entry.sequence} cannot be read: {escape(readable(unreadable_reason(entry) or ''))}[/]"
    )


def _print_record(out: Console, owner: str, record: Conversation) -> None:
    out.print(f"[bold]{escape(readable(record.subject or 'Conversation'))}[/]  [dim]{record.id}[/]")
    facts = [escape(readable(owner)), record.channel, record.status, f"{record.priority} priority"]
    facts += [escape(readable(record.client_name))] if record.client_name else []
    facts += [f"#{escape(readable(tag))}" for tag in record.tags]
    facts += [f"{record.message_count:,} messages", f"last {ago(record.last_activity)}"]
    out.print(f"[dim]{' · '.join(facts)}[/]\n")
