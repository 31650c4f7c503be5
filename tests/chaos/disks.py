"""A disk in trouble: `python -m tests.chaos.disks KIND full|limited|read-only|forbidden`.

Full and read-only are a small file system of its own, in memory; limited is a bound on the size of files,
and forbidden a folder that belongs to somebody else: those two stand in where mounting is not allowed.
Root may write everywhere, and becomes nobody before it is forbidden something.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from aforesaid.errors import ConversationNotFound, StoreError, StoreUnavailable
from aforesaid.model.messages import Message
from tests.chaos.boundaries import Boundaries
from tests.chaos.checking import Verdict
from tests.chaos.kills import Files, backend_of, forked

NOBODY = 65534
ROOM = 256 * 1024
"""Bytes that a file may have: some turns fit, many do not."""
DISK, LARGER_DISK = b"size=1536k", b"size=64m"
READ_ONLY, REMOUNT = 1, 32
"""`MS_RDONLY` and `MS_REMOUNT`."""


def mount(folder: Path, options: bytes, flags: int = 0) -> bool:
    """A file system in memory, or the same with other options; whether that is allowed."""
    system = ctypes.CDLL(None)
    return not system.mount(b"aforesaid", bytes(folder), b"tmpfs", flags, options)


@contextlib.contextmanager
def disk_of_its_own(folder: Path) -> Iterator[bool]:
    """A small disk in this place, and whether there is one."""
    is_mounted = mount(folder, DISK)
    try:
        yield is_mounted
    finally:
        if is_mounted:
            ctypes.CDLL(None).umount2(bytes(folder), 2)


class Squeezed(Files):
    """Files on a disk in trouble."""

    def fill(self, *, limited: bool) -> list[str]:
        """Store turns until the disk refuses; then read, and close, which still must work."""

        def work(tell: Callable[[str], None]) -> None:
            if limited:
                resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            asyncio.run(self._fill(tell))

        return self._noted(work)

    async def _fill(self, tell: Callable[[str], None]) -> None:
        backend = backend_of(self.kind, self.folder, away=self.kind == "spool")
        await backend.open()
        store = backend.of("erin")
        conversation = self.conversations[0]
        refused = 0
        for number in range(2000):
            content = {"content": number, "extra": {"padding": "x" * 2000}}
            turn = [Message(role=role, **content) for role in ("user", "assistant")]  # type: ignore[arg-type]
            try:
                await store.append(conversation, turn)
            except StoreUnavailable as error:
                tell(f"refused {type(error).__name__}")
                refused += 1
                if refused == 3:
                    break
            else:
                tell(f"stored {conversation} {number}")
        await store.recent(conversation, limit=3)
        await backend.close()

    def write_protected(self) -> list[str]:
        """Open and store on a file system that cannot be written."""
        assert mount(self.folder, DISK, REMOUNT | READ_ONLY)
        return self._noted(lambda tell: asyncio.run(self._locked_out(tell)))

    def lock_out(self) -> list[str]:
        """Open and store as a user without write access to the folder."""

        def work(tell: Callable[[str], None]) -> None:
            if os.geteuid() == 0:
                with tempfile.TemporaryDirectory() as elsewhere:  # that user cannot import modules later
                    asyncio.run(Squeezed(self.kind, Path(elsewhere))._locked_out(lambda line: None))
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            asyncio.run(self._locked_out(tell))

        for path in [self.folder, *self.folder.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            return self._noted(work)
        finally:
            for path in [self.folder, *self.folder.rglob("*")]:
                path.chmod(0o755 if path.is_dir() else 0o644)

    async def _locked_out(self, tell: Callable[[str], None]) -> None:
        try:
            backend = backend_of(self.kind, self.folder, away=self.kind == "spool")
            await backend.open()
            turn = [Message(role="user", content=9), Message(role="assistant", content=9)]
            await backend.of("erin").append(self.conversations[0], turn)
        except (StoreError, ConversationNotFound) as error:
            tell(f"refused {type(error).__name__}")
        else:
            tell("stored")

    def _noted(self, work: Callable[[Callable[[str], None]], None]) -> list[str]:
        lines, status = forked(work)
        assert status == 0, lines
        for line in lines:
            what, *rest = line.split()
            if what == "stored":
                self.acknowledged[rest[0]].add(int(rest[1]))
        return [line for line in lines if line.startswith("refused")]


def trouble_with(files: Squeezed, trouble: str) -> list[str]:
    """What was refused."""
    if trouble in ("full", "limited"):
        refused = files.fill(limited=trouble == "limited")
        assert len(refused) == 3, "it filled up, and stayed usable"
        return refused
    files.live(Boundaries())
    return files.write_protected() if trouble == "read-only" else files.lock_out()


STAND_INS = {"full": "limited", "read-only": "forbidden"}


def main(kind: str, trouble: str) -> int:
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="aforesaid-disks-") as place, contextlib.ExitStack() as stack:
        if trouble in STAND_INS and not stack.enter_context(disk_of_its_own(Path(place))):
            trouble = STAND_INS[trouble]
        Path(place).chmod(0o755)
        files = Squeezed(kind, Path(place))
        files.prepare()
        refused = trouble_with(files, trouble)
        assert refused
        if trouble in STAND_INS:
            assert mount(files.folder, LARGER_DISK, REMOUNT), "somebody made room"
        verdict: Verdict = files.check()
    print(f"{kind}, {trouble}: {refused}")
    print(
        f"acknowledged turns checked {verdict.acknowledged}; lost {verdict.lost}, doubled {verdict.doubled}, "
        f"torn {verdict.torn}, reordered {verdict.reordered}"
    )
    return 0 if verdict.is_clean and verdict.acknowledged else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
