"""Lines of the log: one for each event, with the request's id, and nothing that anybody said."""

import ast
import asyncio
import io
import json
import logging
import queue
import sys
from pathlib import Path
from typing import Any

import pytest

from aforesaid.errors import AgentRejected, InvalidInput, InvalidSetting, StoreDamaged, StoreUnavailable
from aforesaid.telemetry import describe, event
from aforesaid.telemetry.logs import MOST_WAITING, _QueueHandler, logging_to
from aforesaid.telemetry.tracing import SANE, Request, answering, request_id_from

SECRET = "marzipan-4711"
SOURCE = Path(__file__).parents[3] / "src" / "aforesaid"
LOGGING = {
    f"{log}.{level}" for log in ("log", "_log") for level in ("info", "warning", "error", "log", "debug")
}

log = logging.getLogger("aforesaid.test")


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_with_its_fields_and_the_request() -> None:
    stream = io.StringIO()
    with logging_to(stream, form="json"), answering(Request("r-1", "abc")):
        event(log, logging.INFO, "searched", "a search was made", results=3)
    (line,) = lines(stream)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "aforesaid.test",
        "event": "searched",
        "message": "a search was made",
        "request_id": "r-1",
        "trace_id": "abc",
        "results": 3,
    }


def test_every_line_of_a_request_has_its_id_also_from_tasks_and_threads() -> None:
    stream = io.StringIO()

    async def answer(name: str) -> None:
        with answering(Request(name)):
            log.warning("one")
            await asyncio.gather(asyncio.to_thread(log.warning, "two"), _say("three"))

    async def _say(word: str) -> None:
        log.warning(word)

    async def both() -> None:
        await asyncio.gather(answer("r-1"), answer("r-2"))

    with logging_to(stream, form="json"):
        asyncio.run(both())
        log.warning("after")
    said = [(line.get("request_id"), line["message"]) for line in lines(stream)]
    assert sorted(said[:-1]) == [(r, word) for r in ("r-1", "r-2") for word in ("one", "three", "two")]
    assert said[-1] == (None, "after")


def test_text_for_people_is_one_line_too() -> None:
    stream = io.StringIO()
    with logging_to(stream, form="text"):
        event(log, logging.WARNING, "breaker_open", "the store\nis away", store="a b", count=2)
        log.info("plain")
    first, second = stream.getvalue().splitlines()
    assert first.endswith("WARNING aforesaid.test: the store is away event=breaker_open store='a b' count=2")
    assert second.endswith("INFO    aforesaid.test: plain")


@pytest.mark.parametrize("form", ["json", "text"])
def test_fields_of_other_packages_stay_out(form: str) -> None:
    """They may contain anything: a user's words, or uvicorn's text with terminal colours."""
    stream = io.StringIO()
    with logging_to(stream, form=form):
        logging.getLogger("uvicorn.error").info(
            "Started [%d]", 7, extra={"color_message": f"\x1b[36m{SECRET}"}
        )
    assert "Started [7]" in stream.getvalue()
    assert "color_message" not in stream.getvalue()
    assert SECRET not in stream.getvalue()


def test_the_level_is_kept_to() -> None:
    stream = io.StringIO()
    with logging_to(stream, form="json", level="warning"):
        log.info("no")
        log.warning("yes")
    assert [line["message"] for line in lines(stream)] == ["yes"]


@pytest.mark.parametrize(("form", "level"), [("xml", "info"), ("json", "loud")])
def test_what_there_is_not_is_refused_by_name(form: str, level: str) -> None:
    with (
        pytest.raises(InvalidSetting, match=r"log|log_level"),
        logging_to(sys.stderr, form=form, level=level),
    ):
        pass


def test_the_log_is_afterwards_as_it_was_before() -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    with logging_to(io.StringIO()):
        assert root.handlers != before[0]
    assert (root.handlers, root.level) == before


def test_a_slow_reader_of_the_log_delays_no_caller_and_keeps_no_memory() -> None:
    waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    handing = _QueueHandler(waiting)
    for _ in range(MOST_WAITING + 5):
        handing.emit(logging.makeLogRecord({"msg": "x"}))
    assert waiting.qsize() == MOST_WAITING


def test_a_broken_stream_stops_no_caller() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with logging_to(Broken()):
        log.warning("one")
        log.warning("two")


# Nothing that anybody said


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (InvalidInput(f"content must be text; got {SECRET}"), "InvalidInput"),
        (ValueError(SECRET), "ValueError"),
        (StoreDamaged(SECRET), "StoreDamaged"),
        (StoreUnavailable("10.0.0.7 is away"), "10.0.0.7 is away"),
        (FileNotFoundError(2, "No such file", SECRET), "FileNotFoundError: No such file"),
        (AgentRejected(SECRET, status=400, request_id="req_1"), "AgentRejected (status 400, request req_1)"),
        (AgentRejected(SECRET), "AgentRejected"),
    ],
)
def test_an_error_is_logged_without_quoting(error: Exception, words: str) -> None:
    assert describe(error) == words


def test_an_error_is_logged_with_its_causes() -> None:
    error = StoreDamaged(SECRET)
    error.__cause__ = ValueError(SECRET)
    assert describe(error) == "StoreDamaged after ValueError"


def broken(secret: str) -> None:
    raise ValueError(f"cannot parse {secret}")


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_traceback_names_places_and_no_words(form: str) -> None:
    stream = io.StringIO()
    with logging_to(stream, form=form):
        try:
            broken(SECRET)
        except ValueError as error:
            log.exception("it failed")
            log.warning("it failed: %s", error)
            other = logging.getLogger("asyncio")
            other.error("failed with %s", error, exc_info=error)
            other.error(f"never retrieved: {error!r}", exc_info=error)
    text = stream.getvalue()
    assert SECRET not in text
    assert len(text.splitlines()) == 4
    assert "telemetry/test_logs.py" in text
    assert "broken" in text
    assert "ValueError" in text


def test_of_what_others_log_only_the_constant_part_is_kept() -> None:
    stream = io.StringIO()
    with logging_to(stream, form="json"):
        other = logging.getLogger("some.driver")
        other.warning("query failed: %s", SECRET)
        other.warning(f"query failed: {SECRET}")
        server = logging.getLogger("uvicorn.error")
        server.info("Uvicorn running on %s://%s:%d (Press CTRL+C to quit)", "http", "127.0.0.1", 8765)
        server.info('%s - "WebSocket %s" [accepted]', "127.0.0.1:5000", f"/ws?token={SECRET}")
    assert [line["message"] for line in lines(stream)] == [
        "query failed: %s",
        f"logged by test_logs, line {_line_of('other.warning(f')}",
        "Uvicorn running on http://127.0.0.1:8765 (Press CTRL+C to quit)",
        '127.0.0.1:5000 - "WebSocket …" [accepted]',
    ]


def _line_of(words: str) -> int:
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, start=1) if line.strip().startswith(words))


MAY_SPEAK = {"intake/messages.py", "memory/opening.py", "tokens/counters.py"}
"""Where an error is that of loading a counter of tokens, before anybody has said anything."""


@pytest.mark.slow
def test_no_line_of_ours_is_made_of_an_errors_own_words() -> None:
    found = []
    for file in SOURCE.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text("utf-8"))):
            if (
                isinstance(call, ast.Call)
                and ast.unparse(call.func) in LOGGING
                and file.relative_to(SOURCE).as_posix() not in MAY_SPEAK
            ):
                names = {ast.unparse(argument) for argument in call.args[1:]}
                found += [
                    f"{file.name}:{call.lineno}" for name in ("error", "failed", "exc") if name in names
                ]
    assert not found, "log describe(error)"


# Ids of requests


@pytest.mark.parametrize("given", ["a", "7d9f", "A.b_c-9", "x" * 64])
def test_a_sane_id_is_kept(given: str) -> None:
    assert request_id_from(given) == given


@pytest.mark.parametrize("given", [None, "", "x" * 65, "two words", "line\nbreak", "é", '"', "a/b"])
def test_another_one_is_replaced(given: str | None) -> None:
    made = request_id_from(given)
    assert made != given
    assert SANE.fullmatch(made)
