"""Follow the README in new environments: install the wheel, type the example, look at what was installed.

    python -m scripts.readme_check [3.11 3.12 3.13]

The README names the versions of Python. The last lines say which of them ran and which this machine lacks. An
interpreter is taken from PATH, from pyenv or from uv.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_DEPENDENCIES = 3
MOST_BYTES = 30_000_000


class NotAsPrinted(Exception):
    """A step of the README does not work as printed."""


def main(versions: Sequence[str]) -> int:
    readme = (ROOT / "README.md").read_text("utf-8")
    named = versions or re.findall(r"3\.\d+", _block(readme, "sh"))
    ran, missing, failed = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder))
        for version in named:
            interpreter = next(interpreters(version), None)
            if interpreter is None:
                missing.append(version)
                continue
            try:
                ran.append(f"{version}: {follow(readme, wheel, interpreter, Path(folder) / version)}")
            except NotAsPrinted as error:
                failed.append(f"{version}: {error}")
    for title, lines in (("works", ran), ("does NOT work", failed)):
        for line in lines:
            say(f"README {title} on Python {line}")
    if missing:
        say(f"README did NOT run on Python {', '.join(missing)}: this machine has no such interpreter")
    return 1 if failed or not ran else 0


def interpreters(version: str) -> Iterator[str]:
    """Yield the interpreters of this version that start."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [f"python{version}", *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    if uv := shutil.which("uv"):
        found = run([uv, "python", "find", "--no-project", version], check=False)
        candidates += found.stdout.split()
    is_it = f"import sys; sys.exit('{version}' != '%d.%d' % sys.version_info[:2])"
    for candidate in candidates:
        try:
            if run([candidate, "-c", is_it], check=False).returncode == 0:
                yield candidate
        except OSError:
            continue


def build_wheel(folder: Path) -> Path:
    """Return the wheel of this repository."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*command, "--wheel-dir", str(folder), str(ROOT)])
    return next(folder.glob("*.whl"))


def follow(readme: str, wheel: Path, interpreter: str, folder: Path) -> str:
    """Do what the README prints. Return the figures of the installation."""
    run([interpreter, "-m", "venv", str(folder / "venv")])
    python = str(folder / "venv" / "bin" / "python")
    before = _bytes_in(folder / "venv")
    install, *extras = [line for line in _block(readme, "sh").splitlines() if line.startswith("pip install")]
    _install(python, install, wheel)
    size, packages = _bytes_in(folder / "venv") - before, _packages(python)
    if size > MOST_BYTES or len(packages) - 1 > MOST_DEPENDENCIES:
        raise NotAsPrinted(f"{size / 1e6:.0f} MB, {', '.join(packages)}")
    _type(python, _block(readme, "python"), folder)
    for line in extras:
        _install(python, line, wheel)
    version = run([str(folder / "venv" / "bin" / "aforesaid"), "--version"]).stdout.strip()
    return f"{len(packages) - 1} dependencies, {size / 1e6:.1f} MB, {version}"


def _install(python: str, line: str, wheel: Path) -> None:
    # The line as printed, with the wheel of this repository for the name.
    wanted = re.sub(r"\s+#.*", "", line).removeprefix("pip install ").strip("' ")
    run([python, "-m", "pip", "install", "--quiet", wanted.replace("aforesaid", str(wheel), 1)])


def _type(python: str, example: str, folder: Path) -> None:
    """Type the example line by line into an interactive interpreter, twice: the second finds the first."""
    for _ in range(2):
        typed = run([python, "-i", "-q"], given=example, cwd=folder)
        if "Error" in typed.stderr or "Traceback" in typed.stderr:
            raise NotAsPrinted(typed.stderr[-600:])
    for expected in ("'messages'", "claude-sonnet-5", "You are a cook.", "chicken with leeks"):
        if expected not in typed.stdout:
            raise NotAsPrinted(f"the example does not print {expected}: {typed.stdout[-600:]}")
    if not (folder / "memory.db").exists():
        raise NotAsPrinted("the example stores nothing")


def _block(readme: str, language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert found is not None, language
    return found[1]


def _packages(python: str) -> list[str]:
    listed = run([python, "-m", "pip", "list", "--format=freeze"]).stdout.split()
    names = [line.partition("==")[0] for line in listed]
    return sorted(name for name in names if name not in ("pip", "setuptools", "wheel"))


def _bytes_in(folder: Path) -> int:
    # Without what the interpreter compiles: a file that was loaded is not a file that was installed.
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sum(path.stat().st_size for path in files)


def run(
    command: Sequence[str], *, given: str | None = None, cwd: Path | None = None, check: bool = True
) -> "subprocess.CompletedProcess[str]":
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | quiet
    done = subprocess.run(
        command, input=given, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if check and done.returncode != 0:
        raise NotAsPrinted(f"{' '.join(command[:4])} ended with {done.returncode}: {done.stderr[-600:]}")
    return done


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
