"""`aforesaid context ID`: show a model's context and what was left out."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from aforesaid.cli.render import console, message_line, readable
from aforesaid.cli.runtime import (
    JsonOption,
    OwnerOption,
    UrlOption,
    find_conversation,
    memory_at,
    print_json,
    run,
)
from aforesaid.dialects import Request
from aforesaid.model.contexts import Context, Report
from aforesaid.windows import WindowPolicy, write_request


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
        print_json({"system": request.system, "messages": request.messages})
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
