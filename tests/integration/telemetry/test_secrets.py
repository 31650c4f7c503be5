"""No message and no owner's name gets into logs, metrics or spans: when all is well, and when
anything goes wrong."""

import asyncio
import inspect
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

import aforesaid
from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent
from aforesaid.agents.tools import Tool, ToolRegistry
from aforesaid.errors import AforesaidError, AgentRefused, AgentRejected
from aforesaid.layers.resilient import Resilience
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.server.app import ENDPOINTS
from aforesaid.telemetry import telemetry
from aforesaid.telemetry.exposition import CLASSIC, OPEN, exposition
from aforesaid.telemetry.logs import JsonLines, TextLines
from tests.builders import STORES, url_for
from tests.doubles import Scripted, calling
from tests.integration.server.running import serving
from tests.integration.telemetry.spans import Spans, traced
from tests.servers.remote import open_at

SECRET = "marzipan4711"
"""In everything that is said, named, asked and sent. Letters and digits alone: no quoting hides it."""


class Seen:
    """All that an operator gets to see of the block."""

    def __init__(self, spans: Spans) -> None:
        self.log = io.StringIO()
        self._spans = spans

    def everything(self) -> dict[str, str]:
        return {
            "log": self.log.getvalue(),
            "metrics": exposition(telemetry.series(), CLASSIC, telemetry.families()),
            "open metrics": exposition(telemetry.series(), OPEN, telemetry.families()),
            "spans": self._spans.text(),
        }

    def check(self) -> None:
        """Nothing of the secret, and yet something."""
        for place, text in self.everything().items():
            found = [line for line in text.splitlines() if SECRET in line]
            assert not found, (place, found)
            assert text, f"{place} is empty: nothing was looked at"


class _Both(logging.Handler):
    """Lines in both forms."""

    FORMS = (JsonLines(), TextLines())

    def __init__(self, stream: io.StringIO) -> None:
        super().__init__(logging.DEBUG)
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        for form in self.FORMS:
            self._stream.write(form.format(record) + "\n")


@pytest.fixture
def seen() -> Iterator[Seen]:
    """What is seen of a test, down to the last detail that is ever logged."""
    root, ours, client = map(logging.getLogger, ("", "aforesaid", "httpcore"))
    before = root.level, ours.level, client.level
    with traced() as spans:
        seen = Seen(spans)
        both = _Both(seen.log)
        root.addHandler(both)
        root.setLevel(logging.DEBUG)
        ours.setLevel(logging.DEBUG)
        # The transport of the test's own client writes twenty lines for each request.
        client.setLevel(logging.INFO)
        try:
            yield seen
        finally:
            root.removeHandler(both)
            root.setLevel(before[0])
            ours.setLevel(before[1])
            client.setLevel(before[2])


@contextmanager
def failing() -> Iterator[None]:
    """What goes wrong goes wrong as one of our errors."""
    with pytest.raises(AforesaidError):
        yield


@pytest.fixture(params=STORES)
async def memory(
    request: pytest.FixtureRequest, tmp_path: Path, seen: Seen
) -> AsyncIterator[aforesaid.Memory]:
    url = url_for(request.param, tmp_path, request)
    options: dict[str, Any] = {"archives": tmp_path / "archives", "audit": tmp_path / "audit.jsonl"}
    async with open_at(url, sweep_every=None, timed=True, embedder=None, **options) as memory:
        yield memory


# By the manager, on every store


async def test_a_life_with_everything_in_it(memory: aforesaid.Memory, seen: Seen, tmp_path: Path) -> None:
    erin = memory.of(f"erin-{SECRET}-{new_id()}")
    conversation = await erin.get_or_create_conversation(f"kitchen-{SECRET}")
    async with erin.turn(conversation.id) as turn:
        turn.user(f"my code is {SECRET}", tags=[SECRET])
        turn.assistant([{"type": "text", "text": SECRET}], agent_name=SECRET)
    await erin.update_metadata(
        conversation.id, subject=SECRET, notes=SECRET, tags=[SECRET], assigned_to=SECRET
    )
    mia = await erin.clients.add(f"Mia {SECRET}")
    await erin.associate_client(conversation.id, mia.id, mia.name)
    assert len(await erin.load_context(conversation.id, agent_name=SECRET)) == 2
    assert await erin.search_history(SECRET)
    assert await erin.search_conversations(SECRET)
    assert await erin.search_history(SECRET, tag=SECRET, explain=True)
    await erin.similar(conversation.id)
    contact = await erin.clients.add(f"Mia {SECRET}", email=f"{SECRET}@example.org", notes=SECRET)
    assert await erin.clients.get(contact.id)
    await erin.clients.remove(contact.id)
    note = await erin.remember(f"the code is {SECRET}", subject=SECRET, tags=[SECRET])
    assert await erin.recall(SECRET)
    await erin.forget(note.id)
    await erin.list(tags=[SECRET], assigned_to=SECRET)
    await erin.export(tmp_path / "export")
    await erin.archive(conversation.id)
    await erin.restore(conversation.id)
    (first, *_) = await erin.messages(conversation.id)
    assert first.message_id is not None
    await erin.redact(conversation.id, first.message_id, mark=SECRET)
    await erin.clear_history(conversation.id)
    await erin.delete_conversation(conversation.id)
    await erin.erase()
    seen.check()
    assert '"event":"client_associated"' in seen.log.getvalue()


async def test_what_goes_wrong_by_the_callers_doing(memory: aforesaid.Memory, seen: Seen) -> None:
    erin = memory.of(f"erin-{SECRET}-{new_id()}")
    conversation = await erin.get_or_create_conversation("kitchen")
    message = new_id()
    await erin.add_message(conversation.id, "user", SECRET, message_id=message)
    await erin.add_message(f"named {SECRET}", "user", SECRET)
    for wrong in (
        lambda: erin.add_message(conversation.id, "user", f"not {SECRET}", message_id=message),
        lambda: erin.add_message(conversation.id, SECRET, "x"),  # type: ignore[arg-type]
        lambda: erin.add_message(conversation.id, "user", {SECRET: object()}),
        lambda: erin.add_message(conversation.id, "user", SECRET, timestamp=SECRET),
        lambda: erin.add_message(conversation.id, "user", SECRET, expected_revision=99),
        lambda: erin.add_message(f"{SECRET}\0", "user", SECRET),
        lambda: erin.get_conversation(f"never {SECRET}"),
        lambda: erin.update_metadata(conversation.id, status=SECRET),  # type: ignore[arg-type]
        lambda: erin.update_metadata(conversation.id, clear=[SECRET]),
        lambda: erin.list(after=SECRET),
        lambda: erin.search_history(SECRET, date_from=SECRET),
        lambda: erin.restore(new_id()),
    ):
        with failing():
            await wrong()
    seen.check()
    assert '"event":"call_failed"' in seen.log.getvalue()


async def test_every_call_given_nonsense(memory: aforesaid.Memory, seen: Seen, tmp_path: Path) -> None:
    """Whatever methods there are: with the secret for every argument, and for all but an id."""
    erin = memory.of(f"erin-{SECRET}-{new_id()}")
    for name, method in inspect.getmembers(erin, inspect.iscoroutinefunction):
        if name.startswith("_") or name in ("export", "import_"):
            continue
        needed = [
            each
            for each in inspect.signature(method).parameters.values()
            if each.default is inspect.Parameter.empty and each.kind is each.POSITIONAL_OR_KEYWORD
        ]
        for first in (SECRET, new_id()):
            with suppress(Exception):
                await method(*[first, *[SECRET] * len(needed)][: len(needed)])
    for method in (erin.export, erin.import_):
        with suppress(Exception):
            await method(tmp_path / "nowhere" / SECRET)
    seen.check()


# Agents and tools


async def test_agents_and_tools_that_fail(seen: Seen) -> None:
    async def bake(**_: Any) -> str:
        raise ValueError(f"the oven says {SECRET}")

    parameters = {"type": "object", "properties": {"what": {"type": "string"}}}
    tool = Tool(name="bake", description="Bakes", parameters=parameters, run=bake)
    agent = Scripted(
        calling(("1", "bake", {"what": SECRET}), ("2", SECRET, {}), ("3", "bake", {SECRET: 1})),
        f"done: {SECRET}",
        AgentRejected(f"no: {SECRET}", status=400),
        AgentRefused(SECRET, words=SECRET),
        ValueError(SECRET),
    )
    cook = Specialist(loop=AgenticLoop(agent), tools=ToolRegistry([tool]))
    supervisor = SupervisorAgent(ConversationManager(), [cook])
    for _ in range(5):
        await supervisor.process_query(f"bake {SECRET}", f"kitchen-{SECRET}")
    seen.check()
    log = seen.log.getvalue()
    assert "tool bake failed" in log
    assert "AgentRejected (status 400)" in log


# Stores that are away


@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
async def test_a_store_that_is_away_with_a_password_in_its_url(
    scheme: str, seen: Seen, tmp_path: Path
) -> None:
    url = f"{scheme}://{SECRET}:{SECRET}@127.0.0.1:1/0?application_name={SECRET}"
    if scheme == "redis":
        url = f"redis://{SECRET}:{SECRET}@127.0.0.1:1/0"
    quick = Resilience(folder=tmp_path, attempts=1, read_deadline=1, write_deadline=1, start_unreached=True)
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        layers=aforesaid.Layers(timed=True, resilience=quick),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        erin = memory.of("erin")
        conversation = await erin.get_or_create_conversation("kitchen")
        await erin.add_message(conversation.id, "user", SECRET)
        await erin.load_context(conversation.id, pending=[Message(role="user", content=SECRET)])
        with suppress(AforesaidError):
            await erin.search_history(SECRET)
    seen.check()
    assert "breaker_open" in seen.log.getvalue()


@pytest.mark.parametrize(
    "url", [f"nosuch://{SECRET}", f"postgresql://x:{SECRET}@[/x", f"redis://x:{SECRET}@h:x/0"]
)
async def test_a_url_that_is_none(url: str, seen: Seen) -> None:
    with suppress(AforesaidError):
        async with aforesaid.open(url):
            pass
    telemetry.counter("aforesaid_turns_total").add()
    logging.getLogger("aforesaid").info("looked at")
    assert not [text for place, text in seen.everything().items() if SECRET in text]


# Over the wire


async def test_every_route_with_the_secret_everywhere(seen: Seen) -> None:
    """In the path, the query, the body, the headers, with a key and without, in order and broken."""
    async with serving(timed=True) as server:
        good = await server.key("*", scope="admin")
        erins = await server.key("erin", scope="admin")
        owner = {"Aforesaid-Owner": SECRET}
        for endpoint in ENDPOINTS:
            path = endpoint.full_path
            for parameter in endpoint.parameters:
                path = path.replace(f"{{{parameter}}}", SECRET)
            asking = f"{path}?query={SECRET}&{SECRET}=1"
            for url, headers, body in (
                # A route that takes no such parameter refuses it before it reads the body.
                (asking, good | owner, b'{"content": "marzipan4711", "query": "marzipan4711"}'),
                (path, good | owner, b'{"content": "marzipan4711", "query": "marzipan4711"}'),
                (path, good | owner, b'{"session_id": "marzipan4711", "text": "marzipan4711"}'),
                (path, good | owner, b'{"marzipan4711'),
                (path, good | owner, b"marzipan4711\xff"),
                (asking, erins | owner, b"{}"),
                (asking, {"Authorization": f"Bearer {SECRET}"}, b"{}"),
                (asking, {"Authorization": f"Bearer a.{SECRET}.c"}, b"{}"),
                (asking, {"X-Request-ID": f"{SECRET} x", "traceparent": SECRET}, b"{}"),
            ):  # fmt: skip
                # Not read to the end: some responses continue for as long as a client listens.
                sent = {"Content-Type": "application/json", **headers}
                request = server.client.build_request(endpoint.method, url, content=body, headers=sent)
                answer = await server.client.send(request, stream=True)
                await answer.aclose()
        for path in (f"/{SECRET}", f"/v1/{SECRET}/x?y={SECRET}", "/metrics", "/ready"):
            await server.client.get(path, headers=good)
    seen.check()
    assert '"event":"request"' in seen.log.getvalue()


async def test_a_whole_story_over_the_wire(seen: Seen) -> None:
    async with serving(timed=True) as server:
        key = await server.key(f"erin-{SECRET}", scope="admin")

        async def said(method: str, path: str, document: Any = None) -> Any:
            answer = await server.client.request(method, path, json=document, headers=key)
            assert answer.status_code < 300, answer.text
            return answer.json() if answer.content else None

        opened = await said("POST", "/v1/conversations", {"session_id": SECRET})
        path = f"/v1/conversations/{opened['id']}"
        turn = [{"role": "user", "content": SECRET}, {"role": "assistant", "content": SECRET}]
        await said("POST", f"{path}/turns", {"messages": turn})
        await said("PATCH", path, {"subject": SECRET, "tags": [SECRET]})
        client = await said("POST", "/v1/clients", {"name": SECRET})
        await said("PUT", f"{path}/client", {"client_id": client["id"], "client_name": SECRET})
        await said("GET", f"/v1/search?query={SECRET}")
        await said("POST", f"{path}/context", {"agent_name": SECRET})
        await said("DELETE", path)
    seen.check()
    keys = key["Authorization"].removeprefix("Bearer ")
    assert not [place for place, text in seen.everything().items() if keys in text]


async def test_an_internal_error_is_logged_by_its_code_locations(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stumble(*_: Any, **__: Any) -> Any:
        raise KeyError(SECRET)

    monkeypatch.setattr(ConversationManager, "get_or_create_conversation", stumble)
    async with serving(timed=True) as server:
        answer = await server.client.post("/v1/conversations", json={"session_id": SECRET})
        assert answer.status_code == 500
        assert SECRET not in answer.text
    seen.check()
    assert "KeyError" in seen.log.getvalue()
    assert "stumble" in seen.log.getvalue()


async def test_a_task_without_a_waiter(seen: Seen) -> None:
    async def stumble() -> None:
        raise ValueError(SECRET)

    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": f"never retrieved: {SECRET}", "exception": ValueError(SECRET)})
    with suppress(ValueError):
        await stumble()
    telemetry.counter("aforesaid_turns_total").add()
    text = seen.everything()["log"]
    assert "ValueError" in text
    assert SECRET not in text


# Over a WebSocket


FRAMES = (
    {"type": "text", "id": new_id(), "text": SECRET},
    {"type": "text", "id": SECRET, "text": SECRET},
    {"type": "watch", "conversation_id": SECRET},
    {"type": "typing", "active": True, "conversation_id": SECRET},
    {"type": "interrupt", "id": SECRET},
    {"type": SECRET},
    {SECRET: SECRET},
)


async def test_a_connection_in_order_and_broken(seen: Seen) -> None:
    """Frames of every kind, frames that are none, keys that are none, and then no word of goodbye."""
    async with serving(timed=True) as server:
        key = (await server.key(f"erin-{SECRET}"))["Authorization"].removeprefix("Bearer ")
        address = server.url.replace("http", "ws") + f"/ws?token={SECRET}"
        for shown in (key, SECRET):
            async with connect(address, additional_headers={"X-Request-ID": "live-1"}) as socket:
                hello = {
                    "type": "hello",
                    "key": shown,
                    "session_id": SECRET,
                    "name": SECRET,
                    "device": SECRET,
                }
                await socket.send(json.dumps(hello))
                with suppress(ConnectionClosed):
                    await socket.recv()
                    for frame in FRAMES:
                        await socket.send(json.dumps(frame))
                        await socket.recv()
                    await socket.send(f"{{{SECRET}")
                    await socket.send(SECRET.encode())
                    await socket.recv()
    seen.check()
    log = seen.log.getvalue()
    assert '"event":"connection_closed"' in log
    assert '"request_id":"live-1"' in log
    assert key not in log
