"""Parse the options of one command without loading the other commands.

The full command line imports every command and costs a server process about 20 MB for its lifetime. This
module reads the options that the command declares with argparse. The full command line still handles --help
and invalid arguments.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, get_args, get_type_hints

import typer

Command = Callable[..., None]
INTERRUPTED = 130
"""Exit code after Ctrl-C, by shell convention."""


def run_lean(command: Command, arguments: Sequence[str]) -> bool:
    """Run the command with these arguments. Return False if they need the full command line."""
    options = parse_options(command, arguments)
    if options is None:
        return False
    try:
        command(**options)
    except typer.Exit as error:
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    return True


def parse_options(command: Command, arguments: Sequence[str]) -> dict[str, Any] | None:
    """Return the values of the command's options, or None if the arguments are unknown or invalid."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    for name, annotation in get_type_hints(command, include_extras=True).items():
        if name != "return":
            kind, option = get_args(annotation)
            # typer.Option stores its first positional argument, here the option's name, as the default.
            parser.add_argument(option.default, *option.param_decls, dest=name, type=get_args(kind)[0])
    try:
        options, unknown = parser.parse_known_args(arguments)
    except _ParseError:
        return None
    return None if unknown else vars(options)


class _ParseError(Exception):
    """The arguments do not match the declared options."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _ParseError(message)
