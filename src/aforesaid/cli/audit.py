"""`aforesaid audit …`: who did what, on whose data."""

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from aforesaid.audit import AuditTrail, Checked, check_trail, read_trail
from aforesaid.audit.events import Line
from aforesaid.cli.render import console, counted, readable
from aforesaid.cli.runtime import JsonOption, OwnerOption, print_json, run
from aforesaid.errors import InvalidSetting
from aforesaid.layers.options import audit_key_in
from aforesaid.settings import ProtectionConfig, Settings

audit = typer.Typer(name="audit", help="Who did what, on whose data.", no_args_is_help=True)

FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="The trail; else AFORESAID_AUDIT_FILE names it.")
]
ActionOption = Annotated[str | None, typer.Option(help="Only this: read, append, delete, erase, search, …")]
ActorOption = Annotated[str | None, typer.Option(help="Only what this actor did.")]
OutcomeOption = Annotated[str | None, typer.Option(help="Only these: done, denied or failed.")]


@audit.callback()
def about_audit() -> None:
    """Who did what, on whose data."""


@audit.command()
def show(
    file: FileOption = None,
    owner: OwnerOption = None,
    actor: ActorOption = None,
    action: ActionOption = None,
    outcome: OutcomeOption = None,
    limit: Annotated[int, typer.Option(help="At most so many, the newest.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Show the newest events."""
    lines = _selected(file, owner, actor=actor, action=action, outcome=outcome)[-limit:]
    if as_json:
        print_json(lines)
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("at", "actor", "from", "action", "owner", "conversation", "count", "outcome"):
        table.add_column(column, justify="right" if column == "count" else "left", overflow="fold")
    for line in lines:
        style = "" if line.outcome == "done" else "yellow"
        table.add_row(*_cells(line), style=style)
    console().print(table)


@audit.command()
def verify(
    file: FileOption = None,
    known: Annotated[
        str | None, typer.Option("--known", help="NUMBER:HASH of a line, noted earlier elsewhere.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check every line against the one before it; exit 1 when anything was changed."""

    async def work() -> Checked:
        path, config = _where(file)
        return await asyncio.to_thread(check_trail, path, key=audit_key_in(config), known=_parse_known(known))

    checked = run(work)
    if as_json:
        print_json(checked)
    else:
        out = console()
        for problem in checked.problems:
            out.print(f"[red]✗ {escape(readable(problem))}[/]", soft_wrap=True)
        if checked.is_sound:
            size = f"{counted(checked.lines, 'event')} in {counted(checked.files, 'file')}"
            out.print(f"{size}: sound. The last is {checked.lines}:{checked.head}", soft_wrap=True)
    if not checked.is_sound:
        raise typer.Exit(1)


@audit.command()
def export(
    file: FileOption = None,
    owner: OwnerOption = None,
    actor: ActorOption = None,
    action: ActionOption = None,
    outcome: OutcomeOption = None,
) -> None:
    """Write events to standard output as JSON Lines, with their numbers and hashes."""
    for line in _selected(file, owner, actor=actor, action=action, outcome=outcome):
        typer.echo(msgspec.json.encode(line).decode())


def _selected(file: Path | None, owner: str | None, **wanted: str | None) -> list[Line]:
    async def work() -> list[Line]:
        path, config = _where(file)
        names = _names(path, config, owner)
        lines = await asyncio.to_thread(lambda: list(read_trail(path)))
        return [line for line in lines if _is_wanted(line, names, wanted)]

    return run(work)


def _names(path: Path, config: ProtectionConfig, owner: str | None) -> set[str] | None:
    """What an owner may be called in the trail: by name, or by digest."""
    if owner is None:
        return None
    key = audit_key_in(config)
    return {owner} | ({AuditTrail(path, key=key).chain.owner(owner)} if key else set())


def _is_wanted(line: Line, names: set[str] | None, wanted: dict[str, str | None]) -> bool:
    if names is not None and line.owner not in names:
        return False
    return all(value is None or getattr(line, field) == value for field, value in wanted.items())


def _where(file: Path | None) -> tuple[Path, ProtectionConfig]:
    config = Settings.load().protection
    name = file or config.audit_file
    if not name:
        raise InvalidSetting(
            "there is no audit trail: name it with --file or AFORESAID_AUDIT_FILE",
            field="AFORESAID_AUDIT_FILE",
        )
    return Path(name), config


def _parse_known(known: str | None) -> tuple[int, str] | None:
    if known is None:
        return None
    number, _, digest = known.partition(":")
    if not number.isdecimal() or not digest:
        raise InvalidSetting("--known must be NUMBER:HASH, as `audit verify` prints it", field="--known")
    return int(number), digest


def _cells(line: Line) -> tuple[str, ...]:
    at: datetime = line.at
    texts = (line.actor, line.source, line.action, line.owner, line.conversation)
    shown = [escape(readable(text)) for text in texts]
    outcome = f"{line.outcome} {line.error}".strip()
    return (at.isoformat(timespec="seconds"), *shown, str(line.count), outcome)
