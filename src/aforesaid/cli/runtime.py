"""Shared by all commands: options, opening the store, errors and exit codes, terminal output."""

import asyncio
import getpass
import json
import re
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer
from msgspec import UNSET, structs
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from aforesaid.cli.wording import for_operator
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


def when(moment: datetime | None) -> str:
    """Return a time as every command prints it, in the time zone of this machine: 2026-03-01 09:30."""
    return "never" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M}"


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
    str | None,
    typer.Option(
        "--owner", "-o", envvar="AFORESAID_OWNER", help="The owner of the data. Default: all owners."
    ),
]
DefaultedOwnerOption = Annotated[
    str, typer.Option("--owner", "-o", envvar="AFORESAID_OWNER", help="The owner of the data.")
]
RequiredOwner = Annotated[
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
        errors_console().print(
            f"[bold red]aforesaid:[/] {escape(readable(for_operator(error)))}", soft_wrap=True
        )
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
            "or create it with `aforesaid chat` or `aforesaid serve`"
        )


async def managers(memory: MemoryProtocol, owner: str | None) -> AsyncIterator[tuple[str, ManagerProtocol]]:
    """Yield the name and handle of one owner, by default of every owner."""
    if owner is not None:
        yield owner, memory.of(owner)
        return
    async for name in memory.owners():
        yield name, memory.of(name)


Found = tuple[str, ManagerProtocol, Conversation]


async def find_conversation(memory: MemoryProtocol, owner: str | None, conversation_id: str) -> Found:
    """Return the owner, the handle and the record of a conversation.

    `conversation_id` is an id, a name, the name of a session, or the start of an id; the first of these that
    finds anything counts. Raise `ConversationNotFound`, or `InvalidInput` where several are meant.
    """
    parse_conversation(conversation_id)
    for find in (_by_id, _by_session, _by_prefix):
        found = [one async for one in find(memory, owner, conversation_id)]
        if len(found) == 1:
            return found[0]
        if found:
            raise _ambiguous(conversation_id, found)
    raise ConversationNotFound(conversation_id)


async def _by_id(memory: MemoryProtocol, owner: str | None, wanted: str) -> AsyncIterator[Found]:
    """Yield the conversation with this id, or those of all owners with this name."""
    async for name, manager in managers(memory, owner):
        with suppress(ConversationNotFound):
            yield name, manager, await manager.get_conversation(wanted)
            if is_uuid(wanted):
                return  # an id is unique; several owners may use one name


async def _by_session(memory: MemoryProtocol, owner: str | None, wanted: str) -> AsyncIterator[Found]:
    """Yield the conversations that a session of this name is bound to."""
    if is_uuid(wanted):
        return
    async for name, manager in managers(memory, owner):
        record = await manager.session(wanted)
        if record is not None:
            yield name, manager, record


async def _by_prefix(memory: MemoryProtocol, owner: str | None, wanted: str) -> AsyncIterator[Found]:
    """Yield the conversations whose ids start with this text."""
    if not re.fullmatch("[0-9a-f-]{4,35}", wanted):
        return
    async for name, manager in managers(memory, owner):
        cursor: str | None = None
        while True:
            page = await manager.list(limit=LISTED, after=cursor)
            for record in page.conversations:
                if record.id.startswith(wanted):
                    yield name, manager, record
            cursor = page.next
            if cursor is None:
                break


# Conversations read at a time to find the start of an id.
LISTED = 1000


def _ambiguous(wanted: str, found: list[Found]) -> InvalidInput:
    owners = {name for name, _, _ in found}
    if len(owners) > 1:
        return InvalidInput(
            f"{len(owners)} owners have a conversation {shown(wanted)}: select one with --owner",
            field="--owner",
        )
    return InvalidInput(f"{len(found)} conversations start with {wanted}: give more of the id", field="ID")


@contextmanager
def progress_of(
    label: str, *, unit: str = "", total: int | None = None, still: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show on stderr how far a command is; yield a function that takes the number done.

    A terminal gets a bar, anything else a line every few seconds, so that stdout stays clean for pipes. A
    command that ends within a second shows nothing there. A `still` bar is drawn only when the number
    changes: a thread that draws would disturb a measurement.
    """
    out = errors_console()
    if out.is_terminal:
        counts = (MofNCompleteColumn(), TextColumn(unit)) if unit else ()
        columns = (TextColumn(label), BarColumn(), *counts, TimeElapsedColumn())
        with Progress(*columns, console=out, transient=True, auto_refresh=not still) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.update(task, completed=done, refresh=still)
        return
    lines = _ProgressLines(out, label, unit, total)
    with lines.after(FIRST_LINE):
        yield lines.update


# Seconds before the first line of progress outside a terminal, and between the others.
FIRST_LINE, NEXT_LINE = 1.0, 10.0


class _ProgressLines:
    """Prints progress as lines."""

    def __init__(self, out: Console, label: str, unit: str, total: int | None) -> None:
        self._out = out
        self._label = label
        self._unit = unit
        self._of = "" if total is None else f" of {total:,}"
        self._done = 0
        self._timer: threading.Timer | None = None

    def update(self, done: int) -> None:
        self._done = done

    @contextmanager
    def after(self, seconds: float) -> Iterator[None]:
        self._start(seconds)
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _start(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._print)
        self._timer.daemon = True
        self._timer.start()

    def _print(self) -> None:
        counts = f": {self._done:,}{self._of} {self._unit}".rstrip() if self._done else " …"
        self._out.print(f"{self._label}{counts}")
        self._start(NEXT_LINE)


def invocation() -> str:
    """Return `aforesaid`, or the path of this script if `aforesaid` is not on the PATH."""
    used = sys.argv[0]
    return used if Path(used).name == "aforesaid" and not shutil.which("aforesaid") else "aforesaid"


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
