"""Confirmation before data is permanently removed."""

from typing import Annotated

import typer

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal and abort unless the user agrees; --yes skips the question."""
    if not yes:
        typer.confirm(question, abort=True, err=True)
