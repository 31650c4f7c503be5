"""`aforesaid keys …`: manage encryption keys and API keys."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace
from rich.markup import escape

from aforesaid.cli.lists import TIME, Row, print_list
from aforesaid.cli.retention import FolderOption
from aforesaid.cli.runtime import (
    JsonOption,
    OwnerOption,
    UrlOption,
    check_exists,
    console,
    counted,
    memory_at,
    print_json,
    progress_of,
    require_master_key,
    run,
    store_url,
    when,
)
from aforesaid.errors import InvalidInput, shown
from aforesaid.settings import Settings

if TYPE_CHECKING:
    from aforesaid.layers.encrypted import EncryptedBackend, Encryption
    from aforesaid.layers.encrypted.rotation import Rotation, Verification
    from aforesaid.server.auth.keys import ApiKey
    from aforesaid.transfer.archives import ArchiveFolder

keys = typer.Typer(name="keys", help="Manage encryption keys and API keys.", no_args_is_help=True)


@keys.callback()
def about_keys() -> None:
    """Manage encryption keys and API keys."""


@keys.command()
def generate() -> None:
    """Print a new master key. Keep it apart from the store; without it, the data cannot be decrypted."""
    from aforesaid.encryption import generate_master_key

    typer.echo(generate_master_key())


@keys.command()
def rotate(
    url: UrlOption = None,
    owner: OwnerOption = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also replace the data keys and re-encrypt all data.")
    ] = False,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rewrap all data keys and archive keys with the first master key.

    Put the new master key before the old one, rotate, then remove the old one. Messages are rewritten only
    with --deep.
    """
    from aforesaid.layers.encrypted.rotation import count_owners
    from aforesaid.layers.encrypted.rotation import rotate as rotate_keys

    async def work() -> "Rotation":
        settings = Settings.load()
        async with _encrypted_store(settings, url) as (backend, encryption):
            total = 1 if owner is not None else await count_owners(backend)
            with progress_of("rotating keys", unit="owners", total=total) as shown:
                done = await rotate_keys(
                    backend, owner=owner, deep=deep, progress=lambda so_far: shown(so_far.owners)
                )
        archives = await _archives(settings, encryption, folder)
        if archives is None:
            return done
        wrapped, left = await archives.rewrap(owner)
        return replace(done, archives=wrapped, archives_left=left)

    done = run(work)
    if as_json:
        print_json(done)
    else:
        _show_rotation(done, deep=deep)


def _show_rotation(done: "Rotation", *, deep: bool) -> None:
    out = console()
    out.print(
        f"{counted(done.owners, 'owner')}: {done.rewrapped:,} data keys rewrapped with the new master key"
    )
    if done.archives:
        out.print(f"{counted(done.archives, 'archive')}: rewrapped with the new master key")
    if deep:
        sealed = f"{counted(done.messages, 'message')} and {counted(done.documents, 'document')}"
        out.print(f"{sealed} re-encrypted; {done.retired:,} old data keys removed")
    if done.unreadable:
        out.print(f"[yellow]! {done.unreadable:,} could not be read and were left unchanged[/]")
    if done.archives_left:
        out.print(
            f"[yellow]! {counted(done.archives_left, 'archive')} could not be decrypted: "
            "keep the old master key until none is left[/]"
        )
    if done.waiting:
        out.print(
            f"[yellow]! {counted(done.waiting, 'old data key')} kept for other processes: "
            "run the command again in a few minutes, when all spools are empty[/]"
        )


@keys.command()
def verify(
    url: UrlOption = None,
    owner: OwnerOption = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Keep the verified part of a damaged log and remove the rest.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Verify every encrypted log against its head; exit 1 if a log was changed."""
    from aforesaid.layers.encrypted.rotation import verify as verify_logs

    async def work() -> "Verification":
        async with _encrypted_store(Settings.load(), url) as (backend, _):
            return await verify_logs(backend, owner=owner, repair=repair)

    done = run(work)
    if as_json:
        print_json(done)
    else:
        _show_verification(done)
    if any(not one.repaired for one in done.violated):
        raise typer.Exit(1)


def _show_verification(done: "Verification") -> None:
    out = console()
    out.print(f"{counted(done.owners, 'owner')}, {counted(done.conversations, 'conversation')} verified")
    for one in done.violated:
        state = "repaired" if one.repaired else "changed"
        counts = f"{one.violations:,} violations, {one.readable:,} messages verified"
        out.print(f"[yellow]! {escape(one.owner)} {one.conversation_id}: {state} ({counts})[/]")


@asynccontextmanager
async def _encrypted_store(
    settings: Settings, url: str | None
) -> AsyncIterator["tuple[EncryptedBackend, Encryption]"]:
    """Open the encrypted store directly: rotation and verification bypass the other layers."""
    from aforesaid.layers.encrypted import encrypted
    from aforesaid.layers.options import encryption_in
    from aforesaid.stores.urls import backend_for

    require_master_key(settings)
    encryption = encryption_in(settings.protection)
    # `require_master_key` has raised otherwise.
    assert encryption is not None
    place = store_url(url)
    await asyncio.to_thread(check_exists, place)
    backend = encrypted(backend_for(place), encryption)
    await backend.open()
    try:
        yield backend, encryption
    finally:
        await backend.close()


async def _archives(
    settings: Settings, encryption: "Encryption", folder: str | None
) -> "ArchiveFolder | None":
    from aforesaid.memory.options import archives_at
    from aforesaid.transfer.archives import archive_folder

    path = folder or settings.retention.archive_folder
    key_file = settings.retention.archive_key_file
    archives = await asyncio.to_thread(archive_folder, path, key_file) if path else None
    return archives_at(archives, encryption)


# API keys

KeyOwners = Annotated[
    list[str],
    typer.Option("--owner", "-o", help="An owner that the key can access; '*' means all owners. Repeatable."),
]
ScopeOption = Annotated[
    str,
    typer.Option(
        "--scope", "-s", help="read, write (includes read) or admin (adds retention, export and erasure)."
    ),
]
ExpiresOption = Annotated[
    str | None,
    typer.Option("--expires", "-e", help="Lifetime, as in 12h, 90d or 1y. Default: never expires."),
]
ParticipantOption = Annotated[
    str | None, typer.Option(help="Limit the key to the conversations of this participant.")
]
NameOption = Annotated[str, typer.Option("--name", "-n", help="A label for the key.")]


@keys.command()
def create(
    owner: KeyOwners,
    scope: ScopeOption = "write",
    expires: ExpiresOption = None,
    name: NameOption = "",
    participant: ParticipantOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an API key and print it once; only its digest is stored."""

    async def work() -> "tuple[str, ApiKey]":
        from aforesaid.server.auth.keys import ApiKeys, parse_scope

        span = None if expires is None else parse_span(expires)
        async with memory_at(url, create=True, by_meaning=False) as memory:
            return await ApiKeys(memory.backend).create(
                owner, scope=parse_scope(scope), name=name, expires_in=span, participant=participant
            )

    text, key = run(work)
    if as_json:
        print_json({"key": text, **_key_document(key)})
        return
    # Only the key goes to stdout, so that a script can store it: KEY=$(aforesaid keys create …).
    typer.echo(text)
    until = "without expiry" if key.expires_at is None else f"until {when(key.expires_at)}"
    typer.echo(f"Key {key.id} ({key.scope}) for {', '.join(key.owners)}, valid {until}.", err=True)
    typer.echo("The key is not shown again.", err=True)


@keys.command("list")
def list_(url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List the API keys of this store, without the secret keys."""

    async def work() -> "list[tuple[ApiKey, bool]]":
        from aforesaid.server.auth.keys import ApiKeys

        async with memory_at(url, by_meaning=False) as memory:
            found = ApiKeys(memory.backend)
            return [(key, key.holds(found.now())) for key in await found.list()]

    found = run(work)
    if as_json:
        print_json([_key_document(key) | {"holds": holds} for key, holds in found])
        return
    if not found:
        console().print("[dim]No API keys.[/]")
        return
    columns = (("key", 12), ("scope", 10), ("created", TIME), ("expires", TIME))
    print_list(console(), columns, [_row(key, holds=holds) for key, holds in found])


def _row(key: "ApiKey", *, holds: bool) -> Row:
    state = "revoked" if key.revoked_at else None if holds else "expired"
    values = (key.id, key.scope, _minute(key.created_at), _minute(key.expires_at))
    return Row(values, (state, key.name, f"for {', '.join(key.owners)}"), style="" if holds else "dim")


@keys.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The id of the key, from `aforesaid keys list`.")],
    url: UrlOption = None,
) -> None:
    """Revoke an API key. Running servers refuse it within five seconds."""

    async def work() -> "ApiKey":
        from aforesaid.server.auth.keys import ApiKeys

        async with memory_at(url, by_meaning=False) as memory:
            return await ApiKeys(memory.backend).revoke(key_id)

    key = run(work)
    console().print(f"Key {key.id} revoked at {_minute(key.revoked_at)}.")


def _key_document(key: "ApiKey") -> dict[str, object]:
    """Return all fields of a key except its digest."""
    # The digest would allow guessing a key offline.
    names = [name for name in key.__struct_fields__ if name != "digest"]
    return {name: getattr(key, name) for name in names}


def _minute(moment: datetime | None) -> str:
    return when(moment)


_SPAN = re.compile(r"(\d{1,6})\s*(h|d|w|y)", re.ASCII).fullmatch
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1), "y": timedelta(days=365)}


def parse_span(text: str) -> timedelta:
    """Parse a duration such as 12h, 90d, 6w or 1y."""
    found = _SPAN(text.strip().lower())
    if not found or not int(found[1]):
        raise InvalidInput(
            f"expires must be a duration, as in 12h, 90d or 1y; got {shown(text)}", field="expires"
        )
    return int(found[1]) * _UNITS[found[2]]
