"""The commands, put together."""

import typer

from recollect.cli.archive import archive, archives, restore
from recollect.cli.audit import audit
from recollect.cli.chat import chat
from recollect.cli.clients import clients
from recollect.cli.config import config
from recollect.cli.context import context
from recollect.cli.conversations import conversations
from recollect.cli.copy import copy
from recollect.cli.demo import demo
from recollect.cli.doctor import doctor
from recollect.cli.erase import erase
from recollect.cli.export import export
from recollect.cli.import_ import import_
from recollect.cli.keys import keys
from recollect.cli.loadgen import loadgen
from recollect.cli.migrate import migrate
from recollect.cli.notes import notes
from recollect.cli.postgres import postgres
from recollect.cli.purge import purge
from recollect.cli.redact import redact
from recollect.cli.reindex import reindex
from recollect.cli.retention import retention
from recollect.cli.search import search
from recollect.cli.serve import serve
from recollect.cli.show import show
from recollect.cli.stats import stats

app = typer.Typer(
    name="recollect",
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
