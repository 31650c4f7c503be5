"""`aforesaid audit …`: show, verify and export the audit trail."""

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape

from aforesaid.audit import AuditTrail, Checked, check_trail, read_trail
from aforesaid.audit.chain import Line
from aforesaid.cli.lists import ID, Row, print_list
from aforesaid.cli.runtime import JsonOption, OwnerOption, console, counted, print_json, readable, run
from aforesaid.errors import InvalidSetting
from aforesaid.layers.options import audit_key_in
from aforesaid.settings import ProtectionConfig, Settings

audit = typer.Typer(name="audit", help="Show, verify and export the audit trail.", no_args_is_help=True)

FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="The audit trail. Default: AFORESAID_AUDIT_FILE.")
]
ActionOption = Annotated[
    str | None, typer.Option(help="Only this action: read, append, delete, erase, search, …")
]
ActorOption = Annotated[str | None, typer.Option(help="Only events of this actor.")]
OutcomeOption = Annotated[str | None, typer.Option(help="Only this outcome: done, denied or failed.")]


@audit.callback()
def about_audit() -> None:
    """Show, verify and export the audit trail."""


@audit.command()
def show(
    file: FileOption = None,
    owner: OwnerOption = None,
    actor: ActorOption = None,
    action: ActionOption = None,
    outcome: OutcomeOption = None,
    limit: Annotated[int, typer.Option(help="Maximum number of events.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Show the newest events."""
    lines = _selected(file, owner, actor=actor, action=action, outcome=outcome)[-limit:]
    if as_json:
        print_json(lines)
        return
    print_list(console(), (("at", 19), ("action", 14), ("conversation", ID)), map(_row, lines))


@audit.command()
def verify(
    file: FileOption = None,
    known: Annotated[
        str | None, typer.Option("--known", help="NUMBER:HASH of a line, recorded earlier in another place.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Verify the hash chain of the trail; exit 1 if a line was changed or removed."""

    async def work() -> Checked:
        path, config = _trail(file)
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
    """Write events with their numbers and hashes to standard output as JSON Lines."""
    for line in _selected(file, owner, actor=actor, action=action, outcome=outcome):
        typer.echo(msgspec.json.encode(line).decode())


def _selected(file: Path | None, owner: str | None, **filters: str | None) -> list[Line]:
    async def work() -> list[Line]:
        path, config = _trail(file)
        names = _names(path, config, owner)
        lines = await asyncio.to_thread(lambda: list(read_trail(path)))
        return [line for line in lines if _matches(line, names, filters)]

    return run(work)


def _names(path: Path, config: ProtectionConfig, owner: str | None) -> set[str] | None:
    """Return the names of an owner in the trail: the plain name and, with a key, its digest."""
    if owner is None:
        return None
    key = audit_key_in(config)
    # A trail may have lines from before its key was set, which have the plain name.
    return {owner} | ({AuditTrail(path, key=key).chain.owner(owner)} if key else set())


def _matches(line: Line, names: set[str] | None, filters: dict[str, str | None]) -> bool:
    if names is not None and line.owner not in names:
        return False
    return all(value is None or getattr(line, field) == value for field, value in filters.items())


def _trail(file: Path | None) -> tuple[Path, ProtectionConfig]:
    config = Settings.load().protection
    name = file or config.audit_file
    if not name:
        raise InvalidSetting(
            "no audit trail is set: name it with --file or AFORESAID_AUDIT_FILE",
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


def _row(line: Line) -> Row:
    at: datetime = line.at
    source = line.source and f"from {line.source}"
    outcome = f"{line.outcome} {line.error}".strip()
    owner = line.owner and f"owner {line.owner}"
    facts = (line.actor, source, owner, f"count {line.count}", outcome)
    # The seconds count here: the events of one minute have an order.
    values = (f"{at.astimezone():%Y-%m-%d %H:%M:%S}", line.action, line.conversation)
    return Row(values, facts, style="" if line.outcome == "done" else "yellow")
