"""Stores with files that a test can look into, and what to look for in them."""

import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict

import aforesaid
from aforesaid.errors import DocumentConflict
from aforesaid.layers.resilient import Resilience
from aforesaid.memory.manager import ConversationManager
from aforesaid.stores.blobs import FolderBlobs
from tests.report import MATRIX
from tests.servers.postgres import Databases
from tests.servers.redis import client, running
from tests.servers.remote import open_at

STORES = ("memory", "file", "sqlite", "redis", "postgres")
EMBEDDED = STORES[1:] if MATRIX else ("file", "sqlite")
"""Where every step of an erasure is interrupted: scanning the files of a server takes seconds."""
ONE = STORES[1:] if MATRIX else ("sqlite",)
"""Where a rule is tested that does not depend on the store."""

END = "xyzzyq"
"""How every mark ends: an index may keep the rest of a word with the word before it."""
MARKS = tuple(
    f"{what}{END}"
    for what in (
        "content",
        "subject",
        "tag",
        "client",
        "note",
        "arguments",
        "result",
        "blob",
        "session",
        "remark",
    )
)
"""A text for each place that a text can be in."""
CONTENT, SUBJECT, TAG, CLIENT, NOTE, ARGUMENTS, RESULT, BLOB, SESSION, REMARK = MARKS


class StoreFiles(Struct, kw_only=True):
    """A store, by its URL; where its files are; and what makes the server write them."""

    url: str
    files: Callable[[], list[Path]]
    settle: Callable[[], None] = lambda: None

    def found(self) -> dict[str, list[str]]:
        """Which marks are in which files."""
        self.settle()
        residue: dict[str, list[str]] = {}
        for file in self.files():
            with contextlib.suppress(FileNotFoundError):
                content = file.read_bytes()
                found = [mark for mark in MARKS if mark.encode() in content]
                if not found and END.encode() in content:
                    found = [END]
                for mark in found:
                    residue.setdefault(mark, []).append(file.name)
        return residue


def _files_under(*folders: Path, without: tuple[str, ...] = ()) -> Callable[[], list[Path]]:
    return lambda: [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not any(part in without for part in path.parts)
    ]


@contextlib.contextmanager
def store_files(store: str, folder: Path, request: Any) -> Iterator[StoreFiles]:
    """The store, with nothing in it yet."""
    home = folder / "store"
    home.mkdir(exist_ok=True)
    match store:
        case "memory":
            yield StoreFiles(url="memory://", files=_files_under(folder))
        case "file":
            yield StoreFiles(url=f"file://{home}/conversations.json", files=_files_under(folder))
        case "sqlite":
            yield StoreFiles(url=f"sqlite:///{home}/memory.db", files=_files_under(folder))
        case "redis":
            with running("--save", "3600 1", "--auto-aof-rewrite-percentage", "0", folder=home) as port:

                def settle() -> None:
                    with client(port) as probe:
                        probe.config_set("appendfsync", "always")

                yield StoreFiles(url=f"redis://127.0.0.1:{port}/0", files=_files_under(folder), settle=settle)
        case "postgres":
            databases: Databases = request.getfixturevalue("databases")
            url = databases.furnished()
            data, own = _data_folders(databases.admin_url, url)

            def checkpoint() -> None:
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute("ANALYZE")  # as the server does by itself now and then
                databases.run("CHECKPOINT")

            yield StoreFiles(
                url=url,
                # The write-ahead log is the server's, and documented as such; other databases are not ours.
                files=lambda: [
                    *_files_under(data, without=("pg_wal", "base"))(),
                    *_files_under(own, folder)(),
                ],
                settle=checkpoint,
            )


def _data_folders(admin_url: str, url: str) -> tuple[Path, Path]:
    """Where the server keeps its data, and where those of this database."""
    name = conninfo_to_dict(url)["dbname"]
    with psycopg.connect(admin_url) as connection:
        query = "SELECT current_setting('data_directory'), oid FROM pg_database WHERE datname = %s"
        row = connection.execute(query, (name,)).fetchone()
    assert row is not None
    return Path(row[0]), Path(row[0]) / "base" / str(row[1])


@contextlib.asynccontextmanager
async def opened(files: StoreFiles, folder: Path, **options: Any) -> AsyncIterator[aforesaid.Memory]:
    """The store with all layers that it gets by itself. Encrypted, pictures stay in the log."""
    if "encryption" not in options:
        options |= {"images": "blobs", "blobs": FolderBlobs(folder / "blobs")}
    options.setdefault("embedder", None)  # vectors come when they come, and receipts count them
    spools = "127.0.0.1" in files.url
    async with open_at(
        files.url,
        sweep_every=None,
        archives=folder / "archives",
        resilience=Resilience(folder=folder / "spool") if spools else "off",
        **options,
    ) as memory:
        yield memory


async def live(manager: ConversationManager, *, session: str = SESSION) -> str:
    """A conversation with every mark in it, in the place that it is named after."""
    record = await manager.get_or_create_conversation(session, channel="text")
    await manager.update_metadata(record.id, subject=SUBJECT, tags=[TAG], notes=REMARK)
    with contextlib.suppress(DocumentConflict):  # several conversations have one client
        await manager.clients.add("A client", client_id="0193b0f0-0000-7000-8000-000000000001")
    await manager.associate_client(record.id, "0193b0f0-0000-7000-8000-000000000001", CLIENT)
    async with manager.turn(record.id) as turn:
        turn.user(f"{CONTENT} " * 50, message_id="first", tags=[TAG])
        turn.assistant(
            [
                {"type": "text", "text": CONTENT},
                {"type": "tool_use", "id": "call-1", "name": "look", "input": {"where": ARGUMENTS}},
            ]
        )
        turn.user([{"type": "tool_result", "tool_use_id": "call-1", "content": RESULT}])
        turn.user(
            [
                {"type": "text", "text": "a picture"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture()}},
            ]
        )
        turn.assistant(CONTENT * 400)
    await manager.store.put_document("notes", NOTE, NOTE.encode())
    await manager.store.put_document("summaries", "1", NOTE.encode(), conversation_id=record.id)
    assert await manager.search_history(CONTENT) != []  # whatever index there is has all of it now
    return record.id


def picture() -> str:
    return base64.b64encode(b"\x89PNG\r\n" + BLOB.encode()).decode()
