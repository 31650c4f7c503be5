"""Where a process can die: every call with which a store or the spool changes what is on the disk.

Installed in a process that is going to be killed. The product has no hooks for it: the JSON file and
the spool write through `os`, SQLite through a virtual file system of its own, and both are replaced
here. Each call is a boundary, counted and named; at the chosen one the process kills itself: before
the call, after it, or, for a write, with half of the bytes written.
"""

import os
import signal
from collections.abc import Callable
from typing import Any, Literal

import apsw

Moment = Literal["before", "half", "after"]
MOMENTS: tuple[Moment, ...] = ("before", "half", "after")
CALLS = ("write", "fsync", "fdatasync", "replace", "link", "unlink", "ftruncate", "truncate")

BASE = apsw.vfs_names()[0]
"""The virtual file system that is SQLite's own here."""


class Boundaries:
    """Counts the boundaries; kills the process at one of them, or never."""

    def __init__(self, *, kill_at: int | None = None, moment: Moment = "before") -> None:
        self.kill_at = kill_at
        self.moment = moment
        self.seen: list[str] = []
        self._real_os = {name: getattr(os, name) for name in CALLS if hasattr(os, name)}

    def install(self) -> None:
        for name, real in self._real_os.items():
            setattr(os, name, self._around(f"os.{name}", real))
        import aforesaid.layers.resilient.spool.files as files

        files._sync = self._around("os.fdatasync", files._sync)
        apsw.set_default_vfs(_register(self).name)

    def at(self, name: str, call: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """One boundary."""
        is_the_one = len(self.seen) == self.kill_at
        self.seen.append(name)
        if not is_the_one:
            return call()
        if self.moment == "half" and half is not None:
            half()
        elif self.moment == "after":
            call()
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    def _around(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            half = None
            if name == "os.write":
                descriptor, content = arguments
                half_of_it = bytes(content)[: len(content) // 2]
                half = lambda: real(descriptor, half_of_it)
            return self.at(name, lambda: real(*arguments, **named), half)

        return call


class _Vfs(apsw.VFS):
    def __init__(self, boundaries: Boundaries) -> None:
        self.name = "boundaries"
        self._boundaries = boundaries
        super().__init__(self.name, base=BASE, maxpathname=1024)

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802
        return _File(self._boundaries, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self._boundaries.at("sqlite.delete", lambda: apsw.VFS.xDelete(self, filename, syncdir))


class _File(apsw.VFSFile):
    def __init__(self, boundaries: Boundaries, name: Any, flags: Any) -> None:
        self._boundaries = boundaries
        super().__init__(BASE, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._boundaries.at(
            "sqlite.write",
            lambda: apsw.VFSFile.xWrite(self, data, offset),
            lambda: apsw.VFSFile.xWrite(self, data[: len(data) // 2], offset),
        )

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._boundaries.at("sqlite.sync", lambda: apsw.VFSFile.xSync(self, flags))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._boundaries.at("sqlite.truncate", lambda: apsw.VFSFile.xTruncate(self, newsize))


_registered: list[_Vfs] = []


def _register(boundaries: Boundaries) -> _Vfs:
    """SQLite does not keep a virtual file system alive; this does."""
    _registered.append(_Vfs(boundaries))
    return _registered[-1]
