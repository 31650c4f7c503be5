"""Incremental parser for server-sent events. No I/O."""

from aforesaid.errors import StoreForeign

EVENT_STREAM = "text/event-stream"


class Events:
    """Parse text chunks into the data of complete events. The server's first comment sets `begun`."""

    def __init__(self, content_type: str) -> None:
        if content_type.partition(";")[0].strip().lower() != EVENT_STREAM:
            raise StoreForeign(f"the server must answer with events; got {content_type or 'no content type'}")
        self.begun = False
        self._rest = ""
        self._data: list[str] = []
        self._complete: list[str] = []

    def feed(self, text: str) -> None:
        """Parse a chunk of text, which may end inside a line."""
        self.begun = True
        *lines, self._rest = (self._rest + text).replace("\r\n", "\n").split("\n")
        for line in lines:
            self._line(line)

    def take(self) -> list[str]:
        """Return and remove the complete events, in order."""
        complete, self._complete = self._complete, []
        return complete

    def _line(self, line: str) -> None:
        if line.startswith("data:"):
            self._data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and self._data:
            self._complete.append("\n".join(self._data))
            self._data = []
