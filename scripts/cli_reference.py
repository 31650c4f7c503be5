"""Write docs/reference/cli.md from the commands themselves: `python scripts/cli_reference.py`."""

from pathlib import Path
from typing import Any

import typer.main

from aforesaid.cli.app import app
from aforesaid.cli.runtime import EXIT_CODES

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"

HEAD = """\
# The command line

Generated from the commands by `scripts/cli_reference.py`. `aforesaid COMMAND --help` prints the same text.

Without `--url`, commands use the store of `AFORESAID_URL`, by default `sqlite:///aforesaid.db`.
"""


def page() -> str:
    """Return the whole page."""
    group: Any = typer.main.get_command(app)
    parts = [HEAD, "| exit code | meaning |", "| --- | --- |", "| 0 | success |"]
    parts += [f"| {code} | `{kind.__name__}`: {_first_line(kind)} |" for kind, code in EXIT_CODES]
    for name, command in sorted(group.commands.items()):
        parts += _section(name, command)
    return "\n".join(parts) + "\n"


def _section(name: str, command: Any, prefix: str = "aforesaid") -> list[str]:
    if hasattr(command, "commands"):
        return [
            line
            for child, one in sorted(command.commands.items())
            for line in _section(child, one, prefix=f"{prefix} {name}")
        ]
    arguments = [p.metavar or p.name.upper() for p in command.params if p.param_type_name == "argument"]
    lines = ["", f"## `{' '.join([prefix, name, *arguments])}`", "", _first_line(command.callback)]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    if options:
        lines += ["", "| option | |", "| --- | --- |"]
        lines += [f"| `{', '.join(option.opts)}` | {option.help or ''} |" for option in options]
    return lines


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
