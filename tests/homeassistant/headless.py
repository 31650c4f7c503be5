"""A real core in a process of its own, driven through its HTTP and WebSocket API."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import connect

ROOT = Path(__file__).parents[2]
CONFIGURATION = """
homeassistant:
  name: Home
http:
  server_host: 127.0.0.1
  server_port: {port}
frontend:
config:
conversation:
logger:
  default: info
"""


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


class Core:
    """A core with a configuration folder. It can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.tokens: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(exist_ok=True)
        (folder / "configuration.yaml").write_text(CONFIGURATION.format(port=self.port))
        (folder / "custom_components").symlink_to(ROOT / "custom_components")

    def start(self, *, seconds: float = 300) -> None:
        """Start the core and wait until it answers."""
        command = [sys.executable, "-m", "homeassistant", "--config", str(self.folder), "--skip-pip"]
        with (self.folder / "core.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.log()
            try:
                if self._is_ready():
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.25)
        raise AssertionError(f"the core did not start: {self.log()[-3000:]}")

    def _is_ready(self) -> bool:
        if not self.tokens:  # before the first user exists, only the onboarding answers
            return self._client().get("/api/onboarding").status_code == 200
        answer = self._client().get("/api/config")
        return answer.status_code == 200 and answer.json()["state"] == "RUNNING"

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(180)
            self._process = None

    def log(self) -> str:
        return (self.folder / "core.log").read_text(errors="replace")

    # The API

    def _client(self) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.tokens['access_token']}"} if self.tokens else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self._client().post(path, json=body)
        assert answer.status_code in (200, 201), answer.text
        result: dict[str, Any] = answer.json()
        return result

    def onboard(self) -> None:
        """Create the first user, as the onboarding page does, and log in."""
        client_id = f"{self.url}/"
        user = {"name": "Erin", "username": "erin", "password": "a long password", "language": "en"}
        code = self.post("/api/onboarding/users", client_id=client_id, **user)["auth_code"]
        grant = {"grant_type": "authorization_code", "code": code, "client_id": client_id}
        answer = httpx.post(f"{self.url}/auth/token", data=grant, timeout=60)
        assert answer.status_code == 200, answer.text
        self.tokens = answer.json()
        self.post("/api/onboarding/core_config")
        self.post("/api/onboarding/analytics")
        self.post(
            "/api/onboarding/integration", client_id=client_id, redirect_uri=f"{self.url}/?auth_callback=1"
        )
        # Otherwise the core returns to its default port after five minutes, and asks in the meantime.
        self.command("http/config/promote")

    def flow(self, handler: str | list[str], *steps: dict[str, Any]) -> dict[str, Any]:
        """Walk through a configuration flow, or the flow of a subentry."""
        kind = "flow" if isinstance(handler, str) else "subentries/flow"
        result = self.post(f"/api/config/config_entries/{kind}", handler=handler)
        for step in steps:
            assert not result.get("errors"), result
            result = self.post(f"/api/config/config_entries/{kind}/{result['flow_id']}", **step)
        assert result["type"] == "create_entry", result
        return result

    def remove(self, domain: str) -> None:
        """Delete the entries of an integration, which the core may still be adding."""
        deadline = time.monotonic() + 60
        while not (entries := self.command("config_entries/get", domain=domain)):
            assert time.monotonic() < deadline, f"there is no entry of {domain}"
            time.sleep(0.1)
        for entry in entries:
            answer = self._client().delete(f"/api/config/config_entries/entry/{entry['entry_id']}")
            assert answer.status_code == 200, answer.text

    def wait_for(self, *entity_ids: str, seconds: float = 180) -> None:
        """Wait until the entities are there: the core reloads an entry after its flow has ended."""
        deadline = time.monotonic() + seconds
        for entity_id in entity_ids:
            while self._client().get(f"/api/states/{entity_id}").status_code != 200:
                assert time.monotonic() < deadline, f"there is no {entity_id}"
                time.sleep(0.1)

    def say(self, text: str, agent_id: str, conversation_id: str | None = None) -> dict[str, Any]:
        body = {"text": text, "agent_id": agent_id, "language": "en"}
        if conversation_id is not None:
            body["conversation_id"] = conversation_id
        return self.post("/api/conversation/process", **body)

    def command(self, kind: str, **fields: Any) -> Any:
        """Send one command over the WebSocket."""
        with connect(f"ws://127.0.0.1:{self.port}/api/websocket", max_size=None) as socket_:
            socket_.recv()
            socket_.send(json.dumps({"type": "auth", "access_token": self.tokens["access_token"]}))
            assert json.loads(socket_.recv())["type"] == "auth_ok"
            socket_.send(json.dumps({"id": 1, "type": kind, **fields}))
            while (answer := json.loads(socket_.recv()))["type"] != "result":
                pass
            assert answer["success"], answer
            return answer["result"]

    def action(self, service: str, **data: Any) -> Any:
        fields = {"domain": "aforesaid", "service": service, "service_data": data}
        return self.command("call_service", **fields, return_response=True)["response"]


def spoken(answer: dict[str, Any]) -> str:
    """Return the words of an answer."""
    return str(answer["response"]["speech"]["plain"]["speech"]).strip()
