"""Test every adapter in its framework, each in an environment of its own.

    python -m scripts.adapter_environments [NAME …]     create missing environments and run the tests
    python -m scripts.adapter_environments --create     create the environments only
    python -m scripts.adapter_environments --lock       renew requirements/adapters/*.txt (needs uv)

BOUNDS=lowest does the same with the oldest release of the framework that its extra allows, from
`requirements/adapters/lowest/`. A framework whose newest release is the lower bound has no file there: its
one environment is both.

Environments are cached in `.adapters/`, or in the folder that AFORESAID_ADAPTERS names. An environment is
created again when its requirements change.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

from scripts.readme_check import interpreters

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "requirements" / "adapters"
ENVIRONMENTS = Path(os.environ.get("AFORESAID_ADAPTERS") or ROOT / ".adapters")
LOWEST = os.environ.get("BOUNDS") == "lowest"
TESTS = ROOT / "tests" / "adapters"

NAMES = (
    "langgraph",
    "openai-agents",
    "pydantic-ai",
    "claude-agent-sdk",
    "strands",
    "google-adk",
    "llama-index",
    "agent-framework",
    "langchain",
    "livekit",
    "pipecat",
    "supabase",
    "nova",
    "mcp",
)
"""The frameworks: an extra of the package, a file of requirements, and a folder of tests each."""

MAIN = ("mcp",)
"""What the main environment tests: it has the server, and the programs that judge it are npm packages."""

PYTHONS = {"nova": ("3.12", "3.13")}
"""Versions of Python for frameworks that do not run on the oldest one that the project supports."""

SUITES = {"openai-agents": "openai-agents", "strands": "strands-agents"}
"""Packages whose source distribution contains the framework's own tests of stores."""

SERVERS = {"supabase": "supabase_lite", "mcp": "mcp_judges"}
"""Folders in `tests/servers` with the locked npm packages of programs that the tests start."""


def main(arguments: list[str]) -> int:
    """Do what the arguments ask; return the exit code."""
    if arguments == ["--lock"]:
        for name in NAMES:
            if name not in MAIN:
                _lock(name)
        return 0
    create_only = arguments == ["--create"]
    names = NAMES if create_only or not arguments else tuple(arguments)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; choose from {', '.join(NAMES)}")
        return 2
    missing = {name: reason for name in names if (reason := _create(name)) is not None}
    failed = [] if create_only else [name for name in names if name not in missing and not _passes(name)]
    return _report(names, missing, failed)


def _report(names: tuple[str, ...], missing: dict[str, str], failed: list[str]) -> int:
    """Print what passed, failed and could not run. Only a failed test fails the run: without a registry no
    environment can be created.
    """
    passed = [name for name in names if name not in missing and name not in failed]
    print(f"\nadapters: {len(passed)} of {len(names)} frameworks passed: {', '.join(passed) or 'none'}")
    for name in failed:
        print(f"adapters: {name} FAILED")
    for name, reason in missing.items():
        print(f"adapters: {name} could not run: {reason}")
    return 1 if failed else 0


def python_of(name: str) -> Path:
    """Return the interpreter of a framework's environment."""
    return Path(sys.executable) if name in MAIN else folder_of(name) / "bin" / "python"


def requirements_of(name: str) -> Path:
    """Return the locked requirements of a framework: of the newest release, or of the oldest."""
    lowest = REQUIREMENTS / "lowest" / f"{name}.txt"
    return lowest if LOWEST and lowest.exists() else REQUIREMENTS / f"{name}.txt"


def folder_of(name: str) -> Path:
    """Return the folder of a framework's environment."""
    return ENVIRONMENTS / (f"{name}-lowest" if requirements_of(name).parent.name == "lowest" else name)


def lower_bounds(name: str) -> dict[str, str]:
    """Return the packages of a framework's extra with the oldest release that it allows."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    # A requirement may name an extra and a condition: `package[extra]>=1; python_version >= "3.12"`.
    pairs = (requirement.partition(";")[0].split(">=") for requirement in extras[name])
    return {package.partition("[")[0]: bound for package, bound in pairs}


def _create(name: str) -> str | None:
    """Create the environment unless it is current; return why that was impossible, or None."""
    requirements, folder = requirements_of(name), folder_of(name)
    stamp = folder / "made-of"
    wanted = f"{sys.version} {_digest(name, requirements)}"
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    print(f"creating the environment of {name}", flush=True)
    done = _install_packages(name, requirements, folder)
    if done.returncode == 0 and name in SERVERS:
        done = _install_server(name, folder)
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["the installer failed"])[-1]
    stamp.write_text(wanted)
    return None


def _install_packages(name: str, requirements: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Create an environment with the locked Python packages, and the framework's own tests beside it."""
    if name in MAIN:
        return subprocess.CompletedProcess([], 0, "", "")
    done = _create_folder(name, folder)
    if done.returncode != 0:
        return done
    command = [str(python_of(name)), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "install", "--require-hashes", "-r", str(requirements)],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode == 0 and name in SUITES:
        return _download_suite(command, name, requirements, folder)
    return done


def _create_folder(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Create an empty environment with the framework's interpreter."""
    versions = PYTHONS.get(name)
    found = (each for version in versions or () for each in interpreters(version))
    python = next(found, None) if versions else sys.executable
    if python is None:
        return subprocess.CompletedProcess([], 1, "", f"it needs Python {' or '.join(versions or ())}")
    command = [python, "-m", "venv", "--clear", str(folder)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def _digest(name: str, requirements: Path) -> str:
    """Return a digest of everything that an environment is made of."""
    files = [] if name in MAIN else [requirements]
    if name in SERVERS:
        files.append(ROOT / "tests" / "servers" / SERVERS[name] / "package-lock.json")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _download_suite(
    command: list[str], name: str, requirements: Path, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Unpack the source distribution of the locked version: it contains the framework's own tests."""
    package = SUITES[name]
    lines = requirements.read_text().splitlines()
    pinned = next(line.split()[0] for line in lines if line.startswith(f"{package}=="))
    target = folder / "suite"
    download = ["download", "--no-deps", "--no-binary", package, "-d", str(target)]
    done = subprocess.run([*command, *download, pinned], check=False, capture_output=True, text=True)
    for archive in target.glob("*.tar.gz"):
        with tarfile.open(archive) as packed:
            packed.extractall(target, filter="data")
    return done if not list(target.glob("*/tests")) else subprocess.CompletedProcess(done.args, 0, "", "")


def _install_server(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Install the npm packages of a server into the environment."""
    target = folder / "server"
    shutil.copytree(ROOT / "tests" / "servers" / SERVERS[name], target, dirs_exist_ok=True)
    npm = shutil.which("npm")
    if npm is None:
        return subprocess.CompletedProcess([], 1, "", "npm is not installed")
    return subprocess.run([npm, "ci"], cwd=target, check=False, capture_output=True, text=True)


def _passes(name: str) -> bool:
    """Run the tests of one adapter in its environment."""
    print(f"\n== {name}", flush=True)
    folder = TESTS / name.replace("-", "_")
    # The tests of the library need packages that these environments do not have.
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "--confcutdir", str(TESTS), "-o", "filterwarnings="]
    command = [str(python_of(name)), "-m", "pytest", *options, str(folder)]
    return subprocess.run(command, cwd=ROOT, env=environment(name), check=False).returncode == 0


def environment(name: str) -> dict[str, str]:
    """Return the variables of a test run: it finds our sources, and sends nothing anywhere."""
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "PYTHONUTF8": "1",
        "AFORESAID_PYTHON": sys.executable,
        "AFORESAID_SUPABASE_LITE": str(folder_of("supabase") / "server"),
        "AFORESAID_MCP_JUDGES": str(folder_of("mcp") / "server"),
        "AFORESAID_SUITE": str(folder_of(name) / "suite"),
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LANGSMITH_TRACING": "false",
        "OTEL_SDK_DISABLED": "true",
        "ANONYMIZED_TELEMETRY": "false",
    }


def _lock(name: str) -> None:
    """Resolve the newest releases that the extra allows; with BOUNDS=lowest, its own packages' oldest."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    own_group = ["--group", f"adapters-{name}"] if f"adapters-{name}" in groups else []
    # Without the extras, pip 23.2 takes the newest release of `package[extra]`, which has no hash here.
    options = [
        "--no-strip-extras",
        "--universal",
        "--generate-hashes",
        "--no-header",
        "--python-version",
        "3.11",
        "--quiet",
    ]
    extras = [
        "--extra",
        name,
        "--extra",
        "client",
        "--extra",
        "encryption",
        "--group",
        "adapters",
        *own_group,
    ]
    target = REQUIREMENTS / ("lowest" if LOWEST else ".") / f"{name}.txt"
    if LOWEST and _locks_lowest(name):
        target.unlink(missing_ok=True)
        return
    target.parent.mkdir(exist_ok=True)
    subprocess.run(
        [
            "uv",
            "pip",
            "compile",
            *options,
            *extras,
            *_pins(name),
            "--output-file",
            str(target),
            "pyproject.toml",
        ],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _locks_lowest(name: str) -> bool:
    """Return whether the requirements of the newest release already contain the lower bounds."""
    lines = (REQUIREMENTS / f"{name}.txt").read_text().splitlines()
    pinned = {re.sub(r"\[.*?\]", "", line).split()[0] for line in lines if "==" in line}
    versions = [
        {f"{package}=={bound}{zeros}" for zeros in ("", ".0", ".0.0")}
        for package, bound in lower_bounds(name).items()
    ]
    return all(each & pinned for each in versions)


def _pins(name: str) -> list[str]:
    if not LOWEST:
        return []
    file = Path(tempfile.mkdtemp()) / "lower-bounds.txt"
    file.write_text("\n".join(f"{package}=={bound}" for package, bound in lower_bounds(name).items()))
    # An annotation would name the temporary file.
    return ["--no-annotate", "--constraint", str(file)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
