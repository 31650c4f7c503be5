"""`aforesaid chat`: talk with an assistant in the terminal."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from aforesaid.cli.conversations import print_context
from aforesaid.cli.notes import print_notes
from aforesaid.cli.runtime import DEFAULT_OWNER, UrlOption, console, memory_at, readable, run
from aforesaid.errors import AforesaidError, InvalidInput
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.clock import system_clock
from aforesaid.settings import AgentConfig, Settings

if TYPE_CHECKING:
    from aforesaid.agents import Answer, Apology, Assistants

# The provider that uses no model.
RECALL = "recall"

HELP = """\
/new               start a new conversation
/context           show the model's context and what was left out
/search WORDS      search all conversations
/notes [WORDS]     list the notes, or search them
/remember TEXT     add a note
/forget WHAT       remove a note by its id, its subject or words in it
/help              show this list
/quit              quit; the end of input also quits"""


def chat(
    url: UrlOption = None,
    owner: Annotated[
        str, typer.Option("--owner", "-o", envvar="AFORESAID_OWNER", help="Your name as an owner.")
    ] = DEFAULT_OWNER,
    session: Annotated[
        str, typer.Option("--session", "-s", help="Continue the conversation of this session.")
    ] = "terminal",
    new: Annotated[bool, typer.Option("--new", help="Start a new conversation.")] = False,
    provider: Annotated[
        str | None,
        typer.Option(help="anthropic, openai, openai_responses, bedrock, or recall (no model)."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model's name at the provider.")] = None,
) -> None:
    """Talk with an assistant. Without a provider, the recall agent answers from your history and notes.

    Reads lines from the terminal or a pipe; /help lists the commands.
    """

    # Imported here: agents are slow to import, and other commands do not need them.
    from aforesaid.agents import Assistants

    async def work() -> None:
        config = _config(provider, model)
        assistants = Assistants(config, clock=system_clock)
        try:
            # The only command besides `demo` and `keys create` that may create a store: a first
            # chat needs one.
            async with memory_at(url, create=True) as memory:
                chat_session = _ChatSession(memory.of(owner), assistants, session)
                # Otherwise the user would type a question before learning that the key is
                # wrong.
                await chat_session.check_access()
                if new:
                    await chat_session.start_new()
                await chat_session.run()
        finally:
            await assistants.close()

    run(work)


def _config(provider: str | None, model: str | None) -> AgentConfig:
    """Return the agent settings, overridden by the command line options."""
    options = {"AFORESAID_PROVIDER": provider, "AFORESAID_MODEL": model}
    overrides = {name: value for name, value in options.items() if value is not None}
    # Through the environment, so that options are validated like settings.
    config = Settings.load(environ={**os.environ, **overrides}).agent
    if model is not None and config.provider == RECALL:
        raise InvalidInput(
            "--model needs --provider: name the model's provider, such as --provider anthropic",
            field="--model",
        )
    return config


class _ChatSession:
    """The input loop of one user at the terminal."""

    def __init__(self, manager: ManagerProtocol, assistants: "Assistants", session: str) -> None:
        self._manager = manager
        self._assistant = assistants.of(manager)
        self._name = "assistant" if assistants.uses_model else "recall"
        self._session = session
        self._out: Console = console()
        self._is_terminal = self._stdin_is_terminal()
        self._commands: dict[str, Callable[[str], Awaitable[Any]]] = {
            "/new": self._new,
            "/context": self._context,
            "/search": self._search,
            "/notes": self._notes,
            "/remember": self._remember,
            "/forget": self._forget,
            "/help": self._help,
        }

    @staticmethod
    def _stdin_is_terminal() -> bool:
        return sys.stdin.isatty()

    async def check_access(self) -> None:
        """Raise before the first prompt if the key does not reach this owner."""
        await self._manager.session(self._session)

    async def run(self) -> None:
        """Read and handle lines until /quit or the end of input."""
        if self._is_terminal:
            agent = "a model" if self._name == "assistant" else "the recall agent (no model)"
            self._out.print(f"[dim]You are talking with {agent}. /help lists the commands.[/]")
        # `input` blocks, so it runs in a thread; background tasks of the memory continue meanwhile.
        while (line := await asyncio.to_thread(self._read)) is not None:
            text = line.strip()
            if text in ("/quit", "/exit"):
                return
            if text:
                await self._handle(text)

    def _read(self) -> str | None:
        if not self._is_terminal:
            return sys.stdin.readline() or None
        try:
            return input("you> ")
        except EOFError:
            return None

    async def _handle(self, text: str) -> None:
        """Run a command or answer a message; print an error and continue."""
        try:
            if text.startswith("/"):
                name, _, argument = text.partition(" ")
                await self._commands.get(name, self._unknown)(argument.strip())
            else:
                await self._answer(text)
        except AforesaidError as error:
            self._out.print(f"[red]{escape(readable(str(error)))}[/]", soft_wrap=True)

    async def _answer(self, text: str) -> None:
        streamed: list[str] = []

        def print_part(part: str) -> None:
            streamed.append(part)
            self._write(part)

        if self._is_terminal:
            self._out.print(f"[bold green]{self._name}>[/] ", end="")
        answer = await self._assistant.answer_or_apology(text, self._session, on_text=print_part)
        if not "".join(streamed).endswith(answer.text):  # an apology is not streamed
            self._write(f"\n{answer.text}" if streamed else answer.text)
        self._write("\n")
        self._warn(answer)

    def _warn(self, answer: "Answer | Apology") -> None:
        failed = getattr(answer, "not_stored", None)
        if failed is not None:
            later = "It is queued and will be stored later." if failed.queued else ""
            self._out.print(f"[yellow]This answer is not stored: {escape(str(failed.error))}. {later}[/]")

    def _write(self, text: str) -> None:
        # Not through rich, which would take brackets for markup and wrap lines.
        sys.stdout.write(readable(text))
        sys.stdout.flush()

    async def start_new(self) -> None:
        """Leave the current conversation; the next message starts a new one."""
        await self._manager.leave_session(self._session)

    # Commands

    async def _new(self, _: str) -> None:
        await self.start_new()
        self._out.print("[dim]Started a new conversation.[/]")

    async def _context(self, _: str) -> None:
        record = await self._manager.session(self._session)
        if record is None:
            self._out.print("[dim]This conversation has no messages yet.[/]")
            return
        print_context(self._out, await self._manager.load_context(record.id), explain=True)

    async def _search(self, words: str) -> None:
        found = await self._manager.search_history(words)
        for passage in found:
            self._out.print(escape(readable(passage)), soft_wrap=True)
            self._out.print()
        if not found:
            self._out.print("[dim]No results.[/]")

    async def _notes(self, words: str) -> None:
        found = await self._manager.recall(words, 50) if words else await self._manager.notes()
        if found:
            print_notes(self._out, found)
        else:
            self._out.print("[dim]No notes.[/]")

    async def _remember(self, words: str) -> None:
        note = await self._manager.remember(words)
        self._out.print(f"Remembered: {escape(readable(note.text))}", soft_wrap=True)

    async def _forget(self, words: str) -> None:
        forgotten = await self._manager.forget(words)
        for note in forgotten:
            self._out.print(f"Forgotten: {escape(readable(note.text))}", soft_wrap=True)
        if not forgotten:
            self._out.print("[dim]No such note.[/]")

    async def _help(self, _: str) -> None:
        self._out.print(escape(HELP))

    async def _unknown(self, _: str) -> None:
        self._out.print("[dim]Unknown command; /help lists the commands.[/]")
