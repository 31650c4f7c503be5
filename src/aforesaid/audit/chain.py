"""Audit events, their lines in the hash chain, and the verification of a trail."""

import contextlib
import hmac
import os
import re
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, get_args

import msgspec
from msgspec import Struct

from aforesaid._internal.files import locked
from aforesaid.errors import StoreDamaged, StoreUnavailable

# Audit events, their lines in the hash chain, and the head of the trail. Pure.
#
#     {"n":7,"at":"2026-03-01T09:30:00Z","actor":"support","source":"10.0.0.7","action":"read","owner":"erin",
#      "conversation":"01952f3e-…","outcome":"done","count":20,"error":"","prev":"9f…","hash":"3c…"}
#
# `n` counts from 1 over all files. `hash` is the SHA-256, or with a key the HMAC-SHA-256, of the line
# without `hash`; `prev` is the `hash` of the previous line. So a line cannot be changed, omitted, inserted
# or moved without invalidating every later hash, and with a key the hashes cannot be recomputed without it.
# The head, in a separate file, contains the number of lines and the last hash, so the end cannot be
# truncated either.


Outcome = Literal["done", "denied", "failed"]
"""`denied`: missing or not permitted; `failed`: the store refused or failed."""
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

# The head is overwritten in place, so it has a fixed length.
HEAD_BYTES = 512

# The `prev` of the first line.
NOTHING = "0" * 64

_encode = msgspec.json.Encoder().encode


class Event(Struct, frozen=True, kw_only=True):
    """An action that was done or attempted."""

    at: datetime
    actor: str
    source: str
    action: str
    owner: str = ""
    """The owner of the data; empty for actions on all owners."""
    conversation: str = ""
    outcome: Outcome = "done"
    count: int = 0
    """How many messages, records or documents were read, written or removed."""
    error: str = ""
    """The class of an error, never its text, which may contain content."""


class Line(Struct, frozen=True, kw_only=True):
    """An event with its place in the chain."""

    n: int
    at: datetime
    actor: str
    source: str
    action: str
    owner: str
    conversation: str
    outcome: Outcome
    count: int
    error: str
    prev: str
    hash: str = ""

    @property
    def event(self) -> Event:
        return Event(**{name: getattr(self, name) for name in Event.__struct_fields__})


class Head(Struct, frozen=True, kw_only=True):
    """The end of the trail: what is written, and what is being written."""

    aforesaid: str = "audit"
    version: int = 1
    count: int = 0
    hash: str = NOTHING
    next_count: int = 0
    next_hash: str = NOTHING
    proof: str = ""
    """A hash over the rest, as for a line."""


class Chain:
    """Computes and verifies hashes, with or without a key."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key

    def digest(self, data: bytes) -> str:
        if self._key is None:
            return sha256(data).hexdigest()
        return hmac.digest(self._key, data, "sha256").hex()

    def owner(self, owner: str) -> str:
        """Return a pseudonym for an owner's name."""
        return f"hidden:{self.digest(b'owner ' + owner.encode())[:32]}" if owner else ""

    def line(self, event: Event, *, n: int, prev: str) -> tuple[bytes, str]:
        """Return the line of an event, and its hash."""
        unsigned = _encode({"n": n, **msgspec.structs.asdict(event), "prev": prev})
        digest = self.digest(unsigned)
        return b'%b,"hash":"%b"}\n' % (unsigned[:-1], digest.encode()), digest

    def is_signed(self, line: bytes) -> bool:
        """Whether the hash of this line is valid."""
        unsigned, found, _ = line.rpartition(b',"hash":"')
        signed = b'%b,"hash":"%b"}\n' % (unsigned, self.digest(unsigned + b"}").encode())
        return bool(found) and hmac.compare_digest(signed, line)

    def head(self, head: Head) -> bytes:
        """Return the head with its proof."""
        bare = msgspec.structs.replace(head, proof="")
        text = _encode(msgspec.structs.replace(head, proof=self.digest(_encode(bare))))
        return text.ljust(HEAD_BYTES - 1) + b"\n"

    def read_head(self, text: bytes) -> Head:
        """Return the stored head. Raise `StoreDamaged`."""
        try:
            head = msgspec.json.decode(text, type=Head)
        except msgspec.MsgspecError as error:
            raise StoreDamaged(f"the head of the audit trail cannot be read: {error}") from error
        if self.head(head) != text:
            raise StoreDamaged("the head of the audit trail was altered, or belongs to another key")
        return head


def read_line(line: bytes) -> Line:
    """Return a parsed line. Raise `ValueError` with the reason."""
    if not line.endswith(b"\n"):
        raise ValueError("is cut off")
    try:
        return msgspec.json.decode(line, type=Line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"cannot be read ({error})") from error


# Read a trail, and detect changes to it. This never writes.
#
# A trail may be in use: its files and head are opened under the lock, and then read up to their size at
# that time.


# The most problems that are reported; one altered line may cause many.
MOST_PROBLEMS = 100


class Checked(Struct, frozen=True, kw_only=True):
    """The result of a verification."""

    lines: int
    files: int
    head: str
    """The hash of the last line. A copy kept elsewhere proves later that no line before it was changed."""
    problems: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        return not self.problems


def files_of(path: Path) -> list[Path]:
    """Return the files of a trail, oldest first."""
    earlier = [one for one in path.parent.glob(f"{path.name}.*") if re.fullmatch(r"\d{12}", one.suffix[1:])]
    return [*sorted(earlier, key=lambda one: one.name), *([path] if path.exists() else [])]


def read_trail(path: Path) -> Iterator[Line]:
    """Yield every readable line, oldest first. `check_trail` verifies them."""
    with _snapshot(path) as trail:
        for _, _, line in trail.lines():
            with contextlib.suppress(ValueError):
                yield read_line(line)


def check_trail(path: Path, *, key: bytes | None = None, known: tuple[int, str] | None = None) -> Checked:
    """Verify every line against the previous one, and the last against the head.

    `known` is the number and hash of a line, recorded elsewhere, that must still exist.
    """
    with _snapshot(path) as trail:
        return _Check(path, trail, Chain(key)).run(known)


class _Check:
    def __init__(self, path: Path, trail: "_Snapshot", chain: Chain) -> None:
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
            self._problem(f"the known line {known[0]} is missing or differs")
        self._check_head()
        return Checked(
            lines=self._count,
            files=len(self._trail.files),
            head=self._last,
            problems=tuple(self._problems[:MOST_PROBLEMS]),
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
            self._problem(f"{where} has the number {line.n}, but {self._count + 1} was expected")
        elif line.prev != self._last:
            self._problem(f"{where} does not follow the previous line")
        if line.action == "missing":
            self._problem(f"{where} records that {line.count} announced events before it were never written")
        self._count, self._last = line.n, line.hash

    def _check_head(self) -> None:
        head = self._head()
        if head is None:
            return
        if head.next_count != head.count:
            self._problem("the last writer ended before its lines were written, or the end was truncated")
        elif (head.count, head.hash) != (self._count, self._last):
            self._problem(
                f"the trail ends with line {self._count}, but its head says {head.count}: "
                "lines were removed or added at the end"
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


class _Snapshot(NamedTuple):
    """A trail at one point in time."""

    files: list[tuple[Path, BinaryIO, int]]
    """Open files with their sizes at that time; rotation and new lines do not affect them."""
    head: bytes | None

    def lines(self) -> Iterator[tuple[Path, int, bytes]]:
        for path, file, size in self.files:
            with _translating_errors(path):
                for number, line in enumerate(file, start=1):
                    size -= len(line)
                    if size < 0:
                        break  # written since
                    yield path, number, line


@contextlib.contextmanager
def _snapshot(path: Path) -> Iterator[_Snapshot]:
    with contextlib.ExitStack() as opened:
        with _lock_if_present(path):
            files = [(one, opened.enter_context(_open(one))) for one in files_of(path)]
            sized = [(one, file, os.fstat(file.fileno()).st_size) for one, file in files]
            head = _head_of(path)
        if not files:
            raise StoreUnavailable(f"there is no audit trail {path}")
        yield _Snapshot(sized, head)


@contextlib.contextmanager
def _lock_if_present(path: Path) -> Iterator[None]:
    """Hold the lock, if there is one: a copy of a trail may have none."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            lock = os.open(f"{path}.lock", os.O_RDWR)
            held.callback(os.close, lock)
            held.enter_context(locked(lock))
        yield


def _open(file: Path) -> BinaryIO:
    with _translating_errors(file):
        return file.open("rb")


def _head_of(path: Path) -> bytes | None:
    file = _head_file(path)
    with _translating_errors(file), contextlib.suppress(FileNotFoundError):
        return file.read_bytes()
    return None


def _head_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.head")


@contextlib.contextmanager
def _translating_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{file} cannot be read: {error.strerror or error}") from error
