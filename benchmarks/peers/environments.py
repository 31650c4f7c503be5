"""An environment for each peer, made when it is missing or its requirements have changed.

    python -m benchmarks.peers.environments

Above: driving. They live in `.bench/`, and are used again from run to run.
"""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BENCH = ROOT / ".bench"
STATE = BENCH / "work" / "state"
"""Where a program keeps its state in a run, instead of the user's folder."""
OURS = "aforesaid"
NAMES = ("openai-agents", "langgraph", "langchain", "strands", "llama-index", "google-adk")


def python_of(name: str) -> Path:
    """The interpreter of an environment, made now if need be. Ours is the one that runs this."""
    return Path(sys.executable) if name == OURS else _made(name)


def _made(name: str) -> Path:
    requirements, folder = HERE / f"requirements-{name}.txt", BENCH / "environments" / name
    python, stamp = folder / "bin" / "python", folder / "made-of"
    wanted = _fingerprint(requirements)
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"making the environment of {name}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        _install(python, requirements)
        stamp.write_text(wanted)
    return python


def _install(python: Path, requirements: Path) -> None:
    """Every version is pinned, dependencies too, so that nothing has to be resolved."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "-r", str(requirements)], check=True, stderr=subprocess.PIPE)


def _fingerprint(requirements: Path) -> str:
    return f"{sys.version} {hashlib.sha256(requirements.read_bytes()).hexdigest()}"


def environment() -> dict[str, str]:
    """Variables for a worker: it finds the benchmarks and our sources, and sends nothing anywhere."""
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "PYTHONUTF8": "1",
        "XDG_STATE_HOME": str(STATE),
        "PYTHONWARNINGS": "ignore",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LANGSMITH_TRACING": "false",
        "OTEL_SDK_DISABLED": "true",
        "ANONYMIZED_TELEMETRY": "false",
    }


if __name__ == "__main__":
    for each in NAMES:
        print(python_of(each))
