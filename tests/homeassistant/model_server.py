"""A server with Ollama's HTTP interface in front of a scripted model, for a core in a process of its own."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self


class ModelServer:
    """Answers each request with the number of the user's sentences it contains, or with what they were."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer([{"models": [{"model": "small:latest"}]}])

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                requests.append(body)
                text = reply_to(body.get("messages", []))
                words = [{"message": {"role": "assistant", "content": f"{word} "}} for word in text.split()]
                last = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
                self._answer([{"model": "small", **each} for each in (*words, last)])

            def _answer(self, documents: list[dict[str, Any]]) -> None:
                content = b"".join(json.dumps(each).encode() + b"\n" for each in documents)
                self.send_response(200)
                self.send_header("content-type", "application/x-ndjson")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def reply_to(messages: list[dict[str, Any]]) -> str:
    """Return an answer that shows what the model was given."""
    said = [message["content"] for message in messages if message["role"] == "user"]
    if said and "yesterday" in said[-1]:
        return f"You asked: {'; '.join(said[:-1])}" if said[:-1] else "You asked me nothing."
    return "I will remember that."
