"""`aforesaid redact ID MESSAGE`: permanently replace the content of a message."""

from typing import Annotated

import typer

from aforesaid.cli.confirm import YesOption, confirm
from aforesaid.cli.render import console, readable
from aforesaid.cli.runtime import (
    JsonOption,
    OwnerOption,
    UrlOption,
    find_conversation,
    memory_at,
    print_json,
    run,
)
from aforesaid.dialects.tombstones import MARK
from aforesaid.model.messages import Message


def redact(
    conversation_id: Annotated[str, typer.Argument(metavar="ID")],
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE")],
    url: UrlOption = None,
    owner: OwnerOption = None,
    mark: Annotated[str, typer.Option(help="The replacement text.")] = MARK,
    scrub: Annotated[
        bool, typer.Option("--scrub", help="Also scrub the database server's files now; rewrites them.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the content of a message and keep its place in the conversation."""
    confirm(f"Permanently redact message {readable(message_id)!r}?", yes=yes)

    async def work() -> Message:
        async with memory_at(url) as memory:
            _, manager, record = await find_conversation(memory, owner, conversation_id)
            return await manager.redact(record.id, message_id, mark=mark, scrub=scrub)

    message = run(work)
    if as_json:
        print_json(message.to_dict())
    else:
        console().print(f"{readable(message_id)} redacted", markup=False, soft_wrap=True)
