"""The Typer application with all commands."""

import typer

from aforesaid.cli.audit import audit
from aforesaid.cli.chat import chat
from aforesaid.cli.contacts import clients
from aforesaid.cli.conversations import context, conversations, show, stats
from aforesaid.cli.demo import demo, loadgen
from aforesaid.cli.doctor import config, doctor
from aforesaid.cli.keys import keys
from aforesaid.cli.mcp import mcp
from aforesaid.cli.migrate import migrate, postgres
from aforesaid.cli.notes import notes
from aforesaid.cli.retention import archive, archives, erase, purge, redact, restore, retention
from aforesaid.cli.search import reindex, search
from aforesaid.cli.serve import serve
from aforesaid.cli.transfer import copy, export, import_

app = typer.Typer(
    name="aforesaid",
    help="Conversation memory for assistants.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

COMMANDS = (
    demo,
    serve,
    mcp,
    chat,
    conversations,
    show,
    search,
    reindex,
    context,
    stats,
    purge,
    retention,
    archive,
    restore,
    archives,
    redact,
    erase,
    config,
    doctor,
    copy,
    export,
    migrate,
    loadgen,
)

for command in COMMANDS:
    app.command()(command)
app.command("import")(import_)
app.add_typer(clients)
app.add_typer(postgres)
app.add_typer(keys)
app.add_typer(audit)
app.add_typer(notes)
