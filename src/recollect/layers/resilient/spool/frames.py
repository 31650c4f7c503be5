"""The form of a spool file: frames, one after the other, each of which proves itself.

    magic "RSP1" │ length │ checksum │ kind │ payload

A frame is there wholly or not at all: a kill or a power cut in the middle of one leaves something
whose length or checksum is wrong. At the end of a file that is a torn tail, and is cut off; before
other good frames it is damage, and is set aside. Pure: bytes in, values out.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

MAGIC = b"RSP1"
OPERATION = 1
"""The payload is an operation that was accepted."""
DONE = 2
"""The payload is the numbers of operations, counted in this file from 0, that are in the store."""

_HEADER = struct.Struct("<4sIIB")
HEADER_BYTES = _HEADER.size
_NUMBER = struct.Struct("<I")


class Frame(NamedTuple):
    """A good frame: where it begins, and where its payload does."""

    kind: int
    start: int
    length: int

    @property
    def payload(self) -> slice:
        return slice(self.start + HEADER_BYTES, self.start + HEADER_BYTES + self.length)

    @property
    def end(self) -> int:
        return self.start + HEADER_BYTES + self.length


class Scan(NamedTuple):
    """What is in a file: its good frames, where the last one ends, and the damaged parts before that."""

    frames: list[Frame]
    end: int
    damaged: list[tuple[int, int]]


def frame(kind: int, payload: bytes) -> bytes:
    """The payload as a frame."""
    return _HEADER.pack(MAGIC, len(payload), _checksum(kind, payload), kind) + payload


def numbers(indexes: Iterable[int]) -> bytes:
    """The payload of a frame that says which operations are done."""
    return b"".join(map(_NUMBER.pack, indexes))


def read_numbers(payload: bytes) -> list[int]:
    return [number for (number,) in _NUMBER.iter_unpack(payload)]


def scan(content: bytes) -> Scan:
    """The good frames of a file, also of one that ends in the middle of one."""
    frames: list[Frame] = []
    damaged: list[tuple[int, int]] = []
    end = 0
    for found in _good_frames(content):
        if found.start > end:
            damaged.append((end, found.start))
        frames.append(found)
        end = found.end
    return Scan(frames, end, damaged)


def pending(content: bytes, frames: Sequence[Frame]) -> list[tuple[int, Frame]]:
    """The operations that are not done, with their numbers."""
    operations = [one for one in frames if one.kind == OPERATION]
    done = {number for one in frames if one.kind == DONE for number in read_numbers(content[one.payload])}
    return [(number, one) for number, one in enumerate(operations) if number not in done]


def payload_of(content: bytes) -> bytes | None:
    """The payload of a frame that stands by itself; None when it is not whole."""
    found = _frame_at(content, 0)
    return None if found is None or found.end != len(content) else content[found.payload]


def _good_frames(content: bytes) -> Iterator[Frame]:
    at = 0
    while True:
        found = _frame_at(content, at)
        if found is not None:
            yield found
            at = found.end
            continue
        at = content.find(MAGIC, at + 1)
        if at < 0:
            return


def _frame_at(content: bytes, at: int) -> Frame | None:
    if at + HEADER_BYTES > len(content):
        return None
    magic, length, checksum, kind = _HEADER.unpack_from(content, at)
    found = Frame(kind, at, length)
    if magic != MAGIC or found.end > len(content):
        return None
    return found if _checksum(kind, content[found.payload]) == checksum else None


def _checksum(kind: int, payload: bytes) -> int:
    return crc32(payload, kind)
