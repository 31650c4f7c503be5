"""Run Python code as a program, in a process forked from one that has imported the package.

Importing takes most of the time of an example; the server process imports once for all of them.
"""

import os
import sys
import warnings
from pathlib import Path

import aforesaid
import aforesaid.stores.sqlite
import aforesaid.testing  # noqa: F401
from tests.processes.forking import processes

SECONDS = 120
"""Far more than an example takes."""


def run_as_program(code: str, folder: Path) -> str:
    """Run the code in the folder with warnings as errors. Return its error output if it failed, or ''."""
    errors = folder / ".errors"
    process = processes.Process(target=_run, args=(code, folder, errors))
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
    return "" if process.exitcode == 0 else f"exit code {process.exitcode}\n{errors.read_text('utf-8')}"


def _run(code: str, folder: Path, errors: Path) -> None:
    os.chdir(folder)
    # They stay open: multiprocessing writes the traceback of a failed program to stderr.
    sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = errors.open("w", encoding="utf-8")
    sys.argv = ["-c"]
    warnings.resetwarnings()
    warnings.simplefilter("error")
    exec(compile(code, "<example>", "exec"), {"__name__": "__main__"})
