"""HTTP clients of servers, and a rolling restart of these."""

import asyncio
import time
from collections import Counter
from signal import SIGTERM

import httpx

from tests.servers.running import Process
from tests.servers.waiting import LONGEST

CLIENTS = 8


def client(address: str, key: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=address, headers=headers, timeout=60, verify=False)


class Load:
    """Clients that store turns and read contexts until they are stopped."""

    def __init__(self, address: str, key: str) -> None:
        self._address, self._key = address, key
        self._stopping, self._progress = asyncio.Event(), asyncio.Event()
        self.statuses: Counter[int | str] = Counter()
        self.problems: Counter[str] = Counter()
        self.stored: list[str] = []
        self.pause = 0.0
        """Seconds of the slowest stored turn."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._talk(number))

    def stop(self) -> None:
        self._stopping.set()

    async def go_on_for(self, turns: int) -> None:
        """Wait until so many more turns are stored."""
        wanted = len(self.stored) + turns
        async with asyncio.timeout(LONGEST):
            while len(self.stored) < wanted:
                self._progress.clear()
                await self._progress.wait()

    def said_by(self, number: int) -> list[str]:
        """What one client stored."""
        return [text for text in self.stored if text.startswith(f"client {number} ")]

    async def _talk(self, number: int) -> None:
        async with client(self._address, self._key) as http:
            said = 0
            while not self._stopping.is_set():
                said += 1
                text = f"client {number} says {said}"
                turn = {"session_id": f"load-{number}", "messages": [{"role": "user", "content": text}]}
                began = time.monotonic()
                answer = await self._send(http, "POST", "/v1/sessions/turns", json=turn)
                if answer is not None and answer.status_code == 201:
                    self.stored.append(text)
                    self.pause = max(self.pause, time.monotonic() - began)
                    self._progress.set()
                await self._send(http, "GET", "/v1/conversations")

    async def _send(
        self, http: httpx.AsyncClient, method: str, path: str, **body: object
    ) -> httpx.Response | None:
        try:
            answer = await http.request(method, path, **body)  # type: ignore[arg-type]
        except httpx.TransportError as error:
            self.statuses[type(error).__name__] += 1
            return None
        self.statuses[answer.status_code] += 1
        if answer.status_code >= 400:
            self.problems[f"{answer.status_code} {answer.text[:300]}"] += 1
        return answer


async def rolled(servers: list[Process]) -> None:
    """Restart one server after the other, as a deployment does."""
    for each in servers:
        each.send(SIGTERM)
        assert await asyncio.to_thread(each.ended) == 0
        await asyncio.to_thread(each.start)
        # The proxy needs a moment to send requests to it again, before the next one goes.
        await asyncio.sleep(3)
