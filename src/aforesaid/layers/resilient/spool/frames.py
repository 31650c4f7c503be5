"""The format of a spool file: a sequence of frames with checksums.

    magic "ASP1" │ kind │ number │ length │ checksum of the payload │ checksum of the header │ payload

An operation carries its number, and a mark names operations by number. So damage to one frame never
changes the meaning of another. The header has its own checksum, which distinguishes three cases:

- The header is valid and the file ends before the payload: a torn tail, which was never acknowledged.
- The header is valid and the payload is not: the extent of the damage is known exactly.
- The header is damaged: everything up to the next valid header is damaged.

All functions are pure.
"""

import re
import struct
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

MAGIC = b"ASP1"
_MAGIC = re.compile(re.escape(MAGIC))
# A frame whose payload is an accepted operation.
OPERATION = 1
# A mark: a frame whose payload is the numbers of stored operations.
DONE = 2

_HEADER = struct.Struct("<4sBIII")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_NUMBER = struct.Struct("<I")
# The lowest number for operations that are identified by their offset, because two carry the same number.
_BY_OFFSET = 0x8000_0000


class Frame(NamedTuple):
    """A valid frame: its kind and number, and the offsets of its header, payload and end."""

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
    """The valid operations, with unique numbers."""
    done: set[int]
    """The numbers of stored operations."""
    damaged: list[tuple[int, int]]
    """The damaged parts, except for operations that are known to be stored."""
    end: int
    """The end of the file without its torn tail."""

    @property
    def pending(self) -> list[Frame]:
        """The operations that are not known to be stored."""
        return [one for one in self.operations if one.number not in self.done]


def frame(kind: int, number: int, payload: bytes) -> bytes:
    """Return the payload as a frame."""
    header = _HEADER.pack(MAGIC, kind, number, len(payload), crc32(payload))
    return header + _CHECKSUM.pack(crc32(header)) + payload


def numbers(indexes: Iterable[int]) -> bytes:
    """Return the payload of a mark."""
    return b"".join(map(_NUMBER.pack, indexes))


def payload_of(content: bytes) -> bytes | None:
    """Return the payload of a single frame; None when it is damaged."""
    found = _frame_at(content, 0)
    return None if not isinstance(found, Frame) or found.end != len(content) else content[found.payload]


def scan(content: bytes) -> Scan:
    """Return the operations of a file, the numbers of stored ones, and the damaged parts."""
    frames, damaged, end = _parts(content)
    foreign = [one for one in frames if not _is_supported(one)]
    known = [one for one in frames if _is_supported(one)]
    done = {number for one in known if one.kind == DONE for number in _read_numbers(content[one.payload])}
    lost = [(start, stop) for start, stop, number in damaged if number is None or number not in done]
    gaps = sorted([*lost, *((one.start, one.end) for one in foreign)])
    operations = _with_unique_numbers(content, [one for one in known if one.kind == OPERATION])
    return Scan(operations, done, gaps, end)


def _is_supported(one: Frame) -> bool:
    """Whether this version supports the frame. A newer version may write other kinds."""
    if one.kind == DONE:
        return (one.end - one.body) % _NUMBER.size == 0
    return one.kind == OPERATION


def _read_numbers(payload: bytes) -> list[int]:
    return [number for (number,) in _NUMBER.iter_unpack(payload)]


# Numbers


def _with_unique_numbers(content: bytes, operations: list[Frame]) -> list[Frame]:
    """Return the operations without duplicates, each with a unique number."""
    # Only an exact copy is a duplicate. Different operations with one number are both kept.
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
"""The start and end of a damaged part, and the operation's number if its header is valid."""


class _Torn(NamedTuple):
    """A frame whose end is missing."""


class _DamagedPayload(NamedTuple):
    """A frame with a valid header and a damaged payload."""

    kind: int
    number: int
    end: int


def _parts(content: bytes) -> tuple[list[Frame], list[_Damage], int]:
    """Return the valid frames, the damaged parts, and the end of the file without its torn tail."""
    frames: list[Frame] = []
    damaged: list[_Damage] = []
    at = 0
    while at < len(content):
        found = _frame_at(content, at)
        if isinstance(found, Frame):
            frames.append(found)
            at = found.end
        elif isinstance(found, _DamagedPayload):
            if found.kind != DONE:  # losing a mark is harmless: its operations are replayed again
                damaged.append((at, found.end, found.number if found.kind == OPERATION else None))
            at = found.end
        else:
            # A torn tail was never acknowledged. Zeros at the end are left by a file system after a power
            # failure.
            following = _next_frame(content, at + 1)
            if following == len(content) and (found is not None or not content[at:].strip(b"\0")):
                return frames, damaged, at
            damaged.append((at, following, None))
            at = following
    return frames, damaged, at


def _next_frame(content: bytes, at: int) -> int:
    """Return the offset of the next frame with a valid header, or the end of the file."""
    for found in _MAGIC.finditer(content, at):
        if isinstance(_frame_at(content, found.start()), Frame | _DamagedPayload):
            return found.start()
    return len(content)


def _frame_at(content: bytes, at: int) -> Frame | _DamagedPayload | _Torn | None:
    """Parse the frame at this offset; None where there is no valid header."""
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
        return _DamagedPayload(kind, number, end)
    return Frame(kind, number, at, body, end)
