"""Traces: spans from the request to the store, nothing said in them, and nothing imported while off."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import aforesaid
from aforesaid._internal.tasks import start_background
from aforesaid.agents.tools import Tool, ToolRegistry
from aforesaid.errors import ConversationNotFound, MissingExtra
from aforesaid.model.ids import new_id
from aforesaid.telemetry import span, tracing
from aforesaid.telemetry.tracing import incoming, outgoing, trace_id, tracing_to
from tests.embedders import WordEncoder
from tests.integration.server.running import serving
from tests.integration.telemetry.spans import traced

ROOT = Path(__file__).parents[3]
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


async def test_a_turn_is_a_span_with_the_stores_part_inside() -> None:
    with traced() as spans:
        async with aforesaid.open("memory://", layers=aforesaid.Layers(timed=True)) as memory:
            erin = memory.of("erin")
            conversation = await erin.get_or_create_conversation("kitchen")
            await erin.add_message(conversation.id, "user", "hello")
    assert spans.path_to("store.append") == ["add_message", "append", "store.append"]
    assert spans.named("store.append").attributes == {"store": "memory://"}


async def test_a_request_goes_on_in_the_trace_that_its_caller_began() -> None:
    with traced() as spans:
        async with serving(timed=True) as server:
            opened = (await server.client.post("/v1/conversations", json={"session_id": "kitchen"})).json()
            answer = await server.client.post(
                f"/v1/conversations/{opened['id']}/turns",
                json={"messages": [{"role": "user", "content": "hello"}]},
                headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-ID": "r-7"},
            )
            assert answer.status_code == 201
            metrics = await server.client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert spans.path_to("store.append") == ["request", "append", "store.append"]
    request = spans.parent_of(spans.named("append"))
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == PARENT
    assert dict(request.attributes) == {
        "http.request.method": "POST",
        "http.route": "/v1/conversations/{conversation_id}/turns",
        "request.id": "r-7",
    }
    assert f'# {{request_id="r-7",trace_id="{TRACE}"}}' in metrics.text


@pytest.mark.parametrize("header", ["", "nonsense", "00-0-0-0", f"00-{'0' * 32}-{PARENT}-01", "ff" * 5000])
def test_a_traceparent_that_is_none_begins_a_trace_of_its_own(header: str) -> None:
    with traced() as spans:
        with incoming("request", {"traceparent": header}):
            assert trace_id() is not None
        assert spans.named("request").parent is None


async def test_stages_of_a_search_are_spans() -> None:
    with traced() as spans:
        async with aforesaid.open("memory://", models=aforesaid.Models(embedder=None)) as memory:
            erin = memory.of("erin")
            conversation = await erin.get_or_create_conversation("kitchen")
            await erin.add_message(conversation.id, "user", "leeks and potatoes")
            assert await erin.search_history("leeks")
    assert spans.path_to("search.candidates") == ["search_history", "search", "search.candidates"]
    assert spans.path_to("search.reading") == ["search_history", "search", "search.reading"]


async def test_a_tool_is_a_span_that_says_whether_it_failed() -> None:
    async def bake(loaves: int = 1) -> str:
        return "done"

    parameters = {"type": "object", "properties": {"loaves": {"type": "integer"}}}
    registry = ToolRegistry([Tool(name="bake", description="Bakes", parameters=parameters, run=bake)])
    with traced() as spans:
        await registry.dispatch("bake", {"loaves": "many"})
    assert dict(spans.named("tool").attributes) == {"tool.name": "bake", "tool.failed": True}


async def test_an_error_is_in_the_span_by_its_class_alone() -> None:
    with traced() as spans:
        async with aforesaid.open("memory://", layers=aforesaid.Layers(timed=True)) as memory:
            with pytest.raises(ConversationNotFound):
                await memory.of("erin").add_message(new_id(), "user", "marzipan-4711")
    failed = spans.named("append")
    assert failed.attributes["error.type"] == "ConversationNotFound"
    assert not failed.events
    assert failed.status.description is None
    assert "marzipan" not in spans.text()


async def test_spans_of_tasks_that_run_together_do_not_mix() -> None:
    async def work(name: str) -> None:
        with span(name):
            await asyncio.sleep(0)
            with span(f"{name}.inside"):
                await asyncio.sleep(0)

    with traced() as spans:
        await asyncio.gather(work("a"), work("b"))
    assert spans.path_to("a.inside") == ["a", "a.inside"]
    assert spans.path_to("b.inside") == ["b", "b.inside"]


async def test_background_work_has_a_trace_of_its_own_with_a_link_to_its_cause() -> None:
    async def later() -> None:
        with span("inside"):
            with span("deeper"):
                pass
            await start_background(much_later(), name="more")

    async def much_later() -> None:
        with span("outside"):
            pass

    with traced() as spans:
        with span("request"):
            task = start_background(later(), name="work")
        await task
    request, inside, deeper = (spans.named(name) for name in ("request", "inside", "deeper"))
    assert inside.parent is None
    assert inside.context.trace_id != request.context.trace_id
    assert [link.context.span_id for link in inside.links] == [request.context.span_id]
    assert spans.parent_of(deeper) is inside
    assert not deeper.links
    assert [link.context.span_id for link in spans.named("outside").links] == [inside.context.span_id]


async def test_a_request_that_starts_background_work_has_few_spans() -> None:
    """Indexing and the search for names go on after the answer, and are not part of its trace."""
    with traced() as spans:
        async with serving("memory://", embedder=WordEncoder()) as server:
            for number in range(4):
                turn = {"session_id": f"s{number}", "messages": [{"role": "user", "content": "hello"}]}
                assert (await server.client.post("/v1/sessions/turns", json=turn)).status_code == 201
            await server.memory.of("default").search_history("hello")
    requests = {span.context.trace_id for span in spans.all if span.name == "aforesaid.request"}
    for trace in requests:
        assert sum(span.context.trace_id == trace for span in spans.all) < 30


def test_what_is_asked_elsewhere_meanwhile_goes_on_in_the_trace() -> None:
    assert outgoing() == {}
    with traced(), span("here"):
        assert outgoing()["traceparent"].split("-")[1] == trace_id()


async def test_what_a_client_asks_goes_on_in_the_trace_on_the_server() -> None:
    async with serving() as server, aforesaid.connect(server.url) as memory:
        with traced() as spans, span("here"):
            await memory.of("erin").get_or_create_conversation("kitchen")
    assert spans.path_to("request") == ["here", "request"]


def test_while_it_is_off_nothing_is_imported() -> None:
    code = """
import asyncio, sys, aforesaid
from aforesaid.telemetry.tracing import incoming, outgoing, span, trace_id, tracing_to
async def main():
    async with aforesaid.open(layers=aforesaid.Layers(timed=True)) as memory:
        erin = memory.of("erin")
        conversation = await erin.get_or_create_conversation("kitchen")
        await erin.add_message(conversation.id, "user", "hello")
        await erin.search_history("hello")
        with incoming("request", {"traceparent": "x"}), span("inside") as inside, tracing_to(""):
            inside.note(count=1)
    assert outgoing() == {} and trace_id() is None
asyncio.run(main())
sys.exit(any(name.startswith("opentelemetry") for name in sys.modules))
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / "src")})


def test_without_the_extra_it_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtra, match=r"aforesaid\[traces\]"), tracing_to("http://127.0.0.1:4318"):
        pass


# A collector


class Collector(ThreadingHTTPServer):
    """Takes spans by OTLP over HTTP, and keeps them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.taken: list[tuple[str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def names(self) -> set[str]:
        return {
            span.name
            for _, body in self.taken
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }


class _Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.serve_forever)
    thread.start()
    yield collector
    collector.shutdown()
    thread.join()
    collector.server_close()


def say_hello() -> None:
    async def main() -> None:
        async with aforesaid.open("memory://", layers=aforesaid.Layers(timed=True)) as memory:
            erin = memory.of("erin")
            conversation = await erin.get_or_create_conversation("kitchen")
            await erin.add_message(conversation.id, "user", "marzipan-4711")

    asyncio.run(main())


def test_spans_reach_a_collector_by_otlp(collector: Collector) -> None:
    with tracing_to(collector.url):
        say_hello()
    assert {"aforesaid.add_message", "aforesaid.append", "aforesaid.store.append"} <= collector.names()
    assert {path for path, _ in collector.taken} == {"/v1/traces"}
    assert not any(b"marzipan" in body or b"erin" in body for _, body in collector.taken)
    assert tracing.tracer is None


def test_a_share_of_nothing_sends_nothing(collector: Collector) -> None:
    with tracing_to(f"{collector.url}/v1/traces", share=0.0):
        say_hello()
    assert collector.names() == set()
