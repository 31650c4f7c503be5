"""Make `.venv-ha`, the environment of `make test-ha`, and run a command in it.

The current Home Assistant needs Python 3.14.2. Where the machine has none, this script unpacks Debian's
packages into a cache folder: apt reads the machine's own sources with another suite, and verifies the
signature of the index and the checksum of each package. Nothing is installed into the system.

    python scripts/homeassistant_env.py [COMMAND ...]

Without a usable environment the script prints the reason in its last line and exits with 0, because the
machine and not the change is the cause. Otherwise it exits with the status of the command.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-ha"
READY = VENV / ".ready"
LOCK = ROOT / "requirements" / "homeassistant.txt"
TOOLS_LOCK = ROOT / "requirements" / "homeassistant-tools.txt"
NEEDED = (3, 14, 2)
SUITES = ("forky", "sid")
"""Debian releases with Python 3.14, the more stable first."""
PACKAGES = ("python3.14", "python3.14-venv")
HEADERS = "libpython3.14-dev"
"""Without its dependencies: the C library's headers must be those of the machine's compiler."""
LAYOUT = "3"
"""Change it when the cache or the environment is made in another way."""


class Unavailable(Exception):
    """The environment cannot be made on this machine."""


class Source(NamedTuple):
    """An entry of the machine's apt sources."""

    uri: str
    signed_by: str


def main(command: Sequence[str]) -> int:
    try:
        make_environment()
    except (Unavailable, OSError) as error:
        say(f"The Home Assistant tests did NOT run: the environment cannot be made here: {error}")
        return 0
    return subprocess.run(command, cwd=ROOT, check=False).returncode if command else 0


def make_environment() -> None:
    """Make the environment unless it is up to date."""
    if READY.exists() and READY.read_text() == fingerprint() and works(VENV / "bin" / "python"):
        return
    shutil.rmtree(VENV, ignore_errors=True)
    uv = str(tool("uv"))
    run(uv, "venv", "--quiet", "--python", str(python()), str(VENV))
    install = (uv, "pip", "install", "--quiet", "--python", str(VENV / "bin" / "python"))
    # Two packages of the voice pipeline have no wheels; their build finds Python's headers here.
    headers = Path(os.path.realpath(VENV / "bin" / "python")).parents[1] / "include"
    os.environ["CPATH"] = os.pathsep.join(filter(None, (str(headers), os.environ.get("CPATH"))))
    run(*install, "--require-hashes", "--requirement", str(LOCK))
    run(*install, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    READY.write_text(fingerprint())


def fingerprint() -> str:
    """Return a digest of everything that the environment is made from."""
    digest = sha256(LAYOUT.encode())
    for path in (LOCK, TOOLS_LOCK):
        digest.update(path.read_bytes())
    return digest.hexdigest()


# Python


def python() -> Path:
    """Return a Python that is new enough: the machine's own, or the unpacked one."""
    own = shutil.which("python3.14")
    if own is not None and works(Path(own)):
        return Path(own)
    folder = cache() / f"python-{LAYOUT}"
    binary = folder / "usr" / "bin" / "python3.14-relocated"
    if not works(binary):
        unpack_python(folder, binary)
    if not works(binary):
        raise Unavailable("the unpacked Python does not start")
    return binary


def works(binary: Path) -> bool:
    """Return whether this Python starts, is new enough and has the modules that Debian packages apart."""
    check = f"import ssl, sqlite3, sys; sys.exit(sys.version_info < {NEEDED})"
    try:
        return subprocess.run([binary, "-c", check], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def unpack_python(folder: Path, binary: Path) -> None:
    """Unpack the packages into a new folder, and let the binary use the libraries in it."""
    shutil.rmtree(folder, ignore_errors=True)
    # The paths inside the binary are final, so the folder is not renamed later; `works` decides about it.
    for package in download():
        run("dpkg-deb", "--extract", str(package), str(folder))
    loaders = sorted(folder.glob("usr/lib/*/ld-linux*.so.*"))
    if not loaders:
        raise Unavailable("the packages contain no loader of shared libraries")
    shutil.copy2(folder / "usr" / "bin" / "python3.14", binary)
    patchelf = str(tool("patchelf"))
    # Two calls in this order: in one call, or the interpreter first, the binary crashes.
    run(patchelf, "--force-rpath", "--set-rpath", str(loaders[0].parent), str(binary))
    run(patchelf, "--set-interpreter", str(loaders[0]), str(binary))


def download() -> list[Path]:
    """Download the packages with their dependencies; return the files."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Unavailable(f"there is no Python {'.'.join(map(str, NEEDED))}, and no apt to get it from")
    state = cache() / "apt"
    problems = []
    for suite in SUITES:
        for source in sources():
            try:
                return download_from(source, suite, state)
            except Unavailable as error:
                problems.append(str(error))
    raise Unavailable(problems[-1] if problems else "apt has no sources")


def download_from(source: Source, suite: str, state: Path) -> list[Path]:
    shutil.rmtree(state, ignore_errors=True)
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True)
    (state / "status").write_text("")  # nothing is installed, so every dependency is downloaded
    signed = f"Signed-By: {source.signed_by}\n" if source.signed_by else ""
    (state / "suite.sources").write_text(
        f"Types: deb\nURIs: {source.uri}\nSuites: {suite}\nComponents: main\n{signed}"
    )
    options = {
        "Dir::Etc::sourcelist": state / "suite.sources",
        "Dir::Etc::sourceparts": "-",
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": state,
        "APT::Sandbox::User": "",
        "APT::Install-Recommends": "0",
        "APT::Update::Error-Mode": "any",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "--quiet", *(f"-o{name}={value}" for name, value in options.items())]
    run(*apt, "update")
    run(*apt, "install", "--yes", "--download-only", *PACKAGES)
    run(*apt, "download", HEADERS, cwd=state / "archives")
    return sorted((state / "archives").glob("*.deb"))


def sources() -> list[Source]:
    """Return the package archives of this machine's apt, each once, without those for security updates."""
    folder = Path("/etc/apt")
    found = [
        *(each for path in sorted(folder.glob("sources.list.d/*.sources")) for each in stanzas(path)),
        *(each for path in sorted(folder.glob("sources.list*")) if path.is_file() for each in lines(path)),
        *(each for path in sorted(folder.glob("sources.list.d/*.list")) for each in lines(path)),
    ]
    return list(dict.fromkeys(source for source in found if source.uri.rstrip("/").endswith("/debian")))


def stanzas(path: Path) -> Iterator[Source]:
    for stanza in path.read_text().split("\n\n"):
        fields = dict(
            line.split(":", 1) for line in stanza.splitlines() if ":" in line and not line.startswith("#")
        )
        for uri in fields.get("URIs", "").split():
            yield Source(uri, fields.get("Signed-By", "").strip())


def lines(path: Path) -> Iterator[Source]:
    for line in path.read_text().splitlines():
        words = line.split()
        if not words or words[0] != "deb":
            continue
        start, end = line.find("["), line.find("]")
        options = dict(word.split("=", 1) for word in line[start + 1 : end].split() if "=" in word)
        rest = line[end + 1 :].split() if start >= 0 else words[1:]
        if rest:
            yield Source(rest[0], options.get("signed-by", ""))


# Helpers


def tool(name: str) -> Path:
    """Return a tool from the locked packages, installed into the cache."""
    folder = cache() / f"tools-{sha256(TOOLS_LOCK.read_bytes()).hexdigest()[:16]}"
    if not (folder / "bin" / name).exists():
        run(
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--require-hashes", "--requirement", str(TOOLS_LOCK), "--target", str(folder), "--upgrade"),
        )
    return folder / "bin" / name


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "aforesaid" / "homeassistant"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(*command: str, cwd: Path = ROOT) -> None:
    say(f"$ {' '.join(Path(word).name if '/' in word else word for word in command[:6])} …")
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-3:]
        raise Unavailable(f"{Path(command[0]).name} failed: {' | '.join(last)}")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
