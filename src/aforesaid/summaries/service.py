"""An owner's summaries: their storage form, their creation in the background, and the text for a context."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from aforesaid._internal.patterns import lazy_pattern
from aforesaid._internal.tasks import LoopWatch, ended, start_background
from aforesaid.contracts import ConversationStore, Document, Entry, Summarizer, fingerprint, unreadable_reason
from aforesaid.contracts.listing import all_documents
from aforesaid.dialects import cut_at_interruption
from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    DocumentConflict,
    InvalidSetting,
    StoreDamaged,
    StoreError,
)
from aforesaid.intake.messages import Intake
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message
from aforesaid.settings import ConversationConfig
from aforesaid.telemetry import describe
from aforesaid.windows import WindowPolicy

# Summaries of messages outside a window: storage form and text in a context.
#
# A summary covers the oldest messages of a conversation. It is a document derived from the conversation,
# one for each summarizer, so it is removed with the conversation and with any changed message. The next
# summary is made from the last one and the messages since. It also covers some messages that the window
# still shows, so that a window that moves by one message does not need a new summary each time.


KIND = "summaries"
# The tag of the message that contains a summary in a context.
TAG = "summary"

# Messages inside the window that a summary also covers: five exchanges until the next one.
AHEAD = 10
# The most messages that one step summarizes.
CHUNK = 100
# The most messages before the window that the first summary of a long conversation covers.
FARTHEST = 2_000

Count = Callable[[str], int]


class Summary(Struct, frozen=True, kw_only=True):
    """A summary and the messages that it covers."""

    text: str
    by: str
    """The name of the summarizer."""
    messages: int
    """How many of the oldest messages it covers."""
    last_sequence: int
    """The sequence of the last covered message. The summary is invalid when another message is in
    its place.
    """
    made_at: datetime

    @property
    def rendered(self) -> str:
        """The text that a model reads."""
        return f"{heading(self)}\n{self.text}"


def heading(summary: Summary) -> str:
    return (
        f"Summary of the first {summary.messages:,} messages of this conversation (by {summary.by}). "
        "The oldest of them are not shown:"
    )


def encode_summary(summary: Summary) -> bytes:
    return msgspec.json.encode(summary)


def decode_summary(document: Document) -> Summary:
    """Return the summary in a document. Raise `StoreDamaged`."""
    try:
        return msgspec.json.decode(document.data, type=Summary)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"a summary cannot be read: {error}") from error


def shortened(summary: Summary, *, tokens: int, count: Count) -> str | None:
    """Return the summary's text within a budget, without its oldest part where it is too long; None where
    nothing fits.
    """
    parts = [part for part in _PARTS.split(summary.text) if part.strip()]
    head = heading(summary)
    while parts:
        text = f"{head}\n{''.join(parts).strip()}"
        if count(text) <= tokens:
            return text
        # The latest part of a summary is closest to the window.
        parts = parts[1:]
    return None


_PARTS = lazy_pattern(r"(?<=\n)|(?<=[.!?]\s)")


def message_of(text: str) -> Message:
    return Message(role="system", content=text, tags=(TAG,))


# An owner's summaries: create them in the background, and select the text for a context.
#
# A context starts a background task when its summary does not reach its window. No caller waits for a
# summary.


log = logging.getLogger("aforesaid.summaries")

# The largest share of a request's budget that a summary may take, as a divisor.
SHARE = 4
# The pause before a failed summary is retried.
TRY_AGAIN_SECONDS = 60.0


class SummaryResources:
    """The summarizer of a memory and its background tasks. Without a summarizer nothing is summarized."""

    def __init__(self, summarizer: Summarizer | None = None) -> None:
        self.summarizer = summarizer
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._failed: dict[tuple[str, str], float] = {}
        self._loop = LoopWatch()

    def start(self, owner: str, conversation_id: str, work: Coroutine[Any, Any, Any]) -> None:
        """Start the work in the background, unless it is running or has just failed."""
        key = (owner, conversation_id)
        if self._loop.has_changed():
            self._tasks.clear()  # tasks of an event loop that has ended
        # Closing the coroutine avoids a warning about one that was never awaited.
        if key in self._tasks or time.monotonic() < self._failed.get(key, 0.0):
            work.close()
            return
        self._tasks[key] = start_background(self._run(key, work), name="aforesaid-summary")

    async def _run(self, key: tuple[str, str], work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
            self._failed.pop(key, None)
        except (ConversationNotFound, DocumentConflict):
            return  # removed, or summarized by another process
        except AforesaidError as error:
            log.warning("conversation %s is not summarized yet: %s", key[1], describe(error))
            self._failed[key] = time.monotonic() + TRY_AGAIN_SECONDS
        except Exception:  # the edge of a background task: an application's summarizer may raise anything
            log.exception("conversation %s is not summarized yet", key[1])
            self._failed[key] = time.monotonic() + TRY_AGAIN_SECONDS
        finally:
            self._tasks.pop(key, None)

    async def settled(self) -> None:
        """Wait until no summary is in progress."""
        if self._loop.has_changed():
            self._tasks.clear()
        while self._tasks:
            await asyncio.wait(set(self._tasks.values()))

    async def close(self) -> None:
        """Cancel the tasks. Unfinished summaries start again with the next context."""
        await ended(*self._tasks.values())


class Summaries:
    """One owner's summaries."""

    def __init__(
        self,
        store: ConversationStore,
        owner: str,
        intake: Intake,
        config: ConversationConfig,
        resources: SummaryResources,
    ) -> None:
        self.store = store
        self.owner = owner
        self.intake = intake
        self.config = config
        self.resources = resources

    async def summary(self, conversation_id: str) -> Summary | None:
        """Return the conversation's summary; None where there is none."""
        summarizer = self.resources.summarizer
        if summarizer is None:
            return None
        return (await self._stored_summary(conversation_id, summarizer))[0]

    async def extend(self, conversation_id: str, until: int) -> Summary | None:
        """Extend the summary to cover the first `until` messages; None where nothing needs one."""
        kept, _ = await self._stored_summary(conversation_id, self.summarizer())
        if not until or (kept is not None and kept.messages >= until):
            return kept
        return await self._extend(conversation_id, until)

    def summarizer(self) -> Summarizer:
        """Return the summarizer. Raise `InvalidSetting` where the memory has none."""
        if self.resources.summarizer is None:
            raise InvalidSetting(
                "there is no summarizer: set CONVERSATION_SUMMARIES=extract, or `summarizer` of `Models`",
                field="summarizer",
            )
        return self.resources.summarizer

    async def _stored_summary(
        self, conversation_id: str, summarizer: Summarizer
    ) -> tuple[Summary | None, int]:
        document = await self.store.get_document(KIND, summarizer.name, conversation_id=conversation_id)
        return (None, 0) if document is None else (decode_summary(document), document.version)

    async def inherit(self, branch_id: str, ancestors: Iterable[str]) -> None:
        """Copy the summaries that are valid for a new branch, so that its context is that of its parent.

        `ancestors` begins with the nearest one, whose summaries reach farthest. The summaries of the first
        one that has valid ones are taken.
        """
        try:
            for ancestor in ancestors:
                with suppress(ConversationNotFound):  # expired, or removed meanwhile
                    found = [one async for one in all_documents(self.store, KIND, conversation_id=ancestor)]
                    if any([await self._copied(one, ancestor, branch_id) for one in found]):
                        return
        except StoreError as error:
            # The branch is complete. Its next context starts a summary.
            log.warning("the branch %s has no summary yet: %s", branch_id, describe(error))

    async def _copied(self, document: Document, ancestor: str, branch_id: str) -> bool:
        try:
            summary = decode_summary(document)
        except StoreDamaged as error:
            log.warning("the branch %s gets no summary of %s: %s", branch_id, ancestor, describe(error))
            return False
        if not await self._is_valid(branch_id, summary):
            return False
        with suppress(DocumentConflict):  # the branch has made one of its own
            await self.store.put_document(
                KIND, summary.by, document.data, conversation_id=branch_id, expected_version=0
            )
        # A redaction in the meantime removed the ancestor's summary, but not this one.
        now = await self.store.get_document(KIND, document.key, conversation_id=ancestor)
        if now is None or now.data != document.data:
            await self.store.delete_document(KIND, summary.by, conversation_id=branch_id)
        return True

    async def _extend(self, conversation_id: str, until: int) -> Summary | None:
        """Extend the stored summary step by step to cover `until` messages and some more."""
        summarizer = self.summarizer()
        summary, version = await self._stored_summary(conversation_id, summarizer)
        if summary is not None and not await self._is_valid(conversation_id, summary):
            summary = None
        # Bound the cost of the first summary of a very long conversation.
        start = max(0, until - FARTHEST) if summary is None else summary.messages
        while start < until:
            limit = min(CHUNK, until + AHEAD - start)
            entries = await self.store.page(conversation_id, limit=limit, offset=start)
            if not entries:
                break
            text = await self._summarized(summarizer, summary, entries)
            start += len(entries)
            if summary is not None:
                await self._check_unchanged(conversation_id, summarizer, summary, version)
            summary = Summary(
                text=text,
                by=summarizer.name,
                messages=start,
                last_sequence=entries[-1].sequence,
                made_at=self.store.now(),
            )
            version = await self._store(conversation_id, summary, version, entries)
        return summary

    async def _summarized(
        self, summarizer: Summarizer, summary: Summary | None, entries: Sequence[Entry]
    ) -> str:
        messages = [
            # A summary says what was said; words that were not heard matter only while they are recent.
            cut_at_interruption(entry.message, with_unheard=False)
            for entry in entries
            if unreadable_reason(entry) is None
        ]
        earlier = "" if summary is None else summary.text
        return await summarizer.summarize(earlier, messages, max_tokens=self.config.summary_tokens)

    async def _is_valid(self, conversation_id: str, summary: Summary) -> bool:
        """Return whether its last message is still in place; a message with an earlier time moves it."""
        last = await self.store.page(conversation_id, limit=1, offset=summary.messages - 1)
        return [entry.sequence for entry in last] == [summary.last_sequence]

    async def _check_unchanged(
        self, conversation_id: str, summarizer: Summarizer, summary: Summary, version: int
    ) -> None:
        """Raise `DocumentConflict` when the summary to extend was removed or replaced.

        Its version is not sufficient: after a redaction has removed a summary, the next one starts at version
        1 again.
        """
        kept, _ = await self._stored_summary(conversation_id, summarizer)
        if kept != summary:
            raise DocumentConflict(KIND, summarizer.name, expected=version, actual=0)

    async def _store(
        self, conversation_id: str, summary: Summary, version: int, entries: Sequence[Entry]
    ) -> int:
        kept = await self.store.put_document(
            KIND,
            summary.by,
            encode_summary(summary),
            conversation_id=conversation_id,
            expected_version=version,
        )
        # A redaction in the meantime removed the previous summary, but not this one.
        offset = summary.messages - len(entries)
        now = await self.store.page(conversation_id, limit=len(entries), offset=offset)
        if fingerprint(now) != fingerprint(entries):
            await self.store.delete_document(KIND, summary.by, conversation_id=conversation_id)
            raise DocumentConflict(KIND, summary.by, expected=kept.version, actual=0)
        return kept.version

    # In a context

    def budget(self, policy: WindowPolicy) -> int:
        """Return the tokens for a summary; 0 for a window that is filtered by agent or tag."""
        if self.resources.summarizer is None or policy.agent_name is not None or policy.tags:
            return 0
        tokens = self.config.summary_tokens if policy.summary_tokens is None else policy.summary_tokens
        return tokens if policy.max_tokens is None else min(tokens, policy.max_tokens // SHARE)

    async def text_for(
        self, conversation_id: str, context: Context, budget: int
    ) -> tuple[Summary | None, str | None]:
        """Return the summary of the messages before this window, and its text. Start extending it if it is
        too short.
        """
        until = context.report.before_window
        if not budget or not until:
            return None, None
        try:
            summary = await self.summary(conversation_id)
        except StoreError as error:
            log.warning("the context has no summary: %s", describe(error))
            return None, None
        if (summary is None or summary.messages < until) and not self.store.degraded:
            work = self._extend(conversation_id, until)
            self.resources.start(self.owner, conversation_id, work)
        if summary is None:
            return None, None
        return summary, shortened(summary, tokens=budget, count=(await self.intake.line_counter()).count_text)
