"""A PostgREST-compatible server over a database of the tests: Supabase's own, from npm.

`scripts.adapter_environments` installs it into the folder that AFORESAID_SUPABASE_LITE names.
"""

import base64
import hashlib
import hmac
import json
import os
import secrets
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.servers.ports import free_port

SECRET = secrets.token_hex(32)
GATEWAY = "authenticator"
START_SECONDS = 60

CONFIG = """
[api]
port = {port}
schemas = ["api", "public"]

[db]
driver = "postgres"
url = "{database}"

[auth]
enabled = true
enable_signup = false
jwt_secret = "{secret}"
"""

# As on Supabase: a gateway logs in and takes the role that a token names. The view in `public` is for queries
# that name no schema.
ROLES = """
CREATE ROLE authenticator LOGIN NOINHERIT PASSWORD '{password}';
CREATE ROLE anon NOLOGIN;
CREATE ROLE authenticated NOLOGIN;
CREATE ROLE service_role NOLOGIN;
GRANT anon, authenticated, service_role TO authenticator;
GRANT CREATE ON SCHEMA public TO authenticator;
"""
ADMISSION = """
SELECT aforesaid.admit('authenticated');
CREATE VIEW public.conversations WITH (security_invoker = true) AS SELECT * FROM api.conversations;
GRANT SELECT, INSERT, UPDATE, DELETE ON public.conversations TO authenticated;
"""


def token(subject: str | None, *, role: str = "authenticated", seconds: int = 3600) -> str:
    """Return a signed token for a user."""
    claims: dict[str, object] = {"role": role, "exp": int(time.time()) + seconds}
    if subject is not None:
        claims["sub"] = subject
    header: dict[str, object] = {"alg": "HS256", "typ": "JWT"}
    signed = b".".join(map(_encoded, (header, claims)))
    signature = hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()
    return b".".join((signed, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode()


def _encoded(part: dict[str, object]) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")


def admit_gateway(url: str) -> str:
    """Create the roles of Supabase in a database with our schema; return the URL of the gateway's login."""
    password = secrets.token_hex(16)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(ROLES.format(password=password).encode())
        connection.execute(ADMISSION.encode())
        connection.execute(f"GRANT CREATE ON DATABASE {connection.info.dbname} TO authenticator".encode())
        info = connection.info
        return f"postgresql://{GATEWAY}:{password}@{info.host}:{info.port}/{info.dbname}"


@contextmanager
def running(database: str, folder: Path) -> Iterator[str]:
    """Serve a database; yield the URL of the server."""
    program = Path(os.environ["AFORESAID_SUPABASE_LITE"]) / "node_modules" / ".bin" / "lite"
    port = free_port()
    place = folder / "supabase"
    place.mkdir()
    place.joinpath("config.toml").write_text(CONFIG.format(port=port, database=database, secret=SECRET))
    log = folder / "lite.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["node", str(program), "start", "--no-admin"],
            cwd=folder,
            stdout=output,
            stderr=output,
            env={**os.environ, "DO_NOT_TRACK": "1"},
        )
    try:
        _wait(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait for the first good answer: the server refuses its first request while it sets roles up."""
    deadline = time.monotonic() + START_SECONDS
    while not _answers(url):
        assert process.poll() is None, f"the server ended:\n{log.read_text()}"
        assert time.monotonic() < deadline, f"the server does not answer:\n{log.read_text()}"
        time.sleep(0.1)


def _answers(url: str) -> bool:
    request = urllib.request.Request(
        f"{url}/rest/v1/conversations?limit=1",
        headers={"Authorization": f"Bearer {token('warm-up')}", "Accept-Profile": "api"},
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
