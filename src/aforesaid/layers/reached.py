"""Record on disk which stores and servers this machine has reached.

A mistyped URL and an unavailable server look the same. A server that was reached before may be unavailable at
start; for one that was never reached, opening raises an error. The mark is an empty file next to the store's
spool folder. Its name is a digest, so it contains no address and no secret.
"""

import logging
from pathlib import Path

from aforesaid.telemetry import event

log = logging.getLogger("aforesaid.reached")


class ReachedMark:
    """The mark of one store. Its methods block: call them on a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_set(self) -> bool:
        return self.path.is_file()

    def set(self) -> None:
        """Write the mark. Log a disk error instead of raising it, because the store itself works."""
        try:
            if not self.is_set():
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self.path.touch(mode=0o600)
        except OSError as error:
            event(
                log,
                logging.WARNING,
                "reached_mark_unusable",
                f"{self.path} cannot be written ({error.strerror}): the next start requires the store",
            )
