"""The command line: `recollect`. One file per command; thin: parse, call the manager, render.

app       the commands, put together
running   what they share: options, opening the store, errors and exit codes
rendering how values look in a terminal
"""

import io
import sys


def main() -> None:
    """The entry point of the `recollect` script."""
    try:
        from recollect.cli.app import app
    except ImportError as error:
        if error.name not in ("typer", "rich"):
            raise
        print("recollect: the command line needs pip install 'recollect[cli]'", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no arrows gets question marks
    app()


__all__ = ["main"]
