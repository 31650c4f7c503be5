"""A real Aforesaid server in a process of its own, with keys."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from aforesaid.server.auth.keys import ApiKeys
from aforesaid.server.process import bind_socket, open_memory, serve_here
from aforesaid.settings import Settings

ROOT = Path(__file__).parents[2]


class ServerProcess:
    """A server that can be stopped and started again on the same port, with the same data."""

    def __init__(self, folder: Path) -> None:
        self._url = f"sqlite:///{folder / 'server.db'}"
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self.keys: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        command = [sys.executable, "-m", "tests.homeassistant.server", self._url, str(self._port)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        self._port = told["port"]
        self.keys = self.keys or told["keys"]
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


async def _serve(url: str, port: int) -> None:
    settings = Settings()
    listening = bind_socket("127.0.0.1", port)
    keys = {}
    async with open_memory(url, settings) as memory:
        for name, owners, scope in (("admin", "*", "admin"), ("read", "*", "read"), ("one", "erin", "admin")):
            keys[name], _ = await ApiKeys(memory.backend).create([owners], scope=scope)  # type: ignore[arg-type]

    def say() -> None:
        sys.stdout.write(json.dumps({"port": listening.getsockname()[1], "keys": keys}) + "\n")
        sys.stdout.flush()

    await serve_here(url, settings, listening, loopback=True, started=say)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
