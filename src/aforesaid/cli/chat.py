"""`aforesaid chat`: an assistant in the terminal; memory, tools and streaming are the same as elsewhere."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from aforesaid.cli.context import print_context
from aforesaid.cli.notes import notes_table
from aforesaid.cli.render import console, counted, readable
from aforesaid.cli.runtime import DEFAULT_OWNER, UrlOption, memory_at, run
from aforesaid.errors import AforesaidError
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.clock import system_clock
from aforesaid.settings import AgentConfig, Settings

if TYPE_CHECKING:
    from aforesaid.agents import Answer, Apology, Assistants

HELP = """\
/new               start another conversation
/context           what the assistant sees now, and why
/search WORDS      what was said about something, in all conversations
/notes [WORDS]     what is noted, or the notes about something
/remember TEXT     note something
/forget WHAT       forget a note: its id, its subject, or words that are in it
/help              this
/quit              leave; so does the end of the input"""


def chat(
    url: UrlOption = None,
    owner: Annotated[
        str, typer.Option("--owner", "-o", envvar="AFORESAID_OWNER", help="Who you are.")
    ] = DEFAULT_OWNER,
    session: Annotated[
        str, typer.Option("--session", "-s", help="Goes on with the conversation of this session.")
    ] = "terminal",
    new: Annotated[bool, typer.Option("--new", help="Start another conversation.")] = False,
    provider: Annotated[
        str | None,
        typer.Option(
            help="Whose model answers: anthropic, openai, openai_responses, bedrock; recall needs none."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The provider's name of the model.")] = None,
) -> None:
    """Talk with an assistant that remembers. Without a provider it answers from what you said before.

    Reads lines from the terminal, or from a pipe; /help lists what it takes besides words.
    """

    from aforesaid.agents import Assistants

    async def work() -> None:
        config = _config(provider, model)
        assistants = Assistants(config, clock=system_clock)
        try:
            async with memory_at(url, create=True) as memory:
                talk = _Talk(memory.of(owner), assistants, session)
                await talk.check_admitted()
                if new:
                    await talk.start_another()
                await talk.go_on()
        finally:
            await assistants.close()

    run(work)


def _config(provider: str | None, model: str | None) -> AgentConfig:
    """The settings, with what the command line says in their place."""
    given = {"AFORESAID_PROVIDER": provider, "AFORESAID_MODEL": model}
    said = {name: value for name, value in given.items() if value is not None}
    return Settings.load(environ={**os.environ, **said}).agent


class _Talk:
    """One person at the terminal."""

    def __init__(self, manager: ConversationManager, assistants: "Assistants", session: str) -> None:
        self._manager = manager
        self._assistant = assistants.of(manager)
        self._name = "assistant" if assistants.uses_model else "recall"
        self._session = session
        self._out: Console = console()
        self._is_terminal = self._stands_at_terminal()
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
    def _stands_at_terminal() -> bool:
        return sys.stdin.isatty()

    async def check_admitted(self) -> None:
        """Look once before anybody speaks: a key that does not reach so far is no reason for an apology."""
        await self._manager.session(self._session)

    async def go_on(self) -> None:
        """Until somebody leaves."""
        if self._is_terminal:
            who = "a model" if self._name == "assistant" else "the recall agent, without a model"
            self._out.print(f"[dim]You talk with {who}. /help lists what else there is.[/]")
        while (line := await asyncio.to_thread(self._read)) is not None:
            words = line.strip()
            if words in ("/quit", "/exit"):
                return
            if words:
                await self._take(words)

    def _read(self) -> str | None:
        if not self._is_terminal:
            return sys.stdin.readline() or None
        try:
            return input("you> ")
        except EOFError:
            return None

    async def _take(self, words: str) -> None:
        """A command, or something said. What goes wrong is told, and the talk goes on."""
        try:
            if words.startswith("/"):
                name, _, rest = words.partition(" ")
                await self._commands.get(name, self._unknown)(rest.strip())
            else:
                await self._ask(words)
        except AforesaidError as error:
            self._out.print(f"[red]{escape(readable(str(error)))}[/]", soft_wrap=True)

    async def _ask(self, words: str) -> None:
        streamed: list[str] = []

        def hear(piece: str) -> None:
            streamed.append(piece)
            self._write(piece)

        if self._is_terminal:
            self._out.print(f"[bold green]{self._name}>[/] ", end="")
        answer = await self._assistant.answer_or_apology(words, self._session, on_text=hear)
        if not "".join(streamed).endswith(answer.text):  # an apology, or words that were not streamed
            self._write(f"\n{answer.text}" if streamed else answer.text)
        self._write("\n")
        self._warn(answer)

    def _warn(self, answer: "Answer | Apology") -> None:
        failed = getattr(answer, "not_stored", None)
        if failed is not None:
            later = "It is stored as soon as that is possible." if failed.queued else ""
            self._out.print(f"[yellow]This answer is not stored: {escape(str(failed.error))}. {later}[/]")

    def _write(self, text: str) -> None:
        sys.stdout.write(readable(text))
        sys.stdout.flush()

    async def start_another(self) -> None:
        """The next thing that is said starts a conversation. The one before stays."""
        await self._manager.leave_session(self._session)

    # Commands

    async def _new(self, _: str) -> None:
        await self.start_another()
        self._out.print("[dim]Another conversation begins.[/]")

    async def _context(self, _: str) -> None:
        record = await self._manager.session(self._session)
        if record is None:
            self._out.print("[dim]Nothing was said in this conversation yet.[/]")
            return
        print_context(self._out, await self._manager.load_context(record.id), explain=True)

    async def _search(self, words: str) -> None:
        found = await self._manager.search_history(words)
        for passage in found:
            self._out.print(escape(readable(passage)), soft_wrap=True)
            self._out.print()
        if not found:
            self._out.print("[dim]Nothing was found.[/]")

    async def _notes(self, words: str) -> None:
        found = await self._manager.recall(words, 50) if words else await self._manager.notes()
        self._out.print(notes_table(found) if found else "[dim]Nothing is noted.[/]")

    async def _remember(self, words: str) -> None:
        note = await self._manager.remember(words)
        self._out.print(f"Remembered: {escape(readable(note.text))}", soft_wrap=True)

    async def _forget(self, words: str) -> None:
        gone = await self._manager.forget(words)
        for note in gone:
            self._out.print(f"Forgotten: {escape(readable(note.text))}", soft_wrap=True)
        if not gone:
            self._out.print("[dim]There is no such note.[/]")

    async def _help(self, _: str) -> None:
        self._out.print(escape(HELP))

    async def _unknown(self, _: str) -> None:
        names = counted(len(self._commands) + 1, "command")
        self._out.print(f"[dim]That is none of the {names}; /help lists them.[/]")
