"""The numbers of several processes as one answer. Below: metrics. Above: a server with several workers.

Each process writes its numbers into a file of its own, in a folder that all of them know, once a second and
whenever it is asked for them; whoever is asked adds up all files. So counting costs nothing more, what has
been shown is never taken back, and what a process had counted stays when it is gone.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import msgspec

from aforesaid.telemetry.catalogue import CATALOGUE, Family
from aforesaid.telemetry.log_events import describe, event
from aforesaid.telemetry.metrics import Exemplar, Series, Telemetry, telemetry

try:
    import fcntl
except ImportError:  # Windows has no such locks: nobody adds up, and files stay until the folder goes
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("aforesaid.metrics")

FOLDER = "AFORESAID_METRICS_FOLDER"
"""The variable that tells workers where the folder is."""
EVERY = 1.0
"""Seconds between two writes: scrapers come every ten or so."""
FRESH = 10.0
"""Seconds after which the gauges of a process that writes no more are left out."""
GONE = "gone"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What one process had counted at a moment."""

    pid: int
    at: float
    series: list[Series]
    families: list[Family] = []
    """Those that are not in the catalogue."""


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is counted, and what it is called."""

    series: list[Series]
    families: dict[str, Family]


class SharedNumbers:
    """This process's numbers, and those of its siblings in the same folder; without one, its own alone."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        metrics: Telemetry = telemetry,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._metrics = metrics
        self._clock = clock
        self._name = f"{os.getpid()}-{uuid4().hex[:8]}"
        metrics.gauge("aforesaid_processes", "", lambda: 1.0)

    async def numbers(self) -> Numbers:
        """The sum over all processes, now."""
        own = self._own()
        if self._folder is None:
            return _added([own], own.at)
        return await asyncio.to_thread(self._written_and_read, self._folder, own)

    async def keep_writing(self) -> None:
        """Write once a second, until cancelled, and then once more."""
        if self._folder is None:
            return
        await asyncio.to_thread(_tidy, self._folder)
        try:
            while True:
                await self._try_to_write(self._folder)
                await asyncio.sleep(EVERY)
        finally:
            await self._try_to_write(self._folder)

    async def _try_to_write(self, folder: Path) -> None:
        try:
            await asyncio.to_thread(_write, folder / self._name, self._own())
        except OSError as error:
            event(log, logging.WARNING, "metrics_not_shared", f"metrics are not shared: {describe(error)}")

    def _own(self) -> Snapshot:
        # Looked up here, on the event loop: gauges read what is changed there.
        families = [one for name, one in self._metrics.families().items() if name not in CATALOGUE]
        return Snapshot(pid=os.getpid(), at=self._clock(), series=self._metrics.series(), families=families)

    def _written_and_read(self, folder: Path, own: Snapshot) -> Numbers:
        _write(folder / self._name, own)
        with _locked(folder, exclusive=False):
            others = [_read(file) for file in _files(folder) if file.name != self._name]
        return _added([own, *(one for one in others if one is not None)], own.at)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder for workers that are started inside the block, private to this user, gone afterwards."""
    with TemporaryDirectory(prefix="aforesaid-metrics-") as folder:
        before = os.environ.get(FOLDER)
        os.environ[FOLDER] = folder
        try:
            yield Path(folder)
        finally:
            os.environ.pop(FOLDER, None) if before is None else os.environ.update({FOLDER: before})


def folder_from_environment() -> Path | None:
    """The folder that whoever started this process made, if it did."""
    given = os.environ.get(FOLDER)
    return Path(given) if given else None


# Files


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if not file.name.startswith("."))


def _write(file: Path, snapshot: Snapshot) -> None:
    aside = file.with_name(f".{file.name}-{uuid4().hex[:8]}")
    aside.write_bytes(msgspec.json.encode(snapshot))
    aside.replace(file)


def _read(file: Path) -> Snapshot | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Snapshot)
    except FileNotFoundError:
        return None


def _tidy(folder: Path) -> None:
    """Add up what processes that are gone have left, so that there are never more files than processes."""
    if fcntl is None:
        return
    with _locked(folder, exclusive=True):
        found = {file: _read(file) for file in _files(folder)}
        left = {file: one for file, one in found.items() if one is not None and not _lives(one.pid)}
        if len(left) < 2:
            return
        added = _added(left.values(), float("inf"))
        families = [one for name, one in added.families.items() if name not in CATALOGUE]
        _write(folder / GONE, Snapshot(pid=0, at=0.0, series=added.series, families=families))
        for file in left:
            if file.name != GONE:
                file.unlink()


def _lives(pid: int) -> bool:
    if pid == 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _locked(folder: Path, *, exclusive: bool) -> Iterator[None]:
    """Nobody adds up while somebody reads."""
    if fcntl is None:
        yield
        return
    with (folder / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield


# Adding up


def _added(snapshots: Iterable[Snapshot], now: float) -> Numbers:
    families = dict(CATALOGUE)
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[Series]] = {}
    for snapshot in snapshots:
        families |= {family.name: family for family in snapshot.families}
        fresh = now - snapshot.at <= FRESH
        for one in snapshot.series:
            if fresh or families[one.name].kind != "gauge":
                found.setdefault((one.name, tuple(one.labels.items())), []).append(one)
    series = [_sum_of(families[name], several) for (name, _), several in sorted(found.items())]
    return Numbers(series=series, families=families)


def _sum_of(family: Family, several: Sequence[Series]) -> Series:
    first = several[0]
    if len(several) == 1:
        return first
    values = [one.value for one in several]
    if family.across == "max":
        return first._replace(value=max(values))
    return first._replace(
        value=sum(values),
        counts=tuple(map(sum, zip(*(one.counts for one in several), strict=True))),
        exemplars=tuple(map(_latest, zip(*(one.exemplars for one in several), strict=True))),
    )


def _latest(exemplars: Iterable[Exemplar | None]) -> Exemplar | None:
    return max((one for one in exemplars if one is not None), key=lambda one: one.at, default=None)
