"""What readers of foreign files share: records of damaged JSON, trees, times and databases."""

import json
import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

from aforesaid.errors import InvalidInput
from aforesaid.importers.formats import ForeignConversation, Part, Skipped, moment_in
from aforesaid.model.messages import Message, Role

_NEXT = re.compile(r"[,\[]\s*(?=\{)")
_TWO_KEYS = re.compile(r'\{\s*"([^"]*)"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[^,{}\[\]"]*)\s*,\s*"([^"]*)"')
# The most messages of a path; a cycle of parents would otherwise never end.
LONGEST_PATH = 1_000_000

ROLES: Mapping[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}


def text_in(path: Path, member: str) -> str:
    """Return the text of a file, or of this member of a folder or ZIP file."""
    if path.is_dir():
        path = path / member
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if name.rsplit("/", 1)[-1] == member)
            if not names:
                raise InvalidInput(f"{path} contains no {member}", field="file")
            return archive.read(names[0]).decode("utf-8", "replace")
    return path.read_bytes().decode("utf-8", "replace")


def records_in(text: str) -> Iterator[Any]:
    """Yield the records of a JSON list, or the one record of an object. Yield `Skipped` for damaged ones."""
    stripped = text.lstrip("\ufeff \t\r\n")
    if stripped[:1] not in ("[", "{"):
        raise InvalidInput("the file must be a JSON list or object", field="file")
    decoder = json.JSONDecoder()
    if stripped[0] == "{":
        yield _whole(decoder, stripped)
        return
    place, number = 0, 0
    while (found := _NEXT.search(stripped, place)) is not None:
        number += 1
        try:
            record, place = decoder.raw_decode(stripped, found.end())
        except ValueError as error:
            yield Skipped(place=f"record {number}", reason=f"damaged JSON: {error}")
            place = found.end()
            # Objects inside the damaged record are not records: go on at the next line or the end.
            place = _after_damage(stripped, place)
            continue
        yield record


def _whole(decoder: json.JSONDecoder, text: str) -> Any:
    try:
        return decoder.raw_decode(text)[0]
    except ValueError as error:
        raise InvalidInput(f"the file is not JSON: {error}", field="file") from error


def _after_damage(text: str, place: int) -> int:
    """Return where the next record may begin: records of one list start with the same two keys."""
    first = _TWO_KEYS.match(text, text.find("{"))
    if first is None:
        return len(text)
    for following in _TWO_KEYS.finditer(text, place + 1):
        if following.group(1, 2) == first.group(1, 2):
            # Before the brace, where `_NEXT` finds the separator.
            return max(text.rfind(",", 0, following.start()), place + 1)
    return len(text)


def moment(value: Any, zone: tzinfo, *, field: str = "time") -> datetime | None:
    """Return a time: seconds or milliseconds since 1970, or ISO 8601; None for none."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = value.replace("Z", "+00:00") if isinstance(value, str) else value
        return moment_in(text, zone, field=field)
    seconds = value / 1000 if value > 100_000_000_000 else value
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(f"{field} is out of range: {value}", field=field, value=value) from None


def path_to(leaf: str | None, parents: Mapping[str, str | None]) -> list[str]:
    """Return the ids from the root to a leaf."""
    path: list[str] = []
    while leaf is not None and leaf in parents and len(path) < LONGEST_PATH and leaf not in path[-100:]:
        path.append(leaf)
        leaf = parents[leaf]
    return path[::-1]


def conversation(name: str, title: str | None, messages: list[Message], tag: str) -> Iterator[Part]:
    """Yield the conversation, or that it has no messages."""
    unique = {message.message_id: message for message in messages}
    if unique:
        yield ForeignConversation(
            name=name, messages=tuple(unique.values()), subject=title or None, tags=(tag,)
        )
    else:
        yield Skipped(place=title or name, reason="it has no messages with text")


class Tree:
    """A tree of messages: the path to its active leaf is a conversation, the other paths are branches."""

    def __init__(self, said: Mapping[str, Message], parents: Mapping[str, str | None]) -> None:
        self._said = said
        self._parents = parents
        self._children: dict[str | None, list[str]] = {}
        for node, parent in parents.items():
            self._children.setdefault(parent if parent in parents else None, []).append(node)
        # The conversation or branch to which each node belongs.
        self._homes: dict[str, str] = {}

    def parts(self, name: str, title: str, leaf: str | None, tag: str) -> Iterator[Part]:
        """Yield the conversation, then its branches, each after the one that it branches off."""
        main = path_to(leaf, self._parents)
        self._homes.update(dict.fromkeys(main, name))
        yield from conversation(name, title, self._messages(main), tag)
        first = next((node for node in main if node in self._said), None)
        waiting = [*self._children.get(None, ()), *main]
        while waiting:
            node = waiting.pop(0)
            starts = [node] if node not in self._homes else self._children.get(node, ())
            for start in starts:
                if start not in self._homes:
                    path = self._path_from(start)
                    part = self._branch(name, title, path, first, tag)
                    self._homes.update(dict.fromkeys(path, name if part is None else part.name))
                    waiting += path
                    if part is not None:
                        yield part

    def _messages(self, path: list[str]) -> list[Message]:
        return [self._said[node] for node in path if node in self._said]

    def _path_from(self, start: str) -> list[str]:
        """Return the path that was continued last."""
        path = [start]
        while (following := self._children.get(path[-1])) and following[-1] not in path[-100:]:
            path.append(following[-1])
        return path

    def _branch(
        self, name: str, title: str, path: list[str], first: str | None, tag: str
    ) -> ForeignConversation | None:
        messages = self._messages(path)
        if not messages:
            return None
        anchor = self._parents.get(path[0])
        while anchor is not None and anchor not in self._said:
            anchor = self._parents.get(anchor)
        if anchor is None:
            anchor = first  # another first question: the branch shares nothing
        elif self._said[anchor].role == "user":
            messages.insert(0, self._said[anchor])  # another answer: the question is asked again
        unique = {message.message_id: message for message in messages}
        return ForeignConversation(
            name=f"{name}/{path[0]}",
            messages=tuple(unique.values()),
            subject=title or None,
            tags=(tag,),
            parent=name if anchor is None else self._homes.get(anchor, name),
            at=None if anchor is None else self._said[anchor].message_id,
        )


def one_by_one(records: Iterator[Any], read: Callable[[dict[str, Any]], Iterator[Part]]) -> Iterator[Part]:
    """Read record by record. A record that cannot be read is skipped, and the others still load."""
    for number, record in enumerate(records, start=1):
        if isinstance(record, Skipped):
            yield record
            continue
        title = str(record.get("title") or record.get("name") or "") if isinstance(record, dict) else ""
        try:
            yield from list(read(record))
        except (InvalidInput, KeyError, TypeError, ValueError, AttributeError) as error:
            yield Skipped(place=title or f"record {number}", reason=f"{type(error).__name__}: {error}")


def _read_only(path: Path) -> sqlite3.Connection:
    # The rows are read one after the other, but each on whichever thread is free.
    address = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(address, uri=True, check_same_thread=False)


def rows_in(path: Path, query: str, *, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a SQLite file, which is opened for reading only."""
    if not path.is_file():
        raise InvalidInput(f"{path} is not a file", field="file")
    try:
        with closing(_read_only(path)) as db:
            found = db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
            if found is None:
                raise InvalidInput(f"{path} has no table {table}", field="file")
            yield from db.execute(query)  # one by one: states of a long thread are large
    except sqlite3.DatabaseError as error:
        raise InvalidInput(f"{path} cannot be read: {error}", field="file") from error
