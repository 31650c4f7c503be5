"""Options and health of the resilient layer."""

import os
from pathlib import Path
from typing import Literal

from msgspec import Struct

from aforesaid._internal.arguments import CheckedFields
from aforesaid.errors import InvalidSetting, shown
from aforesaid.layers.resilient.breaker import State
from aforesaid.model.conversations import check_count

Policy = Literal["fallback", "fail_closed"]
POLICIES: tuple[Policy, ...] = ("fallback", "fail_closed")

SPOOL_LIMIT = 64 * 1024 * 1024
"""Bytes: about 50,000 spoken turns, hours of a busy house, and little on any disk."""


class Resilience(CheckedFields, frozen=True, kw_only=True):
    """Options of the resilient layer. Times are in seconds."""

    policy: Policy = "fallback"
    """`fallback` spools turns and answers from the last known state; `fail_closed` refuses both."""
    folder: Path | None = None
    """The spool folder; None selects a folder for this user and store."""
    spool_limit: int = SPOOL_LIMIT
    attempts: int = 3
    read_deadline: float = 2.0
    """For all attempts of a read. Short, because an agent waits."""
    search_deadline: float = 5.0
    """For all attempts of a search, which takes longer than a read."""
    write_deadline: float = 5.0
    """For all attempts of a write, before it is spooled."""
    start_unreached: bool = False
    """Whether `open` succeeds with an unavailable store that this machine has never reached. A store that was
    reached before may always be unavailable."""
    close_deadline: float = 5.0
    """For the replay when closing. The rest stays in the spool for the next process."""
    settle_deadline: float = 30.0
    """For the wait until the store has every acknowledged write, before an operation on all data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.spool_limit, field="spool_limit", least=0)
        check_count(self.attempts, field="attempts", least=1)
        for field in self.__struct_fields__:
            if field.endswith("_deadline") and not getattr(self, field) > 0:
                seconds = shown(getattr(self, field))
                raise InvalidSetting(f"{field} must be seconds, more than 0; got {seconds}", field=field)


class Health(Struct, frozen=True, kw_only=True):
    """The state of the resilient layer."""

    store: str
    breaker: State
    degraded: bool
    """Whether some owner gets degraded answers now."""
    reason: str | None
    spool_operations: int
    spool_bytes: int
    spool_limit: int
    """The size limit of the spool in bytes; 0 with `fail_closed`."""
    spool_oldest_seconds: float
    dead_letters: int
    """Operations that the store refused or that cannot be decoded; an operator must inspect them."""


def why_not_writable(folder: Path) -> str | None:
    """Return the reason why the folder cannot be written; None if it can."""
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    return None if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} cannot be written"
