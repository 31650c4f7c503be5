"""Reading a trail, and finding what was done to it. Below: `events`, `locking`. Reads only.

A trail may be in use: its files and its head are looked at in one moment in which nobody writes, and then
read up to where they were.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from msgspec import Struct

from aforesaid.audit.events import NOTHING, Chain, Head, Line, read_line
from aforesaid.audit.lock import locked
from aforesaid.errors import StoreDamaged, StoreUnavailable

MANY = 100
"""Problems that are told one by one; one altered line may make many."""


class Checked(Struct, frozen=True, kw_only=True):
    """What a check found."""

    lines: int
    files: int
    head: str
    """The hash of the last line: noted elsewhere, it proves later that nothing before it was changed."""
    problems: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        return not self.problems


def files_of(path: Path) -> list[Path]:
    """The files of a trail, the oldest first."""
    earlier = [one for one in path.parent.glob(f"{path.name}.*") if re.fullmatch(r"\d{12}", one.suffix[1:])]
    return [*sorted(earlier, key=lambda one: one.name), *([path] if path.exists() else [])]


def read_trail(path: Path) -> Iterator[Line]:
    """Every line that can be read, the oldest first. Whether they are sound says `check_trail`."""
    with _seen(path) as trail:
        for _, _, line in trail.lines():
            with contextlib.suppress(ValueError):
                yield read_line(line)


def check_trail(path: Path, *, key: bytes | None = None, known: tuple[int, str] | None = None) -> Checked:
    """Every line against the one before it, and the last against the head.

    `known`: number and hash of a line, noted earlier elsewhere, that must still be there.
    """
    with _seen(path) as trail:
        return _Check(path, trail, Chain(key)).run(known)


class _Check:
    def __init__(self, path: Path, trail: "_Seen", chain: Chain) -> None:
        self._path = path
        self._trail = trail
        self._chain = chain
        self._problems: list[str] = []
        self._count = 0
        self._last = NOTHING

    def run(self, known: tuple[int, str] | None) -> Checked:
        found = known is None or known == (0, NOTHING)
        for file, number, raw in self._trail.lines():
            self._check(f"{file.name}, line {number},", raw)
            found = found or known == (self._count, self._last)
        if not found and known is not None:
            self._problem(f"the line {known[0]} that is known from elsewhere is not there, or is another")
        self._check_head()
        return Checked(
            lines=self._count,
            files=len(self._trail.files),
            head=self._last,
            problems=tuple(self._problems[:MANY]),
        )

    def _check(self, where: str, raw: bytes) -> None:
        try:
            line = read_line(raw)
        except ValueError as error:
            self._problem(f"{where} {error}")
            return
        if not self._chain.is_signed(raw):
            self._problem(f"{where} was altered, or was signed with another key")
        if line.n != self._count + 1:
            self._problem(f"{where} has the number {line.n}, and {self._count + 1} was to come")
        elif line.prev != self._last:
            self._problem(f"{where} does not follow the line before it")
        if line.action == "missing":
            self._problem(f"{where} says that {line.count} events before it were announced and never written")
        self._count, self._last = line.n, line.hash

    def _check_head(self) -> None:
        head = self._head()
        if head is None:
            return
        if head.next_count != head.count:
            self._problem("the last writer ended before its lines were written, or the end was cut off")
        elif (head.count, head.hash) != (self._count, self._last):
            self._problem(
                f"the trail ends with line {self._count}, and its head says {head.count}: "
                "lines were cut off or added at the end"
            )

    def _head(self) -> Head | None:
        if self._trail.head is None:
            self._problem(f"there is no {_head_file(self._path).name}")
            return None
        try:
            return self._chain.read_head(self._trail.head)
        except StoreDamaged as error:
            self._problem(str(error))
        return None

    def _problem(self, words: str) -> None:
        self._problems.append(words)


class _Seen(NamedTuple):
    """A trail as it was at one moment."""

    files: list[tuple[Path, BinaryIO, int]]
    """Each open, with its size then: a file that gets another name, or more lines, stays what it was."""
    head: bytes | None

    def lines(self) -> Iterator[tuple[Path, int, bytes]]:
        for path, file, size in self.files:
            with _explained(path):
                for number, line in enumerate(file, start=1):
                    size -= len(line)
                    if size < 0:
                        break  # it came since
                    yield path, number, line


@contextlib.contextmanager
def _seen(path: Path) -> Iterator[_Seen]:
    with contextlib.ExitStack() as opened:
        with _still(path):
            files = [(one, opened.enter_context(_open(one))) for one in files_of(path)]
            sized = [(one, file, os.fstat(file.fileno()).st_size) for one, file in files]
            head = _head_of(path)
        if not files:
            raise StoreUnavailable(f"there is no audit trail {path}")
        yield _Seen(sized, head)


@contextlib.contextmanager
def _still(path: Path) -> Iterator[None]:
    """Nobody writes meanwhile. A copy of a trail may have no lock, and nobody writes to it."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            lock = os.open(f"{path}.lock", os.O_RDWR)
            held.callback(os.close, lock)
            held.enter_context(locked(lock))
        yield


def _open(file: Path) -> BinaryIO:
    with _explained(file):
        return file.open("rb")


def _head_of(path: Path) -> bytes | None:
    file = _head_file(path)
    with _explained(file), contextlib.suppress(FileNotFoundError):
        return file.read_bytes()
    return None


def _head_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.head")


@contextlib.contextmanager
def _explained(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{file} cannot be read: {error.strerror or error}") from error
