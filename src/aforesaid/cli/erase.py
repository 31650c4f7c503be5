"""`aforesaid erase`: permanently erase an owner's data or one conversation."""

from typing import Annotated

import typer
from rich.markup import escape

from aforesaid.cli.archive import FolderOption
from aforesaid.cli.confirm import YesOption, confirm
from aforesaid.cli.render import console, readable
from aforesaid.cli.runtime import JsonOption, UrlOption, memory_at, print_json, run
from aforesaid.retention.receipts import Receipt

RequiredOwner = Annotated[str, typer.Option("--owner", "-o", help="The owner of the data.")]


def erase(
    owner: RequiredOwner,
    conversation_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="One conversation. Default: everything.")
    ] = None,
    url: UrlOption = None,
    folder: FolderOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Permanently erase an owner's data or one conversation, with images, archives, spools and copies."""
    what = f"conversation {conversation_id}" if conversation_id else "everything"
    confirm(f"Permanently erase {what} of {readable(owner)!r}?", yes=yes)

    async def work() -> Receipt:
        async with memory_at(url, archives=folder, spools=True) as memory:
            return await memory.of(owner).erase(conversation_id)

    receipt = run(work)
    if as_json:
        print_json(receipt)
        return
    out = console()
    out.print("Erased:" if receipt.erased else "Erased: nothing found", soft_wrap=True)
    kinds = {kind.replace("_", " "): f"{count:,}" for kind, count in receipt.erased.items()}
    name, number = (max(map(len, texts), default=0) for texts in (kinds, kinds.values()))
    for kind, count in kinds.items():
        out.print(f"  {kind:<{name}}  {count:>{number}}", soft_wrap=True, highlight=False)
    out.print(f"[dim]receipt {receipt.digest}[/]", soft_wrap=True)
    for remains in receipt.remains:
        out.print(f"[yellow]! {escape(remains)}[/]", soft_wrap=True)
