"""The link to the memory: open it, notice outages, open it again.

Setup never fails because of the store: agents must answer while it is unavailable. `status` says why there is
no memory; listeners are called when it changes.
"""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import aforesaid
from aforesaid.errors import (
    AccessError,
    AccessUnverified,
    AforesaidError,
    NotAllowed,
    NotAuthenticated,
    StoreDamaged,
    StoreError,
    StoreForeign,
    StoreUnavailable,
)
from aforesaid.memory.interface import ManagerProtocol, MemoryProtocol
from aforesaid.memory.options import Models

from .const import CONF_KEY, CONF_MODE, CONF_PLAIN_HTTP, CONF_URL, DATABASE, MODE_SERVER

log = logging.getLogger(__name__)

LEAST_FREE = 16 * 1024 * 1024
"""Free bytes below which the card counts as full: SQLite needs room for its log and the spool."""
PATIENCE = 2.0
"""Seconds that a turn waits for the store: longer would be heard as a pause."""
SHARED = "shared"
"""The owner of turns without user and device."""

T = TypeVar("T")


class Status(StrEnum):
    """The state of the memory."""

    OK = "ok"
    UNAVAILABLE = "unavailable"
    KEY_REFUSED = "key_refused"
    DISK_FULL = "disk_full"
    DAMAGED = "damaged"


class Opener(Protocol):
    """Opens a memory. `folder` is None for a memory behind a server."""

    folder: Path | None

    async def __call__(self) -> MemoryProtocol: ...


class Embedded:
    """A SQLite file below Home Assistant's configuration folder."""

    def __init__(self, folder: Path, lifetime: timedelta | None) -> None:
        self.folder: Path | None = folder
        self._lifetime = lifetime

    async def __call__(self) -> MemoryProtocol:
        memory = await asyncio.to_thread(self._prepare)
        return await memory.start()

    def _prepare(self) -> MemoryProtocol:
        """Create the folder and import the store's modules. Blocks."""
        assert self.folder is not None
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        url = f"sqlite:///{self.folder / DATABASE}"
        # Search by words only: the encoder would need further packages.
        return aforesaid.open(url, ttl=self._lifetime, models=Models(embedder=None))


class Server:
    """The memory of an Aforesaid server."""

    folder: Path | None = None

    def __init__(self, url: str, key: str | None, *, plain_http: bool = False, known: bool = True) -> None:
        self._url = url
        self._key = key
        self._plain_http = plain_http
        self._known = known

    async def __call__(self) -> MemoryProtocol:
        memory = await asyncio.to_thread(self._prepare)
        return await memory.start()

    def _prepare(self) -> MemoryProtocol:
        """Import the client. Blocks."""
        from aforesaid.remote.transport import Network

        network = Network(plain_http=self._plain_http, start_unreached=self._known)
        return aforesaid.connect(self._url, key=self._key, network=network)


def opener_for(data: Mapping[str, Any], folder: Path, lifetime: timedelta | None) -> Opener:
    """Return the opener of an entry's data."""
    if data[CONF_MODE] == MODE_SERVER:
        return Server(
            data[CONF_URL], data.get(CONF_KEY), plain_http=data.get(CONF_PLAIN_HTTP, False), known=True
        )
    return Embedded(folder, lifetime)


async def check_access(memory: MemoryProtocol) -> None:
    """Check that the memory answers and that the key may read and write for every owner; store nothing."""
    await memory.of(SHARED).list(limit=1)
    # Deleting a conversation that does not exist needs the right to write, for an owner like any other.
    await memory.of(f"check:{uuid4()}").delete_conversation(str(uuid4()))


class Link:
    """An open memory, or the reason why there is none."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._memory: MemoryProtocol | None = None
        self._listeners: list[Callable[[], None]] = []
        self._opening = asyncio.Lock()
        self.status = Status.UNAVAILABLE
        self.problem: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the memory is a file of this machine."""
        return self._opener.folder is not None

    @property
    def folder(self) -> Path | None:
        return self._opener.folder

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when the status changes; return the function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def memory(self) -> MemoryProtocol:
        """Return the open memory. Raise `StoreUnavailable`."""
        if self._memory is None:
            raise StoreUnavailable(self.problem)
        return self._memory

    def of(self, owner: str) -> ManagerProtocol:
        """Return the handle of one owner. Raise `StoreUnavailable`."""
        return self.memory().of(owner)

    async def call(self, work: Callable[[], Awaitable[T]], *, patience: float | None = PATIENCE) -> T:
        """Run a call of the memory within `patience` seconds; note outages. Raise the call's errors."""
        try:
            async with asyncio.timeout(patience):
                result = await work()
        except TimeoutError:
            late = StoreUnavailable(f"the store did not answer within {patience:g} s")
            self._note(late)
            raise late from None
        except (StoreError, AccessError) as error:
            if not isinstance(error, NotAllowed):  # a key may read and write, and yet not erase
                self._note(error)
            raise
        self._set(Status.OK, None)
        return result

    async def check(self) -> None:
        """Open the memory if it is not open; otherwise check that it answers. Never raise."""
        async with self._opening:
            try:
                if self._memory is None:
                    self._memory = await self._opener()
                await self._check_memory(self._memory)
            except (AforesaidError, OSError) as error:
                self._note(error)
            else:
                self._set(Status.OK, None)

    async def _check_memory(self, memory: MemoryProtocol) -> None:
        if self.folder is None:
            await check_access(memory)
            return
        await memory.of(SHARED).list(limit=1)
        if (await asyncio.to_thread(shutil.disk_usage, self.folder)).free < LEAST_FREE:
            raise StoreUnavailable("database or disk is full")

    async def close(self) -> None:
        """Close the memory."""
        async with self._opening:
            memory, self._memory = self._memory, None
            if memory is not None:
                await memory.close()

    def _note(self, error: Exception) -> None:
        status = status_of(error)
        if status is not None:
            self._set(status, str(error))

    def _set(self, status: Status, problem: str | None) -> None:
        changed = status is not self.status
        self.status, self.problem = status, problem
        if not changed:
            return
        # Once per outage: the log must not fill a card while a server is away.
        if status is Status.OK:
            log.info("the memory is available")
        else:
            log.warning("the memory is not available (%s): %s", status, problem)
        for listener in list(self._listeners):
            listener()


def status_of(error: Exception) -> Status | None:
    """Return the status that an error means; None for an error of one call only."""
    if isinstance(error, AccessUnverified):
        return Status.UNAVAILABLE
    if isinstance(error, NotAuthenticated | NotAllowed):
        return Status.KEY_REFUSED
    if isinstance(error, StoreDamaged | StoreForeign):
        return Status.DAMAGED
    if isinstance(error, AccessError):
        return None  # too many requests: the next turn may succeed
    return Status.DISK_FULL if is_disk_full(error) else Status.UNAVAILABLE


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes says that the disk is full."""
    while error is not None:
        text = str(error).lower()
        if "disk is full" in text or "no space left" in text:
            return True
        error = error.__cause__
    return False
