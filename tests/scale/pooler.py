"""PgBouncer in transaction mode, on a free port, in front of a PostgreSQL database."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.servers import programs
from tests.servers.ports import free_port
from tests.servers.waiting import LONGEST, until

CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = plain
auth_file = {users}
user = nobody
pool_mode = transaction
default_pool_size = 8
max_prepared_statements = 200
"""


@contextmanager
def pooler(folder: Path, url: str) -> Iterator[str]:
    """The URL of the database by way of the pooler."""
    settings, port = conninfo_to_dict(url), free_port()
    users = folder / "users"
    users.write_text(f'"{settings["user"]}" "{settings["password"]}"\n')
    users.chmod(0o644)
    file = folder / "pgbouncer.ini"
    file.write_text(CONFIGURATION.format(server=settings["port"], port=port, users=users))
    with (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen([programs.pgbouncer(), str(file)], stdout=log, stderr=log)
    through = url.replace(f":{settings['port']}/", f":{port}/")
    try:
        until(lambda: _answers(through), "pgbouncer does not answer")
        yield through
    finally:
        process.terminate()
        process.wait(LONGEST)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True
