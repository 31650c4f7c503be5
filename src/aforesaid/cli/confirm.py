"""Asking before something goes for good."""

from typing import Annotated

import typer

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, *, yes: bool) -> None:
    """Go on only when somebody says so; without a terminal to ask, only with `--yes`."""
    if not yes:
        typer.confirm(question, abort=True, err=True)
