"""The `aforesaid` command line. Each command parses its options, calls the manager and prints the result.

app      the Typer application with all commands
runtime  shared options, opening the store, errors and exit codes
lists    lists and tables that fit a terminal
wording  errors for operators

The other modules have the commands, several in one where they share a noun.
"""

import errno
import io
import os
import sys


def main() -> None:
    """Run the `aforesaid` script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ASCII terminal gets question marks for arrows
    try:
        _run(sys.argv[1:])
    except ImportError as error:
        if error.name not in ("typer", "rich"):
            raise
        print("aforesaid: the command line needs pip install 'aforesaid[cli]'", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        # Python flushes stdout at exit; redirecting it prevents a second failure there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"aforesaid: cannot write the output: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.exit(4)


_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def _run(arguments: list[str]) -> None:
    if arguments[:1] == ["serve"]:
        from aforesaid.cli.serve import run_lean, serve

        if run_lean(serve, arguments[1:]):
            return
    from aforesaid.cli.app import app

    app()


__all__ = ["main"]
