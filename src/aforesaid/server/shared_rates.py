"""Let the processes of a service count together against the rate limits.

Every second each process stores how many requests it has accepted from each caller, and takes what the others
have accepted from its own buckets. No request waits for the store. Processes may accept more than the limit
within that second; the surplus is taken from the following minute, so the rate over minutes is the limit.
While the store fails, each process applies the limits alone, and the log reports it.
"""

import asyncio
import logging
import time
from typing import TypeAlias
from uuid import uuid4

import msgspec

from aforesaid.contracts import JOURNAL, Auditing, Backend, ConversationStore, Document, Wrapper, capability
from aforesaid.contracts.listing import all_documents
from aforesaid.errors import AforesaidError
from aforesaid.server.limits import Limits, RouteClass
from aforesaid.telemetry import describe, event

log = logging.getLogger("aforesaid.server")

RATES = "rates"
"""The kind of the documents, one for each process."""
EXCHANGE_SECONDS = 1.0
# A process removes its document after so long without requests.
IDLE_SECONDS = 300.0
# A document that has not changed for so long belongs to a process that was killed.
KEEP_SECONDS = 600.0

Counts: TypeAlias = dict[tuple[str, RouteClass], int]
"""Accepted requests since the start of a process, by caller and class."""
_decoder = msgspec.json.Decoder(list[tuple[str, RouteClass, int]])


class SharedRates:
    """The exchange of one process with the others on the same store."""

    def __init__(self, limits: Limits, backend: Backend) -> None:
        self._limits = limits
        self._backend = _unaudited(backend)
        self._others: dict[str, _Other] = {}
        self._has_read = False
        self.works = True
        self._begin()

    def _begin(self) -> None:
        self._key = uuid4().hex
        self._published: Counts = {}
        self._published_at = time.monotonic()

    async def run(self) -> None:
        """Exchange until cancelled."""
        while True:
            await asyncio.sleep(EXCHANGE_SECONDS)
            await self.exchange()

    async def exchange(self) -> None:
        """Publish this process's counts, if there are new ones, and take those of the others."""
        try:
            # The authoritative view: counts that a spool stores later would be outdated.
            store = await self._backend.of(JOURNAL).authoritative()
            await self._publish(store)
            await self._take_others(store)
        except AforesaidError as error:
            self._note(works=False, problem=f": {describe(error)}")
        else:
            self._note(works=True)

    async def close(self) -> None:
        """Remove this process's counts."""
        try:
            await self._remove(await self._backend.of(JOURNAL).authoritative())
        except AforesaidError as error:
            log.info("the counts of this process stay in the store for now: %s", describe(error))

    async def _publish(self, store: ConversationStore) -> None:
        counts = self._limits.accepted()
        if counts != self._published:
            rows = [(*key, count) for key, count in counts.items()]
            await store.put_document(RATES, self._key, msgspec.json.encode(rows))
            self._published, self._published_at = counts, time.monotonic()
        elif counts and time.monotonic() - self._published_at > IDLE_SECONDS:
            # Before the others take it for a process that has ended, and forget what it has counted.
            await self._remove(store)

    async def _remove(self, store: ConversationStore) -> None:
        await store.delete_document(RATES, self._key)
        self._limits.forget_accepted()
        self._begin()

    async def _take_others(self, store: ConversationStore) -> None:
        now = time.monotonic()
        found: dict[str, _Other] = {}
        async for document in all_documents(store, RATES):
            if document.key == self._key:
                continue
            other = self._others.get(document.key)
            if other is None or other.version != document.version:
                counts = _counts_of(document)
                self._charge(counts, None if other is None else other.counts)
                other = _Other(document.version, counts, now)
            elif now - other.seen_at > KEEP_SECONDS:
                await store.delete_document(RATES, document.key, expected_version=document.version)
            found[document.key] = other
        self._others, self._has_read = found, True

    def _charge(self, counts: Counts, before: Counts | None) -> None:
        if before is None and not self._has_read:
            return  # accepted before this process began: perhaps long ago
        for key, count in counts.items():
            earlier = 0 if before is None else before.get(key, 0)
            self._limits.charge(*key, count - earlier if count >= earlier else count)

    def _note(self, *, works: bool, problem: str = "") -> None:
        if works == self.works:
            return
        self.works = works
        state = "are shared with the other processes again" if works else "count per process for now"
        level = logging.INFO if works else logging.WARNING
        event(log, level, "rates_shared" if works else "rates_not_shared", f"rate limits {state}{problem}")


class _Other(msgspec.Struct):
    """The counts of another process when its document was last read."""

    version: int
    counts: Counts
    seen_at: float


def _counts_of(document: Document) -> Counts:
    try:
        return {(caller, route_class): count for caller, route_class, count in _decoder.decode(document.data)}
    except msgspec.MsgspecError:
        log.warning("the counts of process %s are damaged and do not count", document.key)
        return {}


def _unaudited(backend: Backend) -> Backend:
    """Return the backend below the audit trail, which records access to data, not the counts of a service."""
    auditing = capability(backend, Auditing)
    return auditing.inner if isinstance(auditing, Wrapper) else backend
