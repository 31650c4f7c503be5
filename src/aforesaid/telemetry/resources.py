"""The resources of this machine that a store needs: file handles and disks."""

import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct

from aforesaid.telemetry.metrics import Telemetry, telemetry

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None  # type: ignore[assignment]

MAX_FILES = 1_000_000
# Free bytes: less than the first is a warning; less than the second, or than 5 % of a small disk, a problem.
LOW_DISK, FULL_DISK = 1024**3, 100 * 1024**2


class Disk(Struct, frozen=True, kw_only=True):
    """The disk of a folder."""

    folder: Path
    free: int
    size: int

    @property
    def state(self) -> Literal["well", "warning", "problem"]:
        if self.free < min(FULL_DISK, self.size // 20):
            return "problem"
        return "warning" if self.free < LOW_DISK else "well"


def disk_of(folder: Path) -> Disk:
    """Return the disk of a folder, which need not exist yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    return Disk(folder=folder, free=usage.free, size=usage.total)


def open_files() -> int:
    """Return the number of open files and sockets of this process; 0 where the system does not say."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            # The listing itself opens the folder.
            return len(os.listdir(folder)) - 1
        except OSError:
            continue
    return 0


def open_files_limit() -> int:
    """Return the number of files and sockets that this process may open."""
    if resource is None:
        return MAX_FILES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_FILES if soft == resource.RLIM_INFINITY else min(soft, MAX_FILES)


class Resources(Struct, frozen=True, kw_only=True):
    """File handles of this process, and disks by the label of their folder."""

    open_files: int
    open_files_limit: int
    disks: dict[str, Disk]


def read_resources(folders: Mapping[str, Path]) -> Resources:
    """Read the resources. The calls may block: do not call this on the event loop."""
    return Resources(
        open_files=open_files(),
        open_files_limit=open_files_limit(),
        disks={label: disk_of(folder) for label, folder in folders.items()},
    )


def show_resources(found: Resources, metrics: Telemetry = telemetry) -> None:
    """Set the gauges."""
    metrics.gauge("aforesaid_open_files", "", lambda: float(found.open_files))
    metrics.gauge("aforesaid_open_files_limit", "", lambda: float(found.open_files_limit))
    for label, disk in found.disks.items():
        metrics.gauge("aforesaid_disk_free_bytes", "", partial(float, disk.free), folder=label)
        metrics.gauge("aforesaid_disk_size_bytes", "", partial(float, disk.size), folder=label)
