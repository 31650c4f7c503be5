"""`aforesaid purge`: remove expired conversations, or list them."""

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

Expirations = list[tuple[str, Expiring]]


def purge(
    url: UrlOption = None,
    owner: OwnerOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing; list expired conversations and the reasons.")
    ] = False,
    within: Annotated[
        float, typer.Option(help="With --dry-run: include conversations that expire within this many days.")
    ] = 0,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove expired conversations."""
    if dry_run:
        _print_expiring(run(lambda: _find_expiring(url, owner, within)), as_json=as_json)
        return
    if not yes and (expiring := run(lambda: _find_expiring(url, owner, 0))):
        confirm(f"Permanently remove {counted(len(expiring), 'expired conversation')}?", yes=yes)

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


async def _find_expiring(url: str | None, owner: str | None, within: float) -> Expirations:
    span = days(within, field="--within") or timedelta(0)
    async with memory_at(url) as memory:
        if owner is not None:
            return [(owner, one) for one in await memory.of(owner).expiring(span)]
        return await memory.would_purge(span)


def _print_expiring(expiring: Expirations, *, as_json: bool) -> None:
    if as_json:
        rows: list[dict[str, Any]] = [{"owner": owner, "expiring": one} for owner, one in expiring]
        print_json(rows)
        return
    if not expiring:
        console().print("[dim]Nothing to purge.[/]")
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("conversation", "owner", "messages", "expires", "why"):
        table.add_column(column, justify="right" if column == "messages" else "left", overflow="fold")
    for owner, one in expiring:
        moment = f"{one.expires_at:%Y-%m-%d %H:%M}"
        cells = (one.conversation_id, escape(readable(owner)), f"{one.messages:,}", moment)
        table.add_row(*cells, escape(readable(one.why)))
    console().print(table)
    console().print(f"[dim]{counted(len(expiring), 'conversation')} would go[/]")
