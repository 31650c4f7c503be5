"""Log events, and log lines as JSON or text: one for each event, with the request's id.

    with logging_to(sys.stderr, form="json"):
        ...

Lines contain no content. An error's text may quote input, so logs use `describe`: the error's class, and its
text only where it is about places and times. A traceback is logged by its places without text. Other packages
may log anything, so only the constant part of their messages is kept, and none of their fields.
"""

import logging
import queue
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from traceback import walk_tb
from types import TracebackType
from typing import Any, TextIO

import msgspec

from aforesaid._internal.patterns import lazy_pattern
from aforesaid.errors import AgentError, InvalidSetting, MissingExtra, StoreClosed, StoreUnavailable
from aforesaid.telemetry.tracing import current

# Events


# Errors whose text is about a store that is unavailable, busy, full or closed.
_SAFE_TO_LOG = (StoreUnavailable, StoreClosed, MissingExtra)


def event(log: logging.Logger, level: int, name: str, sentence: str, **fields: object) -> None:
    """Log a structured event. Its fields are ids, our own names, counts and times: never content."""
    if log.isEnabledFor(level):
        log.log(level, sentence, extra={"event": name, **fields})


def describe(error: BaseException) -> str:
    """Return the error as a log may contain it."""
    kind = type(error).__name__
    if isinstance(error, _SAFE_TO_LOG):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{kind}: {error.strerror}"
    if isinstance(error, AgentError):
        known = {"status": error.status, "request": error.request_id}
        details = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
        return f"{kind} ({details})" if details else kind
    cause = error.__cause__
    return kind if cause is None else f"{kind} after {type(cause).__name__}"


# Lines


FORMS = ("json", "text")
LEVELS = ("debug", "info", "warning", "error")
MOST_FRAMES = 30
# The most lines that wait for a slow reader; further lines are dropped.
MOST_WAITING = 10_000

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# A scheme, an address or a number, which a starting server logs. No path, no query.
_PLACE = lazy_pattern(r"[A-Za-z0-9_.:\[\]-]{1,64}")


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return all fields of a line."""
    request = current.get()
    extra = _extra(record) if _is_ours(record.name) else {}
    return {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": extra.pop("event", "log"),
        "message": sentence_of(record),
        **({} if request is None else request.labels),
        **extra,
        **_error_fields(record),
    }


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def sentence_of(record: logging.LogRecord) -> str:
    """Return the record's message without content."""
    if _is_ours(record.name):
        return _filled(record, _describe_if_error)
    if record.name.startswith("uvicorn"):
        return _filled(record, _place_if_any)
    if not record.args:  # formatted by the caller, and so may contain anything
        return f"logged by {record.module}, line {record.lineno}"
    return str(record.msg)


def _is_ours(logger: str) -> bool:
    return logger == "aforesaid" or logger.startswith("aforesaid.")


def _filled(record: logging.LogRecord, shown: Any) -> str:
    if not record.args:
        return str(record.msg)
    if isinstance(record.args, dict):
        return str(record.msg) % {name: shown(value) for name, value in record.args.items()}
    return str(record.msg) % tuple(map(shown, record.args))


def _describe_if_error(value: object) -> object:
    return describe(value) if isinstance(value, BaseException) else value


def _place_if_any(value: object) -> object:
    if isinstance(value, int | float):
        return value
    return value if isinstance(value, str) and _PLACE.fullmatch(value) else "…"


def _error_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the record's error: its class, its cause, and the places of its traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return {}
    return {"error": type(error).__name__, "cause": describe(error), "trace": _places(error.__traceback__)}


def _places(trace: TracebackType | None) -> list[str]:
    frames = [(frame.f_code, line) for frame, line in walk_tb(trace)] if trace is not None else []
    return [f"{_file(code.co_filename)}:{line} {code.co_name}" for code, line in frames[-MOST_FRAMES:]]


def _file(path: str) -> str:
    """Return the last two parts of a path."""
    return "/".join(re.split(r"[/\\]", path)[-2:])


class JsonLines(logging.Formatter):
    """Formats a record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        return msgspec.json.encode(fields_of(record), enc_hook=str).decode()


class TextLines(logging.Formatter):
    """Formats a record as a line of text."""

    def format(self, record: logging.LogRecord) -> str:
        fields = fields_of(record)
        head = f"{fields.pop('time')} {fields.pop('level').upper():7} {fields.pop('logger')}"
        words = fields.pop("message").replace("\n", " ")
        if fields["event"] == "log":
            del fields["event"]
        rest = " ".join(f"{name}={_one_word(value)}" for name, value in fields.items())
        return f"{head}: {words} {rest}".rstrip()


def _one_word(value: object) -> str:
    if isinstance(value, list):
        return " < ".join(map(str, reversed(value)))
    text = str(value)
    return text if text and not re.search(r"\s", text) else repr(text)


class _QueueHandler(logging.Handler):
    """Formats the line in the caller's context, which has the request, and queues it for the thread."""

    def __init__(self, lines: "queue.SimpleQueue[str | None]") -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        # Dropping lines is better than growing without limit while nothing reads the log.
        if self._lines.qsize() < MOST_WAITING:
            self._lines.put(self.format(record) + "\n")


def _write(lines: "queue.SimpleQueue[str | None]", stream: TextIO) -> None:
    """Write queued lines in batches until a None."""
    line = lines.get()
    while line is not None:
        waiting = [line]
        while not lines.empty() and (line := lines.get()) is not None:
            waiting.append(line)
        with suppress(OSError, ValueError):  # a closed log stream must not stop the program
            stream.write("".join(waiting))
            stream.flush()
        if line is not None:
            line = lines.get()


@contextmanager
def logging_to(stream: TextIO, *, form: str = "text", level: str = "info") -> Iterator[None]:
    """Write all log records to the stream in this format until the block ends."""
    if form not in FORMS:
        raise InvalidSetting.not_in("log", form, FORMS)
    if level not in LEVELS:
        raise InvalidSetting.not_in("log_level", level, LEVELS)
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    handler = _QueueHandler(lines)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    # A thread writes the lines, so that an event loop never waits for a terminal or a pipe.
    writer = threading.Thread(target=_write, args=(lines, stream), name="aforesaid-log", daemon=True)
    writer.start()
    root = logging.getLogger()
    before, was = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    try:
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(was)
        lines.put(None)
        writer.join()
