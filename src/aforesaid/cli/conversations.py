"""`aforesaid conversations`: list conversations."""

from typing import Annotated

import typer

from aforesaid.cli.render import console, conversations_table
from aforesaid.cli.runtime import JsonOption, OwnerOption, UrlOption, managers, memory_at, print_json, run
from aforesaid.model.conversations import Conversation


def conversations(
    url: UrlOption = None,
    owner: OwnerOption = None,
    status: Annotated[str | None, typer.Option(help="open, pending, resolved or closed.")] = None,
    channel: Annotated[str | None, typer.Option(help="voice, text, email or phone.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only with this tag; repeatable.")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number for each owner.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List conversations, most recently active first."""

    async def work() -> list[tuple[str, Conversation]]:
        rows = []
        async with memory_at(url) as memory:
            async for name, manager in managers(memory, owner):
                page = await manager.list(
                    status=status,  # type: ignore[arg-type]
                    channel=channel,  # type: ignore[arg-type]
                    tags=tag or (),
                    limit=limit,
                )
                rows += [(name, record) for record in page.conversations]
        return sorted(rows, key=lambda row: row[1].last_activity, reverse=True)

    rows = run(work)
    if as_json:
        print_json([{"owner": name, **record.to_dict()} for name, record in rows])
    elif rows:
        console().print(conversations_table(rows))
    else:
        console().print("[dim]No conversations.[/]")
