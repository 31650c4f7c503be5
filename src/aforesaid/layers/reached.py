"""Remember on disk which stores and servers this machine has reached.

A URL with a mistake in it and a server that is away look the same. One that was reached before may be away;
one that never was is reported as an error when it is opened. The mark is an empty file beside the folder of
the store's spool, named by a digest of its place: it holds no address and no secret.
"""

import logging
from pathlib import Path

from aforesaid.telemetry import event

log = logging.getLogger("aforesaid.reached")


class ReachedMark:
    """The mark of one store. Blocks: call it off the event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_set(self) -> bool:
        return self.path.is_file()

    def set(self) -> None:
        """Remember that the store was reached. A disk that does not take the mark is logged: the store itself
        is well."""
        try:
            if not self.is_set():
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self.path.touch(mode=0o600)
        except OSError as error:
            event(
                log,
                logging.WARNING,
                "reached_mark_unusable",
                f"{self.path} cannot be written ({error.strerror}): the next start needs the store",
            )
