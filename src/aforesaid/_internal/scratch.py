"""Temporary files that leave nothing behind: unnamed, and encrypted with a key that is only in memory.

When a process is killed, the key is lost, and the operating system frees the file. Exports, imports, uploads
and downloads use these for conversations in transit. Without the package `cryptography` the files are unnamed
only; the store cannot be encrypted then either.
"""

import io
import os
import tempfile
import threading
from collections.abc import Callable
from typing import BinaryIO, cast

# The most bytes that are kept in memory instead of a file.
_IN_MEMORY = 1 << 20
_BLOCK = 16
_COUNTER = 1 << 128

Transform = Callable[[int, bytes], bytes]
"""Encrypts or decrypts bytes at an offset; both are the same operation."""


class ScratchFile(io.RawIOBase):
    """A temporary file. It blocks, and is for one thread at a time."""

    def __init__(self) -> None:
        self._memory: io.BytesIO | None = io.BytesIO()
        self._file: BinaryIO | None = None
        self._transform: Transform | None = None
        self._at = 0
        self._size = 0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def write(self, data: "bytes | bytearray | memoryview", /) -> int:  # type: ignore[override]
        content = bytes(data)
        self._check_open()
        # Most conversations are small: they never reach the disk.
        if self._memory is not None and self._at + len(content) > _IN_MEMORY:
            self._move_to_file()
        self._put(content)
        self._at += len(content)
        self._size = max(self._size, self._at)
        return len(content)

    def readinto(self, buffer: "bytearray | memoryview", /) -> int:  # type: ignore[override]
        self._check_open()
        content = self._get(min(len(buffer), max(self._size - self._at, 0)))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)

    def close(self) -> None:
        self._memory = self._transform = None
        if self._file is not None:
            self._file.close()
        super().close()

    def _put(self, content: bytes) -> None:
        if self._memory is not None:
            self._memory.seek(self._at)
            self._memory.write(content)
            return
        assert self._file is not None
        assert self._transform is not None
        self._file.seek(self._at)
        rest = memoryview(self._transform(self._at, content))
        while rest:
            rest = rest[self._file.write(rest) :]

    def _get(self, count: int) -> bytes:
        if self._memory is not None:
            self._memory.seek(self._at)
            return self._memory.read(count)
        assert self._file is not None
        assert self._transform is not None
        self._file.seek(self._at)
        return self._transform(self._at, self._file.read(count))

    def _move_to_file(self) -> None:
        assert self._memory is not None
        content = self._memory.getvalue()
        self._file = cast(BinaryIO, tempfile.TemporaryFile(buffering=0))  # noqa: SIM115  `close` closes it
        self._transform = _transform()
        self._memory, at, self._at = None, self._at, 0
        self._put(content)
        self._at = at

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the temporary file is closed")


def open_scratch() -> BinaryIO:
    """Return a new temporary file, buffered."""
    return cast(BinaryIO, io.BufferedRandom(ScratchFile()))


def _transform() -> Transform:
    """Return AES in counter mode with a new key, which allows random access."""
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import AES
        from cryptography.hazmat.primitives.ciphers.modes import CTR
    except ImportError:
        return lambda offset, data: data
    key, first = os.urandom(32), int.from_bytes(os.urandom(_BLOCK))

    def transform(offset: int, data: bytes) -> bytes:
        # The counter follows from the offset, so any part can be read without decrypting what precedes it.
        block, skipped = divmod(offset, _BLOCK)
        counter = ((first + block) % _COUNTER).to_bytes(_BLOCK)
        cipher = Cipher(AES(key), CTR(counter)).encryptor()
        return cipher.update(bytes(skipped) + data)[skipped:]

    return transform


class ScratchFolder:
    """Files by name in one temporary file. Several threads may use it."""

    def __init__(self) -> None:
        self._file = ScratchFile()
        self._end = 0
        self._parts: dict[str, list[tuple[int, int]]] = {}
        self._lock = threading.Lock()

    def __truediv__(self, name: str) -> "ScratchPath":
        return ScratchPath(self, name)

    def __str__(self) -> str:
        return "the temporary folder"

    def names(self) -> list[str]:
        return sorted(self._parts)

    def close(self) -> None:
        with self._lock:
            self._parts.clear()
            self._file.close()

    def begin(self, name: str) -> None:
        with self._lock:
            if name in self._parts:
                raise FileExistsError(name)
            self._parts[name] = []

    def append(self, name: str, data: bytes) -> None:
        with self._lock:
            self._file.seek(self._end)
            self._file.write(data)
            parts = self._parts[name]
            # Files written in turns are interleaved in the one file; consecutive parts become one.
            if parts and sum(parts[-1]) == self._end:
                parts[-1] = (parts[-1][0], parts[-1][1] + len(data))
            else:
                parts.append((self._end, len(data)))
            self._end += len(data)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with self._lock:
            self._parts.pop(name, None)

    def size(self, name: str) -> int:
        return sum(length for _, length in self._parts_of(name))

    def read_at(self, name: str, at: int, count: int) -> bytes:
        """Return at most `count` bytes of a file from an offset."""
        for offset, length in self._parts_of(name):
            if at < length:
                with self._lock:
                    self._file.seek(offset + at)
                    return self._file.read(min(count, length - at)) or b""
            at -= length
        return b""

    def _parts_of(self, name: str) -> list[tuple[int, int]]:
        try:
            return self._parts[name]
        except KeyError:
            raise FileNotFoundError(2, "no such file", name) from None


class ScratchPath:
    """A file of a `ScratchFolder`: the part of `pathlib.Path` that exports and imports need."""

    def __init__(self, folder: ScratchFolder, name: str) -> None:
        self._folder = folder
        self._name = name

    def __str__(self) -> str:
        return self._name

    def create(self) -> BinaryIO:
        """Create a new file for writing."""
        self._folder.begin(self._name)
        return cast(BinaryIO, io.BufferedWriter(_Writing(self._folder, self._name)))

    def open(self, mode: str = "rb") -> BinaryIO:
        assert mode == "rb", "`create` writes"
        return cast(BinaryIO, io.BufferedReader(_Reading(self._folder, self._name)))

    def read_bytes(self) -> bytes:
        with self.open() as file:
            return file.read()

    def size(self) -> int:
        return self._folder.size(self._name)

    def unlink(self) -> None:
        self._folder.remove(self._name)


class _Writing(io.RawIOBase):
    def __init__(self, folder: ScratchFolder, name: str) -> None:
        self._folder = folder
        self._name = name

    def writable(self) -> bool:
        return True

    def write(self, data: "bytes | bytearray | memoryview", /) -> int:  # type: ignore[override]
        self._folder.append(self._name, bytes(data))
        return len(data)


class _Reading(io.RawIOBase):
    def __init__(self, folder: ScratchFolder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._size = folder.size(name)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: "bytearray | memoryview", /) -> int:  # type: ignore[override]
        data = self._folder.read_at(self._name, self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
