"""The form of a spool file: frames, one after the other, each with checksums.

    magic "ASP1" │ kind │ number │ length │ checksum of the payload │ checksum of the header │ payload

An operation carries its number, and a mark names operations by number. So damage to one frame never
changes what another frame means. The header has a checksum of its own, so three cases can be told apart:

- The header is good and the file ends before the payload does: a torn tail, which was never acknowledged.
- The header is good and the payload is not: the extent of the damage is known exactly.
- The header is damaged: everything up to the next good header is damaged.

Everything here is pure: bytes in, values out.
"""

import re
import struct
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

MAGIC = b"ASP1"
_MAGIC = re.compile(re.escape(MAGIC))
OPERATION = 1
"""The payload is an accepted operation."""
DONE = 2
"""The payload is the numbers of operations that are in the store."""

_HEADER = struct.Struct("<4sBIII")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_NUMBER = struct.Struct("<I")
_BY_OFFSET = 0x8000_0000
"""The lowest number of operations that are identified by their place in the file, because two of them carry
the same number."""


class Frame(NamedTuple):
    """A good frame: its kind and number, where it begins, where its payload begins, and where it ends."""

    kind: int
    number: int
    start: int
    body: int
    end: int

    @property
    def payload(self) -> slice:
        return slice(self.body, self.end)


class Scan(NamedTuple):
    """The content of a file."""

    operations: list[Frame]
    """The good operations, each with a number of its own."""
    done: set[int]
    """The numbers of those that are in the store."""
    damaged: list[tuple[int, int]]
    """The parts that cannot be read, but for operations that are known to be in the store."""
    end: int
    """Where the file ends without its torn tail."""

    @property
    def pending(self) -> list[Frame]:
        """The operations that are not known to be in the store."""
        return [one for one in self.operations if one.number not in self.done]


def frame(kind: int, number: int, payload: bytes) -> bytes:
    """Return the payload as a frame."""
    header = _HEADER.pack(MAGIC, kind, number, len(payload), crc32(payload))
    return header + _CHECKSUM.pack(crc32(header)) + payload


def numbers(indexes: Iterable[int]) -> bytes:
    """Return the payload of a mark."""
    return b"".join(map(_NUMBER.pack, indexes))


def payload_of(content: bytes) -> bytes | None:
    """Return the payload of a frame that stands by itself; None when it is damaged."""
    found = _frame_at(content, 0)
    return None if not isinstance(found, Frame) or found.end != len(content) else content[found.payload]


def scan(content: bytes) -> Scan:
    """Return the operations of a file, those that are done, and what is damaged."""
    frames, damaged, end = _parts(content)
    foreign = [one for one in frames if not _is_known(one)]
    known = [one for one in frames if _is_known(one)]
    done = {number for one in known if one.kind == DONE for number in _read_numbers(content[one.payload])}
    lost = [(start, stop) for start, stop, number in damaged if number is None or number not in done]
    gaps = sorted([*lost, *((one.start, one.end) for one in foreign)])
    operations = _identified(content, [one for one in known if one.kind == OPERATION])
    return Scan(operations, done, gaps, end)


def _is_known(one: Frame) -> bool:
    """Whether this release understands the frame. A newer one may write others."""
    if one.kind == DONE:
        return (one.end - one.body) % _NUMBER.size == 0
    return one.kind == OPERATION


def _read_numbers(payload: bytes) -> list[int]:
    return [number for (number,) in _NUMBER.iter_unpack(payload)]


# Numbers


def _identified(content: bytes, operations: list[Frame]) -> list[Frame]:
    """The operations, each once and with a number that no other one has."""
    found: dict[tuple[int, bytes], Frame] = {}
    for one in operations:
        found.setdefault((one.number, content[one.payload]), one)
    taken = Counter(number for number, _ in found)
    return [
        one if taken[one.number] == 1 else one._replace(number=_BY_OFFSET + one.start)
        for one in found.values()
    ]


# Frames

_Damage = tuple[int, int, int | None]
"""Where damage begins and ends, and the number of the operation, where its header is good."""


class _Torn(NamedTuple):
    """A frame whose end is missing."""


class _Rotten(NamedTuple):
    """A frame with a good header and a damaged payload."""

    kind: int
    number: int
    end: int


def _parts(content: bytes) -> tuple[list[Frame], list[_Damage], int]:
    """The good frames, the damaged parts, and where the file ends without its torn tail."""
    frames: list[Frame] = []
    damaged: list[_Damage] = []
    at = 0
    while at < len(content):
        found = _frame_at(content, at)
        if isinstance(found, Frame):
            frames.append(found)
            at = found.end
        elif isinstance(found, _Rotten):
            if found.kind != DONE:  # without a mark, operations are replayed once more
                damaged.append((at, found.end, found.number if found.kind == OPERATION else None))
            at = found.end
        else:
            following = _next_frame(content, at + 1)
            if following == len(content) and (found is not None or not content[at:].strip(b"\0")):
                return frames, damaged, at
            damaged.append((at, following, None))
            at = following
    return frames, damaged, at


def _next_frame(content: bytes, at: int) -> int:
    """Where the next frame with a good header begins; the end of the file where there is none."""
    for found in _MAGIC.finditer(content, at):
        if isinstance(_frame_at(content, found.start()), Frame | _Rotten):
            return found.start()
    return len(content)


def _frame_at(content: bytes, at: int) -> Frame | _Rotten | _Torn | None:
    """What begins here; None where that is no frame, or not surely."""
    body = at + HEADER_BYTES
    if body > len(content):
        return _Torn() if MAGIC.startswith(content[at : at + len(MAGIC)]) else None
    magic, kind, number, length, checksum = _HEADER.unpack_from(content, at)
    header = content[at : at + _HEADER.size]
    if magic != MAGIC or _CHECKSUM.unpack_from(content, at + _HEADER.size) != (crc32(header),):
        return None
    end = body + length
    if end > len(content):
        return _Torn()
    if crc32(content[body:end]) != checksum:
        return _Rotten(kind, number, end)
    return Frame(kind, number, at, body, end)
