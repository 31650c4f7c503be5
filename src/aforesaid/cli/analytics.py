"""`aforesaid analytics`: numbers about an owner's conversations."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from aforesaid.analytics import By
from aforesaid.analytics.measures import DISTRIBUTIONS, Distribution, Unit
from aforesaid.analytics.reports import Analytics, Numbers
from aforesaid.cli.lists import Row, numbers_table, print_list
from aforesaid.cli.runtime import (
    DEFAULT_OWNER,
    DefaultedOwnerOption,
    JsonOption,
    UrlOption,
    console,
    counted,
    memory_at,
    print_json,
    readable,
    run,
)


def analytics(
    date_from: Annotated[
        str | None, typer.Option("--from", help="The first day, such as 2026-01-31. Default: 30 days ago.")
    ] = None,
    date_to: Annotated[str | None, typer.Option("--to", help="The last day. Default: today.")] = None,
    by: Annotated[By | None, typer.Option(help="Show each day, channel, client or agent.")] = None,
    channel: Annotated[str | None, typer.Option(help="Only this channel.")] = None,
    client: Annotated[str | None, typer.Option(help="Only this client, by id.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent.")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the numbers to this CSV file; - is the standard output.")
    ] = None,
    recompute: Annotated[bool, typer.Option(help="First count every conversation again.")] = False,
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    as_json: JsonOption = False,
) -> None:
    """Show numbers about conversations: counts, shares, percentiles."""

    async def work() -> Analytics:
        async with memory_at(url, by_meaning=False) as memory:
            manager = memory.of(owner)
            if recompute:
                await manager.recompute_analytics()
            return await manager.analytics(
                date_from, date_to, by=by, channel=channel, client_id=client, agent=agent
            )

    found = run(work)
    if csv is not None:
        _write_csv(found, csv)
    elif as_json:
        print_json(found.to_dict())
    elif by is None:
        _print_period(found)
    else:
        _print_groups(found)


def _write_csv(found: Analytics, path: Path) -> None:
    if str(path) == "-":
        typer.echo(found.to_csv(), nl=False)
        return
    # The lines of CSV end with CR LF on every system.
    path.write_bytes(found.to_csv().encode())
    console().print(f"{counted(len(found.groups) or 1, 'line')} in {escape(str(path))}")


def _print_period(found: Analytics) -> None:
    console().print(f"{found.first_day} to {found.last_day}, days in UTC")
    if not any(found.total.counts.values()):
        console().print("[dim]No conversations in this period.[/]")
        return
    numbers = numbers_table("count", "value")
    for name, value in found.total.counts.items():
        if value:
            numbers.add_row(_words(name), f"{value:,}")
    for name, share in found.total.shares.items():
        numbers.add_row(f"{_words(name)} share", f"{share:.1%}")
    console().print(numbers)
    times = numbers_table("distribution", "values", "p50", "p75", "p90", "p95", "p99")
    by_tool = {f"tool time: {tool}": one for tool, one in found.total.tool_times.items()}
    for name, one in (found.total.distributions | by_tool).items():
        cells = [_shown(one.unit, value) for value in (one.p50, one.p75, one.p90, one.p95, one.p99)]
        times.add_row(escape(readable(_words(name))), f"{one.count:,}", *cells)
    if found.total.distributions:
        console().print(times)


def _print_groups(found: Analytics) -> None:
    if not found.groups:
        console().print("[dim]No conversations in this period.[/]")
        return
    rows = [_group(numbers) for numbers in found.groups]
    columns = [
        (str(found.by), max(map(len, (str(found.by), *(row.values[0] for row in rows))))),
        *((name, 8) for name in _COUNTED),
    ]
    print_list(console(), columns, rows)
    console().print("[dim]Times are medians; --json has all percentiles.[/]")


_COUNTED = ("opened", "closed", "in", "out")


def _group(numbers: Numbers) -> Row:
    counts = numbers.counts
    out = counts["messages_out_assistant"] + counts["messages_out_person"]
    shown = (counts["opened"], counts["closed"], counts["messages_in"], out)
    share = numbers.shares.get("automation")
    facts = [
        f"{counts['reopened']:,} reopened" if counts["reopened"] else None,
        None if share is None else f"{share:.0%} automated",
        _median(numbers, "first_response"),
        _median(numbers, "reply_time"),
    ]
    return Row((numbers.value or "none", *(f"{count:,}" for count in shown)), facts)


def _median(numbers: Numbers, name: str) -> str | None:
    found: Distribution | None = numbers.distributions.get(name)
    return None if found is None else f"{_words(name)} {_shown(DISTRIBUTIONS[name], found.p50)}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _shown(unit: Unit, value: float) -> str:
    if unit == "percent":
        return f"{value:.0f} %"
    if unit == "count":
        return f"{value:,.0f}"
    seconds = value / 1000
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} s"
