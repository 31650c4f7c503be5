"""`aforesaid mcp`: serve one owner's memory to a model's host over stdio."""

from typing import Annotated

import typer
from rich.markup import escape

from aforesaid.cli.runtime import (
    DEFAULT_OWNER,
    DefaultedOwnerOption,
    UrlOption,
    errors_console,
    memory_at,
    run,
)
from aforesaid.errors import MissingExtra

ReadOnlyOption = Annotated[bool, typer.Option("--read-only", help="Offer no tool that changes anything.")]


def mcp(
    url: UrlOption = None, owner: DefaultedOwnerOption = DEFAULT_OWNER, read_only: ReadOnlyOption = False
) -> None:
    """Serve one owner's memory as a Model Context Protocol server on stdin and stdout.

    A host such as Claude Desktop starts this command. A server offers the same tools at /mcp.
    """

    async def work() -> None:
        try:
            from aforesaid.mcp.server import create_server
            from aforesaid.mcp.tools import Access, Scope
        except ImportError as error:
            if (error.name or "").startswith("aforesaid"):
                raise
            raise MissingExtra("the MCP server", extra="mcp") from None
        scope: Scope = "read" if read_only else "write"
        async with memory_at(url, create=True) as memory:
            access = Access(manager=memory.of(owner), scope=scope)
            # Stdout is the protocol's: a line of anything else would end the connection.
            errors_console().print(f"Serving the memory of {escape(repr(owner))} over stdio.")
            await create_server(lambda _: access, scope=scope).run_stdio_async()

    run(work)
