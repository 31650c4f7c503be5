"""A real agent: the program that the SDK bundles, against a scripted API on this machine."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from aforesaid.adapters.claude_agent_sdk import AforesaidSessionStore
from tests.adapters.checks import memory_in

BOUND = 300


class ScriptedApi(ThreadingHTTPServer):
    """Answer questions by a script: the answer of the last question that the request contains."""

    daemon_threads = True

    def __init__(self, answers: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers
        self.requests: list[list[Any]] = []

    def answer_to(self, messages: Sequence[Any]) -> str:
        asked = json.dumps(messages[-1])
        return next((answer for question, answer in self.answers.items() if question in asked), "ok")


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedApi
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Write nothing."""

    def do_POST(self) -> None:  # the name that the library calls
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if not self.path.startswith("/v1/messages"):
            self._send(404, "application/json", b"{}")
        elif "count_tokens" in self.path:
            self._send(200, "application/json", b'{"input_tokens": 10}')
        else:
            self.server.requests.append(body["messages"])
            text = self.server.answer_to(body["messages"])
            if body.get("stream"):
                self._send(200, "text/event-stream", "".join(events(text)).encode())
            else:
                content = [{"type": "text", "text": text}]
                self._send(200, "application/json", json.dumps(_message(content)).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _message(content: list[Any]) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    fields = {"stop_reason": "end_turn" if content else None, "stop_sequence": None, "usage": usage}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": content,
        **fields,
    }


def events(text: str) -> Iterator[str]:
    """Yield a streamed answer."""
    for event in (
        {"type": "message_start", "message": _message([])},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


@contextmanager
def scripted_api(answers: dict[str, str]) -> Iterator[ScriptedApi]:
    api = ScriptedApi(answers)
    thread = threading.Thread(target=api.serve_forever, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.shutdown()
        api.server_close()
        thread.join()


def options(api: ScriptedApi, home: Path, store: AforesaidSessionStore, **more: Any) -> ClaudeAgentOptions:
    """Return options for a program that knows nothing but the store, and reaches nothing but this machine."""
    home.mkdir()
    return ClaudeAgentOptions(
        session_store=store,
        cwd=home.parent,
        model="claude-sonnet-4-5",
        max_turns=1,
        setting_sources=[],
        tools=[],
        env=variables(api, home),
        **more,
    )


def variables(api: ScriptedApi, home: Path) -> dict[str, str]:
    """Return the variables of a program that asks the scripted API, and reaches nothing else."""
    nowhere = "http://127.0.0.1:9"
    return {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{api.server_port}",
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "HOME": str(home),
        "HTTPS_PROXY": nowhere,
        "HTTP_PROXY": nowhere,
        "NO_PROXY": "127.0.0.1",
    }


async def result_of(question: str, asked: ClaudeAgentOptions) -> ResultMessage:
    """Run the agent for one question."""
    async with asyncio.timeout(BOUND):
        async for message in query(prompt=question, options=asked):
            if isinstance(message, ResultMessage):
                found = message
    return found


async def test_a_new_program_continues_a_session_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The agent's program would load settings of the session that runs these tests.
    for name in [name for name in os.environ if name.startswith(("CLAUDE", "ANTHROPIC"))]:
        monkeypatch.delenv(name)
    folder = tmp_path / "memory"
    folder.mkdir()
    with scripted_api({"capital of Peru": "Lima.", "of Chile": "Santiago."}) as api:
        async with memory_in(folder) as memory:
            store = AforesaidSessionStore(memory.of("kim"))
            first = await result_of("What is the capital of Peru?", options(api, tmp_path / "one", store))
            assert first.result == "Lima."
        async with memory_in(folder) as memory:
            kim = memory.of("kim")
            again = options(api, tmp_path / "two", AforesaidSessionStore(kim), resume=first.session_id)
            second = await result_of("And of Chile?", again)
            (conversation,) = (await kim.list()).conversations
            said = [
                (one.role, str(one.content))
                for one in await kim.messages(conversation.id)
                if one.role != "system"
            ]
            found = await kim.search_history("capital")
    assert (second.result, second.session_id) == ("Santiago.", first.session_id)
    sent = json.dumps(api.requests[-1])
    assert sent.index("capital of Peru") < sent.index("Lima.") < sent.index("of Chile")
    for (role, text), part in zip(said, ("capital of Peru", "Lima.", "of Chile", "Santiago."), strict=True):
        assert part in text
        assert role == ("user" if part.startswith(("capital", "of")) else "assistant")
    assert "Peru" in "\n".join(found)
