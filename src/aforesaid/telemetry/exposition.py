"""Metrics in Prometheus formats, also of several processes in one answer."""

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from math import isinf
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import msgspec

from aforesaid._internal.files import locked
from aforesaid.telemetry.logs import describe, event
from aforesaid.telemetry.metrics import (
    CATALOGUE,
    Exemplar,
    Family,
    Sample,
    Series,
    Telemetry,
    samples_of,
    telemetry,
)

# The metrics of several processes in one answer.
#
# Each process writes its metrics into its own file in a shared folder, once a second and on request; a
# request adds up all files. So counting costs nothing extra, counters never decrease, and the counts of an
# ended process remain.


# Whether a process can tell that another has ended. On Windows files are not merged and stay until the
# folder is removed.
_CAN_MERGE = os.name != "nt"

log = logging.getLogger("aforesaid.metrics")

# The variable that names the folder for workers.
FOLDER = "AFORESAID_METRICS_FOLDER"
# Seconds between two writes; scrapers read about every ten seconds.
EVERY = 1.0
# Seconds after which the gauges of a process that stopped writing are omitted.
FRESH = 10.0
GONE = "gone"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of one process at one time."""

    pid: int
    at: float
    series: list[Series]
    families: list[Family] = []
    """Families that are not in the catalogue."""


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """All series and their families."""

    series: list[Series]
    families: dict[str, Family]


class SharedNumbers:
    """The metrics of this process and of the others in the same folder; without a folder, its own alone."""

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
        """Return the sum over all processes."""
        own = self._own()
        if self._folder is None:
            return _sum([own], own.at)
        return await asyncio.to_thread(self._write_and_sum, self._folder, own)

    async def keep_writing(self) -> None:
        """Write once a second until cancelled, and then once more."""
        if self._folder is None:
            return
        await asyncio.to_thread(_merge_ended, self._folder)
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
        # On the event loop, because gauges read state that changes there.
        families = [one for name, one in self._metrics.families().items() if name not in CATALOGUE]
        return Snapshot(pid=os.getpid(), at=self._clock(), series=self._metrics.series(), families=families)

    def _write_and_sum(self, folder: Path, own: Snapshot) -> Numbers:
        _write(folder / self._name, own)
        with _locked(folder, exclusive=False):
            others = [_read(file) for file in _files(folder) if file.name != self._name]
        return _sum([own, *(one for one in others if one is not None)], own.at)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Create a private folder for workers started inside the block, and remove it afterwards."""
    with TemporaryDirectory(prefix="aforesaid-metrics-") as folder:
        before = os.environ.get(FOLDER)
        os.environ[FOLDER] = folder
        try:
            yield Path(folder)
        finally:
            os.environ.pop(FOLDER, None) if before is None else os.environ.update({FOLDER: before})


def folder_from_environment() -> Path | None:
    """Return the folder that the parent process created, or None."""
    given = os.environ.get(FOLDER)
    return Path(given) if given else None


# Files


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if not file.name.startswith("."))


def _write(file: Path, snapshot: Snapshot) -> None:
    # Written aside and renamed, so that a reader never sees half a file.
    temporary = file.with_name(f".{file.name}-{uuid4().hex[:8]}")
    temporary.write_bytes(msgspec.json.encode(snapshot))
    temporary.replace(file)


def _read(file: Path) -> Snapshot | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Snapshot)
    except FileNotFoundError:
        return None


def _merge_ended(folder: Path) -> None:
    """Merge the files of ended processes, so that there are never more files than processes."""
    if not _CAN_MERGE:
        return
    with _locked(folder, exclusive=True):
        found = {file: _read(file) for file in _files(folder)}
        left = {file: one for file, one in found.items() if one is not None and not _is_running(one.pid)}
        if len(left) < 2:
            return
        added = _sum(left.values(), float("inf"))
        families = [one for name, one in added.families.items() if name not in CATALOGUE]
        _write(folder / GONE, Snapshot(pid=0, at=0.0, series=added.series, families=families))
        for file in left:
            if file.name != GONE:
                file.unlink()


def _is_running(pid: int) -> bool:
    if pid == 0:
        return False
    try:
        # Signal 0 checks for existence only.
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _locked(folder: Path, *, exclusive: bool) -> Iterator[None]:
    """Prevent merging while a process reads."""
    if not _CAN_MERGE:
        yield
        return
    with (folder / ".lock").open("a") as file, locked(file.fileno(), shared=not exclusive):
        yield


# Summing


def _sum(snapshots: Iterable[Snapshot], now: float) -> Numbers:
    families = dict(CATALOGUE)
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[Series]] = {}
    for snapshot in snapshots:
        families |= {family.name: family for family in snapshot.families}
        # Counters of an ended process stay true; its gauges describe state that is gone.
        fresh = now - snapshot.at <= FRESH
        for one in snapshot.series:
            if fresh or families[one.name].kind != "gauge":
                found.setdefault((one.name, tuple(one.labels.items())), []).append(one)
    series = [_sum_series(families[name], several) for (name, _), several in sorted(found.items())]
    return Numbers(series=series, families=families)


def _sum_series(family: Family, several: Sequence[Series]) -> Series:
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


# Metrics in Prometheus formats: OpenMetrics with exemplars, or the classic text format.


CLASSIC = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ACCEPTED = re.compile(r"\s*([^;,\s]+)\s*((?:;[^,]*)?)(?:,|$)")
_QUALITY = re.compile(r";\s*q=([0-9.]+)")


def form_for(accept: str | None) -> str:
    """Return the content type for an Accept header: OpenMetrics where it is preferred at least as much as
    text.
    """
    wanted = {kind.lower(): _quality(more) for kind, more in _ACCEPTED.findall(accept or "")}
    plain = max(wanted.get("text/plain", 0.0), wanted.get("text/*", 0.0))
    open_quality = wanted.get("application/openmetrics-text", 0.0)
    return OPEN if open_quality > 0 and open_quality >= plain else CLASSIC


def _quality(parameters: str) -> float:
    found = _QUALITY.search(parameters)
    try:
        return float(found.group(1)) if found else 1.0
    except ValueError:
        return 0.0


def exposition(
    series: Iterable[Series], form: str = CLASSIC, families: Mapping[str, Family] = CATALOGUE
) -> str:
    """Return the series as text. Histograms without observations are omitted."""
    seen = [one for one in series if any(one.counts) or families[one.name].kind != "histogram"]
    lines = _lines(sorted(seen, key=lambda one: (one.name, *sorted(one.labels.items()))), form, families)
    return "".join(f"{line}\n" for line in lines)


def _lines(series: list[Series], form: str, families: Mapping[str, Family]) -> Iterator[str]:
    is_open = form == OPEN
    for name, group in groupby(series, key=lambda one: one.name):
        family = families[name]
        shown_name = name.removesuffix("_total") if is_open and family.kind == "counter" else name
        yield f"# HELP {shown_name} {_escaped(family.help)}"
        yield f"# TYPE {shown_name} {family.kind}"
        for sample in samples_of(group, families):
            yield _line(sample, exemplar=sample.exemplar if is_open else None)
    if is_open:
        yield "# EOF"


def _line(sample: Sample, *, exemplar: Exemplar | None) -> str:
    line = f"{sample.name}{_braced(sample.labels)} {number(sample.value)}"
    if exemplar is None:
        return line
    return f"{line} # {_braced(exemplar.labels) or '{}'} {number(exemplar.value)} {exemplar.at:.3f}"


def _braced(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_quoted(name, value)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _quoted(name: str, value: str) -> str:
    if name == "le" and value != "+Inf":
        return number(float(value))
    return _escaped(value).replace('"', r"\"")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def number(value: float) -> str:
    """Return a number in the common format: large ones with an exponent, and never `inf`."""
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(float(value))
    if abs(value) < 1e6 or "e" in text:
        return text
    digits, exponent = f"{value:.16e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{exponent}"
