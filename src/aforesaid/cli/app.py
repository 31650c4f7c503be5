"""The Typer application with all commands."""

import typer

from aforesaid.cli.archive import archive, archives, restore
from aforesaid.cli.audit import audit
from aforesaid.cli.chat import chat
from aforesaid.cli.clients import clients
from aforesaid.cli.config import config
from aforesaid.cli.context import context
from aforesaid.cli.conversations import conversations
from aforesaid.cli.copy import copy
from aforesaid.cli.demo import demo
from aforesaid.cli.doctor import doctor
from aforesaid.cli.erase import erase
from aforesaid.cli.export import export
from aforesaid.cli.import_ import import_
from aforesaid.cli.keys import keys
from aforesaid.cli.loadgen import loadgen
from aforesaid.cli.migrate import migrate
from aforesaid.cli.notes import notes
from aforesaid.cli.postgres import postgres
from aforesaid.cli.purge import purge
from aforesaid.cli.redact import redact
from aforesaid.cli.reindex import reindex
from aforesaid.cli.retention import retention
from aforesaid.cli.search import search
from aforesaid.cli.serve import serve
from aforesaid.cli.show import show
from aforesaid.cli.stats import stats

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
