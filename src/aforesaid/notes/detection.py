"""Detect preferences and lasting facts in users' messages, and store them as notes. Off by default.

A turn only enqueues its user messages. A background task gives them to the detector and stores what it finds
as notes with the tag `detected` and the message as source. Failures are logged and never affect the
conversation. `manager.notes(tag="detected")` returns these notes; `manager.forget(note.id,
keep_replaced=True)` undoes one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from aforesaid._internal.tasks import Background
from aforesaid.contracts import ConversationStore, Entry, NoteDetector
from aforesaid.errors import AforesaidError, ConversationNotFound
from aforesaid.notes.records import Source
from aforesaid.telemetry import describe

if TYPE_CHECKING:
    from aforesaid.notes.service import Notes

log = logging.getLogger("aforesaid.notes")

# The tag of every note that was detected.
DETECTED = "detected"
# Seconds between a turn and its detection, so that the answer goes first.
QUIET = 0.25
# Messages in the queue; beyond it, the oldest are not searched.
MOST_WAITING = 1_000
# Maximum seconds that closing waits for the queue.
CLOSING_SECONDS = 2.0


class _Waiting(NamedTuple):
    owner: str
    notes: "Notes"
    entry: Entry


class NoteDetection:
    """The detector of a memory, its queue and its background task. Without a detector it does nothing."""

    def __init__(
        self, detector: NoteDetector | None = None, *, quiet: float = QUIET, most_waiting: int = MOST_WAITING
    ) -> None:
        self.detector = detector
        self._quiet = quiet
        self._waiting: deque[_Waiting] = deque(maxlen=most_waiting)
        self._background = Background(self._work, lambda: bool(self._waiting), name="aforesaid-detection")

    def enqueue(self, owner: str, notes: "Notes", entries: Sequence[Entry]) -> None:
        """Enqueue the user messages among these entries."""
        if self.detector is None or self._background.is_closed:
            return
        users = [one for one in entries if one.message.role == "user" and one.message.message_id is not None]
        self._waiting.extend(_Waiting(owner, notes, entry) for entry in users)
        now = self._background.here().time()
        if users and self._background.is_idle:
            self._background.begin_at(lambda: now + self._quiet)

    async def wait_until_idle(self) -> None:
        """Wait until the queue is empty."""
        await self._background.done()

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Drop waiting messages of the owner or the conversation. Implements `CopyHolder`."""
        kept = [
            one
            for one in self._waiting
            if one.owner != owner or conversation_id not in (None, one.entry.conversation_id)
        ]
        removed = len(self._waiting) - len(kept)
        self._waiting.clear()
        self._waiting.extend(kept)
        return {"cached_copies": removed}

    async def close(self) -> None:
        """Process the queue within a time limit, then stop."""
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await self.wait_until_idle()
        except TimeoutError:
            log.warning("closed before all messages were searched for notes")
        finally:
            await self._background.close()

    async def _work(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            conversation_id = waiting.entry.conversation_id
            try:
                await self._process(waiting)
            except AforesaidError as error:
                log.warning("no notes detected in conversation %s: %s", conversation_id, describe(error))
            except Exception:  # the edge of a background task: an application's detector may raise anything
                log.exception("no notes detected in conversation %s", conversation_id)

    async def _process(self, waiting: _Waiting) -> None:
        notes, entry = waiting.notes, waiting.entry
        detector, message_id = self.detector, entry.message.message_id
        assert detector is not None
        assert message_id is not None
        source = Source(conversation_id=entry.conversation_id, message_id=message_id)
        for found in await detector.detect(entry.message):
            note = await notes.remember(
                found.text, subject=found.subject, tags=(DETECTED, *found.tags), source=source
            )
            if note.source != source:
                continue  # known already, from another message
            log.info(
                "note %s detected by %s in message %s of conversation %s",
                *(note.id, detector.name, message_id, entry.conversation_id),
            )
            # The message may have been redacted or erased meanwhile, before this note existed.
            if not await _is_stored(notes.store, entry):
                await notes.forget(note.id, keep_replaced=True)


async def _is_stored(store: ConversationStore, entry: Entry) -> bool:
    assert entry.message.message_id is not None
    try:
        stored = await store.entry(entry.conversation_id, entry.message.message_id)
    except ConversationNotFound:
        return False
    return stored is not None and stored.message.same_content_as(entry.message)


def detector_for(choice: NoteDetector | str | None) -> NoteDetector | None:
    """Return the detector of a choice that has been validated; None for none."""
    if not isinstance(choice, str):
        return choice
    if choice != "rules":
        return None
    from aforesaid.notes.detectors import RuleDetector

    return RuleDetector()
