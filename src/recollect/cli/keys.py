"""`recollect keys …`: the keys that a store is encrypted with."""

import asyncio
from typing import Annotated

import typer

from recollect.cli.rendering import console, counted
from recollect.cli.running import (
    JsonOption,
    OwnerOption,
    UrlOption,
    check_exists,
    print_json,
    require_master_key,
    run,
    settled_url,
)
from recollect.settings import Settings

keys = typer.Typer(name="keys", help="The keys that a store is encrypted with.", no_args_is_help=True)


@keys.callback()
def about_keys() -> None:
    """The keys that a store is encrypted with."""


@keys.command()
def generate() -> None:
    """Print a new master key. Keep it where the store is not: without it, nothing can be read again."""
    from recollect.keys import generate_master_key

    typer.echo(generate_master_key())


@keys.command()
def rotate(
    url: UrlOption = None,
    owner: OwnerOption = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="New data keys too: everything is encrypted anew, step by step.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Wrap all data keys with the first of the master keys; no message is rewritten, unless with --deep.

    Put the new master key before the old one, rotate, then take the old one away.
    """
    from recollect.layers.choices import encryption_in
    from recollect.layers.encrypted import encrypted
    from recollect.layers.rekeying import Rotation
    from recollect.layers.rekeying import rotate as rotate_keys
    from recollect.stores.urls import backend_for

    async def work() -> Rotation:
        settings = Settings.load()
        require_master_key(settings)
        encryption = encryption_in(settings.protection)
        assert encryption is not None
        place = settled_url(url)
        await asyncio.to_thread(check_exists, place)
        backend = encrypted(backend_for(place), encryption)
        await backend.open()
        try:
            return await rotate_keys(backend, owner=owner, deep=deep)
        finally:
            await backend.close()

    done = run(work)
    if as_json:
        print_json(done)
        return
    out = console()
    out.print(f"{counted(done.owners, 'owner')}: {done.rewrapped:,} wrapped by the new master key")
    if deep:
        sealed = f"{counted(done.messages, 'message')} and {counted(done.documents, 'document')}"
        out.print(f"{sealed} encrypted anew; {done.retired:,} old data keys are gone")
    if done.unreadable:
        out.print(f"[yellow]! {done.unreadable:,} could not be read and were left as they are[/]")
    if done.waiting:
        out.print(
            f"[yellow]! {counted(done.waiting, 'old data key')} kept for other processes: "
            "run it again in some minutes[/]"
        )
