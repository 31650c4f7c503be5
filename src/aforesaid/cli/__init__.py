"""The command line: `aforesaid`. One file per command; thin: parse, call the manager, render.

app       the commands, put together
running   what they share: options, opening the store, errors and exit codes
rendering how values look in a terminal
lean      a command alone, for one that runs for long
"""

import errno
import io
import os
import sys


def main() -> None:
    """The entry point of the `aforesaid` script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no arrows gets question marks
    try:
        _run(sys.argv[1:])
    except ImportError as error:
        if error.name not in ("typer", "rich"):
            raise
        print("aforesaid: the command line needs pip install 'aforesaid[cli]'", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        # What is left in the stream would be tried once more at the end, and fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"aforesaid: the output cannot be written: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.exit(4)


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def _run(arguments: list[str]) -> None:
    if arguments[:1] == ["serve"]:
        from aforesaid.cli.lean import run_lean
        from aforesaid.cli.serve import serve

        if run_lean(serve, arguments[1:]):
            return
    from aforesaid.cli.app import app

    app()


__all__ = ["main"]
