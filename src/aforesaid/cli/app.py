"""The Typer application with all commands."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer

from aforesaid.cli.analytics import analytics
from aforesaid.cli.audit import audit
from aforesaid.cli.backups import backup
from aforesaid.cli.branches import branches, compare, fork, links, merge
from aforesaid.cli.chat import chat
from aforesaid.cli.contacts import clients
from aforesaid.cli.conversations import context, conversations, show, stats
from aforesaid.cli.demo import demo, loadgen
from aforesaid.cli.doctor import config, doctor
from aforesaid.cli.keys import keys
from aforesaid.cli.mcp import mcp
from aforesaid.cli.migrate import migrate
from aforesaid.cli.notes import notes
from aforesaid.cli.notifications import notifications, webhooks
from aforesaid.cli.participants import participants
from aforesaid.cli.retention import archive, archives, erase, purge, redact, restore, retention
from aforesaid.cli.search import reindex, search
from aforesaid.cli.serve import serve
from aforesaid.cli.topics import topics
from aforesaid.cli.transfer import copy, export, import_

app = typer.Typer(
    name="aforesaid",
    help="Conversation memory for assistants.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"aforesaid {version('aforesaid')}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Conversation memory for assistants."""


# The commands by task.
PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Start": (demo, chat, serve, mcp),
    "Read": (conversations, show, search, context, stats, analytics),
    "Branch": (fork, branches, compare, merge, links),
    "Keep and remove": (retention, purge, archive, archives, restore, redact, erase),
    "Move": (copy, export, import_),
    "Operate": (doctor, config, migrate, reindex, loadgen),
}

for panel, commands in PANELS.items():
    for command in commands:
        app.command(command.__name__.rstrip("_"), rich_help_panel=panel)(command)
app.add_typer(notes, rich_help_panel="Read")
app.add_typer(clients, rich_help_panel="Read")
app.add_typer(participants, rich_help_panel="Read")
app.add_typer(notifications, rich_help_panel="Read")
app.add_typer(webhooks, rich_help_panel="Operate")
app.add_typer(topics, rich_help_panel="Read")
app.add_typer(backup, rich_help_panel="Move")
app.add_typer(keys, rich_help_panel="Operate")
app.add_typer(audit, rich_help_panel="Operate")
