"""Server-sent events, read piece by piece. No I/O. Below: errors. Above: sending."""

from aforesaid.errors import StoreForeign

EVENT_STREAM = "text/event-stream"


class Events:
    """Text in, as it comes; the data of whole events out. The first comment says that it began."""

    def __init__(self, content_type: str) -> None:
        if content_type.partition(";")[0].strip().lower() != EVENT_STREAM:
            raise StoreForeign(f"the server answers with {content_type or 'nothing'}, and not with events")
        self.begun = False
        self._rest = ""
        self._data: list[str] = []
        self._whole: list[str] = []

    def feed(self, text: str) -> None:
        """Take what has come. A line may come in pieces."""
        self.begun = True
        *lines, self._rest = (self._rest + text).replace("\r\n", "\n").split("\n")
        for line in lines:
            self._line(line)

    def take(self) -> list[str]:
        """The events that have come since, in order."""
        whole, self._whole = self._whole, []
        return whole

    def _line(self, line: str) -> None:
        if line.startswith("data:"):
            self._data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and self._data:
            self._whole.append("\n".join(self._data))
            self._data = []
