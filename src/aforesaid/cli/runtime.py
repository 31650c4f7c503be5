"""What the commands share: options, opening the store, errors and exit codes."""

import asyncio
import getpass
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.markup import escape

import aforesaid
from aforesaid.cli.render import errors_console, readable
from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    InvalidInput,
    InvalidSetting,
    NotFound,
    StoreError,
    StoreUnavailable,
)
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Conversation
from aforesaid.settings import Settings
from aforesaid.stores.urls import backend_for, is_server
from aforesaid.transfer.archives import archive_folder

T = TypeVar("T")

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        help="A store, as in sqlite:///memory.db, or a server, as in https://…; else AFORESAID_URL.",
    ),
]
OwnerOption = Annotated[
    str | None, typer.Option("--owner", "-o", help="Only this owner; without it, everybody.")
]
WhoOption = Annotated[str, typer.Option("--owner", "-o", envvar="AFORESAID_OWNER", help="Whose data it is.")]
DEFAULT_OWNER = "default"
"""Who it is on a machine that one person uses: whom a chat talks with, whose notes and contacts these are."""
JsonOption = Annotated[bool, typer.Option("--json", help="Plain JSON instead of a picture.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="A YAML file of settings; the environment goes before it."),
]

EXIT_CODES: tuple[tuple[type[AforesaidError], int], ...] = (
    (InvalidInput, 2),
    (NotFound, 3),
    (StoreError, 4),
    (AforesaidError, 1),
)
"""Error → exit code. 0 is success, 2 also what a command line that makes no sense gives."""


def run(
    work: Callable[[], Awaitable[T]],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Run a command's work; one of our errors becomes a line on stderr and an exit code."""

    async def waited() -> T:
        return await work()

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(waited())
    except AforesaidError as error:
        errors_console().print(f"[bold red]aforesaid:[/] {escape(readable(str(error)))}", soft_wrap=True)
        code = next(code for kind, code in EXIT_CODES if isinstance(error, kind))
        raise typer.Exit(code) from None


@asynccontextmanager
async def memory_at(
    url: str | None,
    *,
    create: bool = False,
    by_meaning: bool = True,
    archives: str | None = None,
    plain: bool = False,
    spools: bool = False,
) -> AsyncIterator[aforesaid.Memory]:
    """The memory at this URL, or at the one that the settings name. Reading makes no new file.

    `plain`: as it is stored, also where the settings have a master key. `spools`: with what processes that
    are gone had accepted while the store was away.
    """
    settings = Settings.load()
    url = url or settings.store.url
    if is_server(url):
        if archives is not None:
            refuse_through_server(url, "--folder")
        async with aforesaid.open(url, key=settings.store.key or None) as memory:
            yield memory
        return
    if not create:
        await asyncio.to_thread(check_exists, url)
    kept = settings.retention
    folder = archives or kept.archive_folder
    async with aforesaid.open(
        url,
        config=settings.conversation,
        ttl=kept.ttl,
        retention=kept.retention,
        blobs=settings.store.blobs_folder or None,
        archives=await asyncio.to_thread(archive_folder, folder, kept.archive_key_file) if folder else None,
        sweep_every=None,
        warm=False,
        **_layers(settings, url, spools=spools) | ({"encryption": None} if plain else {}),
        embedder="installed" if by_meaning else None,
    ) as memory:
        yield memory.acting_as(_operator(), source="command line")


def refuse_through_server(url: str | None, option: str) -> None:
    """Refuse an option that only the server could follow, where the URL is that of one."""
    if is_server(url or Settings.load().store.url):
        raise InvalidSetting(f"{option} is the server's to decide, or that of the store itself", field=option)


def _operator() -> str:
    """Who types, for the audit trail: the name of their account."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # an account without a name, as in some containers
        return "operator"


def _layers(settings: Settings, url: str, *, spools: bool) -> dict[str, Any]:
    """The layers that the settings ask for; but an operator wants the store itself, and its errors."""
    from aforesaid.layers.build import layers_in, resilience_in

    resilience = resilience_in(settings.resilience, url) if spools else "off"
    return layers_in(settings) | {"resilience": resilience, "cache": "off"}


def require_master_key(settings: Settings) -> None:
    """Refuse to go on without one."""
    if not (settings.protection.master_key or settings.protection.master_key_file):
        raise InvalidSetting(
            "there is no master key: set AFORESAID_MASTER_KEY or AFORESAID_MASTER_KEY_FILE",
            field="AFORESAID_MASTER_KEY",
        )


def settled_url(url: str | None) -> str:
    """The URL, or the one that the settings name; of a store, for commands that need the store itself."""
    place = url or Settings.load().store.url
    if is_server(place):
        raise InvalidSetting(
            "this command needs the store itself: run it where the store is, with --url of the store",
            field="url",
        )
    return place


def check_exists(url: str) -> None:
    """Refuse a store in a file that is not there: a wrong name must not become an empty store."""
    file = getattr(backend_for(url), "path", None)
    if file is not None and not Path(file).exists():
        raise StoreUnavailable(
            f"there is no file {file}; name a store with --url or AFORESAID_URL, "
            "or make one with `aforesaid demo`"
        )


async def managers(
    memory: aforesaid.Memory, owner: str | None
) -> AsyncIterator[tuple[str, ConversationManager]]:
    """The handle of one owner, or of everybody, one after the other."""
    if owner is not None:
        yield owner, memory.of(owner)
        return
    async for name in memory.owners():
        yield name, memory.of(name)


async def find_conversation(
    memory: aforesaid.Memory, owner: str | None, conversation_id: str
) -> tuple[str, ConversationManager, Conversation]:
    """Whose conversation this is, and its record. Raises `ConversationNotFound`."""
    async for name, manager in managers(memory, owner):
        with suppress(ConversationNotFound):
            return name, manager, await manager.get_conversation(conversation_id)
    raise ConversationNotFound(conversation_id)


def print_json(value: Any) -> None:
    """Plain JSON on stdout, for another program."""
    try:
        typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    except UnicodeEncodeError:  # half of a surrogate pair has a form in JSON, but none in UTF-8
        typer.echo(json.dumps(msgspec.to_builtins(value), indent=2))
