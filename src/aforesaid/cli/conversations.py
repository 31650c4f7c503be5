"""`aforesaid conversations`, `show`, `stats` and `context`: conversations, counts, a model's context."""

from collections import Counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from aforesaid.cli.lists import print_conversations
from aforesaid.cli.runtime import (
    JsonOption,
    OwnerOption,
    UrlOption,
    console,
    find_conversation,
    managers,
    memory_at,
    message_line,
    print_json,
    readable,
    run,
    when,
)
from aforesaid.contracts import Entry, unreadable_reason
from aforesaid.contracts.listing import check_complete
from aforesaid.dialects import Request
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.contexts import Context, Report
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import OpenTurn
from aforesaid.windows import WindowPolicy, write_request

# `aforesaid conversations`, `show` and `stats`: list, show and count conversations.


def conversations(
    url: UrlOption = None,
    owner: OwnerOption = None,
    status: Annotated[str | None, typer.Option(help="open, pending, resolved or closed.")] = None,
    channel: Annotated[str | None, typer.Option(help="voice, text, email, phone or another word.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only with this tag; repeatable.")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number for each owner.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List conversations, most recently active first."""

    async def work() -> list[tuple[str, Conversation]]:
        rows = []
        async with memory_at(url) as memory:
            async for name, manager in managers(memory, owner):
                page = await manager.list(
                    status=status,  # type: ignore[arg-type]
                    channel=channel,
                    tags=tag or (),
                    limit=limit,
                )
                rows += [(name, record) for record in page.conversations]
        return sorted(rows, key=lambda row: row[1].last_activity, reverse=True)

    rows = run(work)
    if as_json:
        print_json([{"owner": name, **record.to_dict()} for name, record in rows])
    elif rows:
        print_conversations(console(), rows)
    else:
        console().print("[dim]No conversations.[/]")


# One conversation


def show(
    conversation_id: Annotated[str, typer.Argument(metavar="ID")],
    url: UrlOption = None,
    owner: OwnerOption = None,
    limit: Annotated[int, typer.Option(help="Maximum number of messages.")] = 100,
    offset: Annotated[
        int | None, typer.Option(help="Start after this many of the oldest messages. Default: the newest.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the record, the messages and the unanswered words of one conversation."""

    async def work() -> tuple[str, Conversation, list[Entry], list[OpenTurn]]:
        async with memory_at(url) as memory:
            name, manager, record = await find_conversation(memory, owner, conversation_id)
            entries = await manager.entries(record.id, limit, offset)
            return name, record, entries, await manager.unanswered(record.id)

    name, record, entries, waiting = run(work)
    if as_json:
        messages = [_document(entry) for entry in entries]
        unanswered = [[message.to_dict() for message in turn.messages] for turn in waiting]
        print_json({"owner": name, **record.to_dict(), "messages": messages, "unanswered": unanswered})
        return
    out = console()
    _print_record(out, name, record)
    for entry in entries:
        out.print(message_line(entry.message) if unreadable_reason(entry) is None else _unreadable(entry))
    _print_rest(out, record.message_count, offset, len(entries))
    for turn in waiting:
        out.print(f"[yellow]unanswered since {when(turn.opened_at)}:[/]")
        for message in turn.messages:
            out.print(message_line(message))


def _print_rest(out: Console, total: int, offset: int | None, shown: int) -> None:
    """Say which messages are not shown, and how to see them."""
    if offset is None:
        if total > shown:
            earlier = max(0, total - 2 * shown)
            out.print(f"[dim]… {total - shown:,} earlier; see them with --offset {earlier}[/]")
    elif total > offset + shown:
        out.print(f"[dim]… {total - offset - shown:,} more; continue with --offset {offset + shown}[/]")


def _document(entry: Entry) -> dict[str, Any]:
    why = unreadable_reason(entry)
    return entry.message.to_dict() if why is None else {"sequence": entry.sequence, "unreadable": why}


def _unreadable(entry: Entry) -> str:
    return (
        f"[red]message {entry.sequence} cannot be read: {escape(readable(unreadable_reason(entry) or ''))}[/]"
    )


def _print_record(out: Console, owner: str, record: Conversation) -> None:
    out.print(f"[bold]{escape(readable(record.subject or 'Conversation'))}[/]  [dim]{record.id}[/]")
    facts = [] if record.name is None else [escape(readable(record.name))]
    facts += [escape(readable(owner)), record.channel, record.status]
    facts += [] if record.priority == "normal" else [f"{record.priority} priority"]
    facts += [escape(readable(record.client_name))] if record.client_name else []
    facts += [f"#{escape(readable(tag))}" for tag in record.tags]
    facts += [f"{record.message_count:,} messages", f"last {when(record.last_activity)}"]
    out.print(f"[dim]{' · '.join(facts)}[/]\n")


# Counts


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
        average = totals["messages"] / totals["conversations"] if totals["conversations"] else 0.0
        counts = {name: totals[name] for name in ("owners", "conversations", "messages", "unread")}
        return {**counts, "messages_per_conversation": average, **by, "last_activity": last}

    found = run(work)
    if as_json:
        print_json(found)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for name in ("owners", "conversations", "messages", "unread"):
        table.add_row(name, f"{found[name]:,}", style="bold" if name == "messages" else "")
    table.add_row("messages per conversation", f"{found['messages_per_conversation']:,.1f}")
    for name in ("status", "channel"):
        counts = ", ".join(f"{count:,} {value}" for value, count in found[name].most_common())
        table.add_row(name, counts or "none")
    table.add_row("last activity", when(found["last_activity"]))
    console().print(table)


async def _all_records(manager: ManagerProtocol) -> list[Conversation]:
    records: list[Conversation] = []
    after: str | None = None
    while True:
        # Not `every_record`: a remote manager has no store.
        page = check_complete(await manager.list(limit=500, after=after))
        records += page.conversations
        after = page.next
        if after is None:
            return records


# `aforesaid context ID`: show a model's context and what was left out.


def context(
    conversation_id: Annotated[str, typer.Argument(metavar="ID")],
    url: UrlOption = None,
    owner: OwnerOption = None,
    budget: Annotated[int | None, typer.Option(help="Token limit of the whole request.")] = None,
    turns: Annotated[int | None, typer.Option(help="Number of most recent turns; 0 means all.")] = None,
    messages: Annotated[int | None, typer.Option(help="Number of most recent messages; 0 means all.")] = None,
    agent: Annotated[str | None, typer.Option(help="Build this agent's view.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only messages with this tag; repeatable.")] = None,
    dialect: Annotated[
        str | None, typer.Option(help="Print the request as this provider's JSON: anthropic, openai_chat …")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="List what was left out and why.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the context that a model receives for a conversation."""
    limited = budget is not None or turns is not None or messages is not None

    async def work() -> tuple[Context, Request | None]:
        async with memory_at(url) as memory:
            _, manager, record = await find_conversation(memory, owner, conversation_id)
            policy = WindowPolicy(
                max_tokens=budget,
                max_turns=turns,
                max_messages=messages if limited else manager.config.context_window_size,
                tags=tuple(tag or ()),
            )
            found = await manager.load_context(record.id, agent, policy=policy)
            return found, None if dialect is None else write_request(found, dialect)

    found, request = run(work)
    if request is not None:
        repaired = {"repaired": list(request.repaired)} if request.repaired else {}
        print_json({"system": request.system, "messages": request.messages, **repaired})
    elif as_json:
        print_json({"messages": list(found), "report": found.report} if explain else list(found))
    else:
        print_context(console(), found, explain=explain)


def print_context(out: Console, found: Context, *, explain: bool) -> None:
    """Print the messages of a context; with `explain`, also the report."""
    for message in found.messages:
        out.print(message_line(message))
    report = found.report
    left = len(report.left_out) + report.not_read
    from_log = len(found) - bool(report.notes)
    out.print(f"\n[dim]{from_log} of {report.message_count:,} messages, {left:,} left out[/]")
    if report.nothing_to_send is not None:
        out.print(f"[yellow]! nothing to send: {escape(readable(report.nothing_to_send))}[/]")
    for warning in report.warnings:
        out.print(f"[yellow]! {escape(readable(warning))}[/]")
    if explain:
        _print_report(out, report)


def _print_report(out: Console, report: Report) -> None:
    if report.max_tokens:
        use = report.tokens
        out.print(
            f"\n[bold]Tokens[/]  {use.total:,} of {report.max_tokens:,} "
            f"([{_level(report)}]{report.utilization:.0f} %[/]), counted by {report.counter}"
        )
        out.print(
            f"[dim]prompt {use.prompt:,} · tools {use.tools:,} · system {use.system:,} · "
            f"history {use.history:,} · notes {use.notes:,}[/]"
        )
    if report.notes or report.notes_left_out:
        left = f", {len(report.notes_left_out)} did not fit" if report.notes_left_out else ""
        out.print(f"[bold]Notes[/]  {len(report.notes)} in the context{left}")
    out.print(f"[bold]Stable prefix[/]  {report.stable_prefix} messages")
    if report.not_read:
        out.print(f"[bold]Not read[/]  {report.not_read:,} older messages")
    if report.left_out:
        out.print(_left_out_table(report))


def _level(report: Report) -> str:
    use = report.utilization or 0
    return "red" if use > 100 else "yellow" if use > 90 else "green"


def _left_out_table(report: Report) -> Table:
    table = Table(title="Left out", title_justify="left", title_style="bold", box=None, header_style="dim")
    for column in ("message", "role", "tokens", "because of"):
        table.add_column(column, justify="right" if column in ("message", "tokens") else "left")
    for one in report.left_out:
        table.add_row(f"{one.sequence:,}", one.role, f"{one.tokens:,}", one.reason)
    return table
