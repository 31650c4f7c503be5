"""`aforesaid keys …`: the keys that a store is encrypted with, and those that a server lets in."""

import asyncio
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace
from rich.markup import escape
from rich.table import Table

from aforesaid.cli.archive import FolderOption
from aforesaid.cli.render import console, counted
from aforesaid.cli.runtime import (
    JsonOption,
    OwnerOption,
    UrlOption,
    check_exists,
    memory_at,
    print_json,
    require_master_key,
    run,
    settled_url,
)
from aforesaid.errors import InvalidInput, shown
from aforesaid.settings import Settings

if TYPE_CHECKING:
    from aforesaid.layers.encrypted import Encryption
    from aforesaid.layers.encrypted.rotation import Rotation
    from aforesaid.layers.encrypted.verification import Verification
    from aforesaid.server.auth.keys import ApiKey
    from aforesaid.transfer.archives import ArchiveFolder

keys = typer.Typer(
    name="keys", help="Keys: to a server, and those that a store is encrypted with.", no_args_is_help=True
)


@keys.callback()
def about_keys() -> None:
    """Keys: to a server, and those that a store is encrypted with."""


@keys.command()
def generate() -> None:
    """Print a new master key. Keep it where the store is not: without it, nothing can be read again."""
    from aforesaid.encryption.master_keys import generate_master_key

    typer.echo(generate_master_key())


@keys.command()
def rotate(
    url: UrlOption = None,
    owner: OwnerOption = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="New data keys too: everything is encrypted anew, step by step.")
    ] = False,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Wrap all keys, of data and of archives, with the first of the master keys.

    No message is rewritten, unless with --deep. Put the new master key before the old one, rotate, then take
    the old one away.
    """
    from aforesaid.layers.encrypted import encrypted
    from aforesaid.layers.encrypted.rotation import rotate as rotate_keys
    from aforesaid.layers.options import encryption_in
    from aforesaid.stores.urls import backend_for

    async def work() -> "Rotation":
        settings = Settings.load()
        require_master_key(settings)
        encryption = encryption_in(settings.protection)
        assert encryption is not None
        place = settled_url(url)
        await asyncio.to_thread(check_exists, place)
        backend = encrypted(backend_for(place), encryption)
        await backend.open()
        try:
            done = await rotate_keys(backend, owner=owner, deep=deep)
        finally:
            await backend.close()
        archives = await _archives(settings, encryption, folder)
        if archives is None:
            return done
        wrapped, left = await archives.rewrap(owner)
        return replace(done, archives=wrapped, archives_left=left)

    done = run(work)
    if as_json:
        print_json(done)
    else:
        _tell(done, deep=deep)


def _tell(done: "Rotation", *, deep: bool) -> None:
    out = console()
    out.print(f"{counted(done.owners, 'owner')}: {done.rewrapped:,} wrapped by the new master key")
    if done.archives:
        out.print(f"{counted(done.archives, 'archive')}: the key is wrapped by the new master key")
    if deep:
        sealed = f"{counted(done.messages, 'message')} and {counted(done.documents, 'document')}"
        out.print(f"{sealed} encrypted anew; {done.retired:,} old data keys are gone")
    if done.unreadable:
        out.print(f"[yellow]! {done.unreadable:,} could not be read and were left as they are[/]")
    if done.archives_left:
        out.print(
            f"[yellow]! {counted(done.archives_left, 'archive')} could not be opened: "
            "keep the old master key until none is left[/]"
        )
    if done.waiting:
        out.print(
            f"[yellow]! {counted(done.waiting, 'old data key')} kept for other processes: "
            "run it again in some minutes, once nothing waits in a spool[/]"
        )


@keys.command()
def verify(
    url: UrlOption = None,
    owner: OwnerOption = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Keep what is proven, and remove everything else of such a log.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare every encrypted log with its head; exit with 1 where one is not as it was written."""
    from aforesaid.layers.encrypted import encrypted
    from aforesaid.layers.encrypted.verification import verify as verify_logs
    from aforesaid.layers.options import encryption_in
    from aforesaid.stores.urls import backend_for

    async def work() -> "Verification":
        settings = Settings.load()
        require_master_key(settings)
        encryption = encryption_in(settings.protection)
        assert encryption is not None
        place = settled_url(url)
        await asyncio.to_thread(check_exists, place)
        backend = encrypted(backend_for(place), encryption)
        await backend.open()
        try:
            return await verify_logs(backend, owner=owner, repair=repair)
        finally:
            await backend.close()

    done = run(work)
    if as_json:
        print_json(done)
    else:
        _show_verification(done)
    if any(not one.repaired for one in done.violated):
        raise typer.Exit(1)


def _show_verification(done: "Verification") -> None:
    out = console()
    out.print(f"{counted(done.owners, 'owner')}, {counted(done.conversations, 'conversation')}: compared")
    for one in done.violated:
        state = "repaired" if one.repaired else "not as it was written"
        counts = f"{one.violations:,} violations, {one.readable:,} messages are proven"
        out.print(f"[yellow]! {escape(one.owner)} {one.conversation_id}: {state} ({counts})[/]")


async def _archives(
    settings: Settings, encryption: "Encryption", folder: str | None
) -> "ArchiveFolder | None":
    from aforesaid.memory.opening import archives_at
    from aforesaid.transfer.archives import archive_folder

    kept = settings.retention
    place = folder or kept.archive_folder
    opened = await asyncio.to_thread(archive_folder, place, kept.archive_key_file) if place else None
    return archives_at(opened, encryption)


# Keys to a server

KeyOwners = Annotated[
    list[str], typer.Option("--owner", "-o", help="Whose data the key reaches; '*' is everybody's.")
]
ScopeOption = Annotated[
    str, typer.Option("--scope", "-s", help="read; write, too; or admin: retention, export, erasure, too.")
]
ExpiresOption = Annotated[
    str | None, typer.Option("--expires", "-e", help="After how long: 12h, 90d, 1y; without it, never.")
]
NameOption = Annotated[str, typer.Option("--name", "-n", help="What it is for, to know it again.")]


@keys.command()
def create(
    owner: KeyOwners,
    scope: ScopeOption = "write",
    expires: ExpiresOption = None,
    name: NameOption = "",
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key to a server on this store, and print it: this once, for only its digest is kept."""

    async def work() -> "tuple[str, ApiKey]":
        from aforesaid.server.auth.callers import parse_reach
        from aforesaid.server.auth.keys import ApiKeys

        span = None if expires is None else parse_span(expires)
        async with memory_at(url, create=True, by_meaning=False) as memory:
            return await ApiKeys(memory.backend).create(
                owner, scope=parse_reach(scope), name=name, expires_in=span
            )

    text, key = run(work)
    if as_json:
        print_json({"key": text, **_told(key)})
        return
    typer.echo(text)
    until = "for good" if key.expires_at is None else f"until {key.expires_at:%Y-%m-%d %H:%M} UTC"
    typer.echo(f"Key {key.id} ({key.scope}) reaches {', '.join(key.owners)}, {until}.", err=True)
    typer.echo("It is shown this once.", err=True)


@keys.command("list")
def list_(url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List the keys to a server on this store. The keys themselves are not kept, and not shown."""

    async def work() -> "list[tuple[ApiKey, bool]]":
        from aforesaid.server.auth.keys import ApiKeys

        async with memory_at(url, by_meaning=False) as memory:
            found = ApiKeys(memory.backend)
            return [(key, key.holds(found.now())) for key in await found.list()]

    found = run(work)
    if as_json:
        print_json([_told(key) | {"holds": holds} for key, holds in found])
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("id", "name", "scope", "owners", "made", "expires", ""):
        table.add_column(column, overflow="fold")
    for key, holds in found:
        state = "revoked" if key.revoked_at else "" if holds else "expired"
        row = (key.name, key.scope, ", ".join(key.owners), _day(key.created_at), _day(key.expires_at))
        table.add_row(key.id, *map(escape, row), state, style="" if holds else "dim")
    console().print(table)


@keys.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The id of the key, as `aforesaid keys list` shows it.")],
    url: UrlOption = None,
) -> None:
    """Make a key worthless. Servers that run refuse it after five seconds at the latest."""

    async def work() -> "ApiKey":
        from aforesaid.server.auth.keys import ApiKeys

        async with memory_at(url, by_meaning=False) as memory:
            return await ApiKeys(memory.backend).revoke(key_id)

    key = run(work)
    console().print(f"Key {key.id} is worthless since {_day(key.revoked_at)}.")


def _told(key: "ApiKey") -> dict[str, object]:
    """All that is known of a key but its digest."""
    names = [name for name in key.__struct_fields__ if name != "digest"]
    return {name: getattr(key, name) for name in names}


def _day(moment: datetime | None) -> str:
    return "never" if moment is None else f"{moment:%Y-%m-%d %H:%M}"


_SPAN = re.compile(r"(\d{1,6})\s*(h|d|w|y)", re.ASCII).fullmatch
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1), "y": timedelta(days=365)}


def parse_span(text: str) -> timedelta:
    """A length of time as people write it: 12h, 90d, 6w, 1y."""
    found = _SPAN(text.strip().lower())
    if not found or not int(found[1]):
        raise InvalidInput(
            f"expires must be a length of time, as in 12h, 90d or 1y; got {shown(text)}", field="expires"
        )
    return int(found[1]) * _UNITS[found[2]]
