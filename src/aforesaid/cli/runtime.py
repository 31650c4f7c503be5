"""Shared by all commands: options, opening the store, errors and exit codes, terminal output."""

import asyncio
import getpass
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer
from msgspec import UNSET, structs
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from aforesaid.contracts import FileBacked, capability
from aforesaid.dialects import meaning_of
from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    InvalidInput,
    InvalidSetting,
    NotFound,
    StoreError,
    StoreUnavailable,
    shown,
)
from aforesaid.memory.interface import ManagerProtocol, MemoryProtocol
from aforesaid.memory.opening import open as open_memory
from aforesaid.memory.options import ImageOptions, Models, retention_in
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import is_uuid, parse_conversation
from aforesaid.model.messages import Message, carries_tool_results
from aforesaid.settings import Settings
from aforesaid.stores.urls import backend_for, is_server

if TYPE_CHECKING:
    from aforesaid.layers.build import Layers


# Terminal output of messages, conversations and times.


ROLE_STYLES = {"user": "bold cyan", "assistant": "bold green", "system": "bold magenta", "tool": "yellow"}


# Created for each use: tests and pipes replace stdout after this module is imported. Without highlighting,
# which would colour numbers inside a user's text.
def console() -> Console:
    return Console(highlight=False)


def errors_console() -> Console:
    return Console(stderr=True, highlight=False)


# Control characters, which can move the cursor or rename the window, and lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def readable(text: str) -> str:
    """Replace control characters and lone surrogates, so that stored text cannot control the terminal."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def ago(moment: datetime | None, *, now: datetime | None = None) -> str:
    """Return a relative time, as in '3 days ago'; a future time as a date."""
    if moment is None:
        return "never"
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if seconds < 0:
        return moment.date().isoformat()
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def conversations_table(rows: list[tuple[str, Conversation]]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("conversation", "owner", "channel", "status", "messages", "last", "subject"):
        # Folded, never cut: an id that cannot be copied completely is useless.
        table.add_column(column, justify="right" if column == "messages" else "left", overflow="fold")
    for owner, record in rows:
        table.add_row(
            record.id if record.name is None else f"{escape(readable(record.name))}\n[dim]{record.id}[/]",
            escape(readable(owner)),
            record.channel,
            record.status,
            f"{record.message_count:,}",
            ago(record.last_activity),
            escape(readable(record.subject or "")),
        )
    return table


def message_line(message: Message) -> Text:
    """Return the speaker and the content of a message as one line."""
    role = "tool" if carries_tool_results(message) else message.role
    line = Text()
    # On a user message, agent_name is the agent that answered, not the speaker.
    name = role if role == "user" else message.agent_name or role
    line.append(f"{readable(name):>10}  ", style=ROLE_STYLES[role])
    return line + message_content(message)


def message_content(message: Message) -> Text:
    """Return the text, tool calls and tool results of a message; other content as JSON."""
    meaning = meaning_of(message)
    parts = [Text(readable(meaning.text))] if meaning.text else []
    parts += [
        Text(f"→ {readable(call.name)}({_shorten(call.arguments)})", style="yellow") for call in meaning.calls
    ]
    parts += [Text(f"← {_shorten(result.content)}", style="yellow") for result in meaning.results]
    if not parts:
        parts = [Text(_shorten("" if message.content is UNSET else message.content), style="dim")]
    return Text(" ").join(parts)


def _shorten(value: Any, limit: int = 160) -> str:
    text = readable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


# Shared options, opening the store, error reporting and exit codes.


T = TypeVar("T")

# Options that several commands share, so that a name has one meaning and one help text.
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        help="A store (sqlite:///memory.db) or a server (https://…). Default: AFORESAID_URL.",
    ),
]
OwnerOption = Annotated[
    str | None, typer.Option("--owner", "-o", help="Only this owner. Default: all owners.")
]
DefaultedOwnerOption = Annotated[
    str, typer.Option("--owner", "-o", envvar="AFORESAID_OWNER", help="The owner of the data.")
]
# The owner in `chat`, `notes` and `clients` when neither --owner nor AFORESAID_OWNER is set.
DEFAULT_OWNER = "default"
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="A YAML file with settings. Environment variables take precedence."),
]

# Exit code by error class. 0 is success; Typer also exits with 2 on a usage error.
EXIT_CODES: tuple[tuple[type[AforesaidError], int], ...] = (
    (InvalidInput, 2),
    (NotFound, 3),
    (StoreError, 4),
    (AforesaidError, 1),
)


def run(
    work: Callable[[], Awaitable[T]],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Run a command's coroutine; print an `AforesaidError` to stderr and exit with its code."""

    async def main() -> T:  # a Runner needs a coroutine; `work` may return any awaitable
        return await work()

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(main())
    except AforesaidError as error:
        errors_console().print(f"[bold red]aforesaid:[/] {escape(readable(str(error)))}", soft_wrap=True)
        # The order of the table matters: an error is also an instance of its base classes.
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
) -> AsyncIterator[MemoryProtocol]:
    """Open the memory at this URL, by default at the URL of the settings.

    - `create`: create a missing file; otherwise a missing file is an error.
    - `plain`: do not decrypt, even if the settings have a master key.
    - `spools`: adopt the spools of processes that have ended.
    """
    settings = Settings.load()
    url = url or settings.store.url
    if is_server(url):
        if archives is not None:
            refuse_through_server(url, "--folder")
        # Imported here: a command on a local store needs no httpx.
        from aforesaid.remote import connect

        async with connect(url, key=settings.store.key or None) as memory:
            yield memory
        return
    if not create:
        await asyncio.to_thread(check_exists, url)
    retention = await asyncio.to_thread(retention_in, settings.retention, folder=archives or "")
    layers = _layers(settings, url, spools=spools)
    async with open_memory(
        url,
        config=settings.conversation,
        ttl=settings.retention.ttl,
        # A command is short: it starts no background sweep.
        retention=structs.replace(retention, sweep_every=None),
        images=ImageOptions(blobs=settings.store.blobs_folder or None),
        layers=replace(layers, encryption=None) if plain else layers,
        # Loading the encoder is slow, and only a search needs it.
        models=Models(embedder="installed" if by_meaning else None, preload=False),
    ) as opened:
        yield opened.acting_as(_operator(), source="command line")


def refuse_through_server(url: str | None, option: str) -> None:
    """Raise `InvalidSetting` if the URL is a server's: the server does not accept this option."""
    if is_server(url or Settings.load().store.url):
        raise InvalidSetting(
            f"{option} needs the URL of a store; a server uses its own setting", field=option
        )


def _operator() -> str:
    """Return the name of the operating system account, for the audit trail."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # some containers run as a user id without a name
        return "operator"


def _layers(settings: Settings, url: str, *, spools: bool) -> "Layers":
    """Return the layers of the settings without cache and retry: an operator needs the store's own errors."""
    from aforesaid.layers.build import layers_in

    layers = layers_in(settings, url)
    return replace(layers, resilience=layers.resilience if spools else "off", cache="off")


def require_master_key(settings: Settings) -> None:
    """Raise `InvalidSetting` if the settings have no master key."""
    if not (settings.protection.master_key or settings.protection.master_key_file):
        raise InvalidSetting(
            "no master key is set: set AFORESAID_MASTER_KEY or AFORESAID_MASTER_KEY_FILE",
            field="AFORESAID_MASTER_KEY",
        )


def store_url(url: str | None) -> str:
    """Return the URL, by default that of the settings. Raise `InvalidSetting` if it is a server's."""
    url = url or Settings.load().store.url
    if is_server(url):
        raise InvalidSetting(
            "this command needs a store, not a server: run it with --url of the store",
            field="url",
        )
    return url


def check_exists(url: str) -> None:
    """Raise `StoreUnavailable` if the store's file is missing; a typo must not create an empty store."""
    file = capability(backend_for(url), FileBacked)
    if file is not None and not Path(file.path).exists():
        raise StoreUnavailable(
            f"{file.path} does not exist; name a store with --url or AFORESAID_URL, "
            "or create one with `aforesaid demo`"
        )


async def managers(memory: MemoryProtocol, owner: str | None) -> AsyncIterator[tuple[str, ManagerProtocol]]:
    """Yield the name and handle of one owner, by default of every owner."""
    if owner is not None:
        yield owner, memory.of(owner)
        return
    async for name in memory.owners():
        yield name, memory.of(name)


async def find_conversation(
    memory: MemoryProtocol, owner: str | None, conversation_id: str
) -> tuple[str, ManagerProtocol, Conversation]:
    """Return the owner, the handle and the record of a conversation, or raise `ConversationNotFound`."""
    found: list[tuple[str, ManagerProtocol, Conversation]] = []
    async for name, manager in managers(memory, owner):
        with suppress(ConversationNotFound):
            found.append((name, manager, await manager.get_conversation(conversation_id)))
            if is_uuid(parse_conversation(conversation_id)):
                break  # an id is unique; several owners may use one name
    if not found:
        raise ConversationNotFound(conversation_id)
    if len(found) > 1:
        raise InvalidInput(
            f"{len(found)} owners have a conversation {shown(conversation_id)}: select one with --owner",
            field="--owner",
        )
    return found[0]


def confirm(question: str, *, yes: bool) -> None:
    """Ask before data is permanently removed, and abort unless the user agrees; --yes skips the question."""
    if not yes:
        typer.confirm(question, abort=True, err=True)


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    try:
        typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    except UnicodeEncodeError:  # a lone surrogate can be escaped in JSON but not encoded in UTF-8
        typer.echo(json.dumps(msgspec.to_builtins(value), indent=2))
