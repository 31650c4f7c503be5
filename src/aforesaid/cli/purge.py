"""`aforesaid purge`: remove what has expired, now; or only say what would go, and why."""

from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from aforesaid.cli.confirm import YesOption, confirm
from aforesaid.cli.render import console, counted, readable
from aforesaid.cli.runtime import JsonOption, OwnerOption, UrlOption, memory_at, print_json, run
from aforesaid.model.lifetimes import days
from aforesaid.retention.rules import Expiring

Going = list[tuple[str, Expiring]]


def purge(
    url: UrlOption = None,
    owner: OwnerOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing; list what would go, and why.")
    ] = False,
    within: Annotated[float, typer.Option(help="With --dry-run: what will go in so many days.")] = 0,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove expired conversations."""
    if dry_run:
        _print_going(run(lambda: _going(url, owner, within)), as_json=as_json)
        return
    if not yes and (going := run(lambda: _going(url, owner, 0))):
        confirm(f"Remove {counted(len(going), 'expired conversation')} for good?", yes=yes)

    async def work() -> int:
        async with memory_at(url) as memory:
            if owner is not None:
                return await memory.of(owner).purge_expired()
            return await memory.purge_expired()

    purged = run(work)
    if as_json:
        print_json({"purged": purged})
    else:
        console().print(f"{counted(purged, 'expired conversation')} removed")


async def _going(url: str | None, owner: str | None, within: float) -> Going:
    span = days(within, field="--within") or timedelta(0)
    async with memory_at(url) as memory:
        if owner is not None:
            return [(owner, one) for one in await memory.of(owner).expiring(span)]
        return await memory.would_purge(span)


def _print_going(going: Going, *, as_json: bool) -> None:
    if as_json:
        rows: list[dict[str, Any]] = [{"owner": owner, "expiring": one} for owner, one in going]
        print_json(rows)
        return
    if not going:
        console().print("[dim]Nothing would go.[/]")
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("conversation", "owner", "messages", "expires", "why"):
        table.add_column(column, justify="right" if column == "messages" else "left", overflow="fold")
    for owner, one in going:
        moment = f"{one.expires_at:%Y-%m-%d %H:%M}"
        cells = (one.conversation_id, escape(readable(owner)), f"{one.messages:,}", moment)
        table.add_row(*cells, escape(readable(one.why)))
    console().print(table)
    console().print(f"[dim]{counted(len(going), 'conversation')} would go[/]")
