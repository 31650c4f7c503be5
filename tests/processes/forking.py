"""Start processes of tests as forks of one process that has imported everything they need.

Importing takes nearly all of the time of a short process. A fork of this process starts in a tenth of that
time, and unlike a fork of the test run it has neither its threads nor its event loop.
"""

import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

SECONDS = 240
"""Far more than a process needs."""

processes = get_context("forkserver")
# A run has one such process, which the first test that needs it starts: it imports the modules of all tests.
processes.set_forkserver_preload(
    [
        "tests.acceptance.test_documented_numbers",
        "tests.processes.documentation",
        "tests.processes.erasing",
        "tests.processes.live_server",
        "tests.processes.redis_writer",
        "tests.integration.transfer.test_memory_use",
        "tests.integration.voice.story",
    ]
)


def failure_of(function: Callable[..., None], *args: Any) -> str:
    """Call the function in a process of its own; return the traceback of what it raised, or ''."""
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=_report, args=(sender, function, args), daemon=True)
    process.start()
    sender.close()
    with receiver:
        try:
            failure = str(receiver.recv()) if receiver.poll(SECONDS) else f"not done after {SECONDS} seconds"
        except EOFError:
            failure = "the process ended before the function did"
    process.kill()
    process.join(SECONDS)
    return failure


def _report(sender: Connection, function: Callable[..., None], args: tuple[Any, ...]) -> None:
    try:
        function(*args)
    except BaseException:  # noqa: BLE001  the test shows it
        sender.send(traceback.format_exc())
    else:
        sender.send("")
