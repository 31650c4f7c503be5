"""A command without the rest of the command line around it. Above: `main`.

A server runs for long, and what its process loads it keeps. To read a handful of options, the full command
line loads every command and a library for validation: some twenty megabytes. So the options of a command that
runs for long are read here, as the command declares them. Whatever is not plain sailing (help, a mistake) is
left to the full command line, which has the words for it.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, get_args, get_type_hints

import typer

Command = Callable[..., None]
STOPPED = 130
"""The exit code of a command that somebody stopped with Ctrl-C, as shells have it."""


def run_lean(command: Command, arguments: Sequence[str]) -> bool:
    """Run the command by these arguments; whether they could be read. Ends the process as a command does."""
    given = parsed(command, arguments)
    if given is None:
        return False
    try:
        command(**given)
    except typer.Exit as ending:
        sys.exit(ending.exit_code)
    except KeyboardInterrupt:
        sys.exit(STOPPED)
    return True


def parsed(command: Command, arguments: Sequence[str]) -> dict[str, Any] | None:
    """The values of the command's options; None where the arguments are more than that, or wrong."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    for name, declared in get_type_hints(command, include_extras=True).items():
        if name != "return":
            kind, option = get_args(declared)
            # In an annotation an option has no default, so its first name stands in that place.
            parser.add_argument(option.default, *option.param_decls, dest=name, type=get_args(kind)[0])
    try:
        given, others = parser.parse_known_args(arguments)
    except _Unclear:
        return None
    return None if others else vars(given)


class _Unclear(Exception):
    """The arguments are not what was declared."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Unclear(message)
