"""Start the server as users do: in its own process, on a free port, over a database of its own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".venv" / "bin"
"""The project's environment. The browser lives in another one, without the server."""

# A busy machine must not reduce the windows of contexts.
PLAIN = {"NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "CONVERSATION_CONTEXT_DEADLINE": "0"}

_ADDRESS = re.compile(r"on (http://[\d.:]+)")


_REDIS = """
import sys
from tests.servers.redis import running
with running() as port:
    print(port, flush=True)
    sys.stdin.read()
"""


class Served:
    """A server process over one database."""

    def __init__(
        self, folder: Path, *, command: Sequence[str] = (), store: str | None = None, **settings: str
    ) -> None:
        self.folder = folder
        self.store = store or f"sqlite:///{folder}/memory.db"
        self._command = list(command) or [str(BIN / "aforesaid"), "serve"]
        self._settings = settings
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> "Served":
        """Start, or start again on the same port."""
        arguments = ["--url", self.store, "--port", str(self._port), "--log-level", "error"]
        environment = {**os.environ, **PLAIN, **self._settings}
        with (self.folder / "stderr.log").open("a") as errors:
            self._process = subprocess.Popen(
                [*self._command, *arguments],
                cwd=self.folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := _ADDRESS.search(line):
                self.address = found[1]
                self._port = int(self.address.rpartition(":")[2])
                return self
        raise AssertionError(f"the server did not start:\n{(self.folder / 'stderr.log').read_text()}")

    def kill(self) -> None:
        """End without any farewell, as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.communicate(timeout=60)
            self._process = None

    def key(self, *arguments: str) -> str:
        """Create an API key with the command line; return its text."""
        command = [str(BIN / "aforesaid"), "keys", "create", "--url", self.store, *arguments]
        made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        found = re.search(r"ak_\w+_[\w-]+", made.stdout + made.stderr)
        assert found, made
        return found[0]

    def api(self, owner: str, **headers: str) -> httpx.Client:
        """Return a client of the HTTP interface."""
        given = {"Aforesaid-Owner": owner, **headers}
        return httpx.Client(base_url=self.address, headers=given, timeout=60)


def turn(api: httpx.Client, session: str, *messages: dict[str, Any], **more: Any) -> str:
    """Store a turn; return the conversation's id."""
    body = {"session_id": session, "messages": list(messages), "channel": "text", **more}
    response = api.post("/v1/sessions/turns", json=body)
    assert response.is_success, response.text
    conversation: str = response.json()["conversation"]["id"]
    return conversation


def say(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


@contextmanager
def shared_store() -> Iterator[str]:
    """Run a Redis-compatible server, which several server processes can share; yield its URL."""
    command = [str(BIN / "python"), "-c", _REDIS]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield f"redis://127.0.0.1:{int(process.stdout.readline())}/0"
        process.communicate(timeout=60)


def store_call_centre(served: Served) -> str:
    """Write four weeks of conversations into a server's store; return their owner."""
    script = Path(__file__).with_name("call_centre.py")
    subprocess.run([str(BIN / "python"), str(script), served.store], check=True, timeout=300)
    return "practice"


def slow_assistant(folder: Path, **settings: str) -> Served:
    """Return a server whose assistant answers word by word until it is allowed to end."""
    script = Path(__file__).with_name("slow_server.py")
    path = f"{ROOT}:{ROOT / 'src'}"
    return Served(folder, command=[str(BIN / "python"), str(script)], PYTHONPATH=path, **settings)


if sys.platform == "win32":
    raise RuntimeError("the console is tested on POSIX systems")
