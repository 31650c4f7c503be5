"""Record the events of conversations: assignments, statuses, merges.

An event is written after the change that it describes, and only for changes of status or assignee, so
appending costs nothing. Where it cannot be written, the change itself stays, and the log says so.
"""

import logging

from msgspec import UNSET

from aforesaid.analytics.records import CHANGED, CLOSED, EVENTS, KEY, Event, decode, encode
from aforesaid.contracts import ConversationStore
from aforesaid.errors import AforesaidError, ConversationNotFound, DocumentConflict
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Changes
from aforesaid.model.participants import participant_of
from aforesaid.telemetry import describe
from aforesaid.telemetry import events as measure

log = logging.getLogger("aforesaid.analytics")

# The most events of one conversation; later ones are not recorded.
MOST_EVENTS = 10_000


async def record_changes(store: ConversationStore, conversation_id: str, changes: Changes) -> None:
    """Record what these changes of a record mean for analytics."""
    at = to_micros(store.now())
    by = participant_of(store)
    events = []
    if changes.assigned_to is not UNSET:
        events.append(Event(kind="assigned", at=at, value=changes.assigned_to, by=by))
    if changes.status is not UNSET:
        events.append(Event(kind="status", at=at, value=changes.status, by=by))
    if events:
        await record_events(store, conversation_id, events)


async def record_merge(store: ConversationStore, conversation_id: str) -> None:
    """Record that a branch was merged into the conversation."""
    await record_events(store, conversation_id, [Event(kind="merged", at=to_micros(store.now()))])


async def record_events(store: ConversationStore, conversation_id: str, events: list[Event]) -> None:
    """Append events to those of the conversation. A failure is logged and raises nothing."""
    # A participant has no owner's documents, so events go through the owner's store.
    whole: ConversationStore = store if participant_of(store) is None else store.inner  # type: ignore[attr-defined]
    try:
        _measure(await _append(whole, conversation_id, events), events)
        await whole.put_document(CHANGED, conversation_id, b"")
    except ConversationNotFound:
        return  # removed meanwhile, with its events
    except AforesaidError as error:
        log.warning("conversation %s: events are not recorded: %s", conversation_id, describe(error))


def _measure(known: list[Event], events: list[Event]) -> None:
    """Count the events for metrics. Closing twice is one event, as in the reports."""
    is_closed = _is_closed(known)
    for one in events:
        if one.kind != "status":
            if one.kind == "merged" or one.value is not None:
                measure.conversation_event(one.kind)
        elif (one.value in CLOSED) != is_closed:
            is_closed = not is_closed
            measure.conversation_event("closed" if is_closed else "reopened")


def _is_closed(known: list[Event]) -> bool:
    statuses = (one.value for one in reversed(known) if one.kind == "status")
    return next(statuses, None) in CLOSED


async def _append(store: ConversationStore, conversation_id: str, events: list[Event]) -> list[Event]:
    """Append the events; return those before them."""
    while True:
        found = await store.get_document(EVENTS, KEY, conversation_id=conversation_id)
        known = [] if found is None else decode(found.data, list[Event])
        if len(known) >= MOST_EVENTS:
            return known
        try:
            await store.put_document(
                EVENTS,
                KEY,
                encode([*known, *events]),
                conversation_id=conversation_id,
                expected_version=0 if found is None else found.version,
            )
        except DocumentConflict:
            continue
        return known


async def mark_changed(store: ConversationStore, conversation_id: str) -> None:
    """Mark the conversation for the next count. A failure is logged and raises nothing."""
    whole: ConversationStore = store if participant_of(store) is None else store.inner  # type: ignore[attr-defined]
    try:
        await whole.put_document(CHANGED, conversation_id, b"")
    except AforesaidError as error:
        log.warning("conversation %s: late messages are not counted: %s", conversation_id, describe(error))


async def events_of(store: ConversationStore, conversation_id: str) -> list[Event]:
    """Return the recorded events of a conversation, oldest first."""
    found = await store.get_document(EVENTS, KEY, conversation_id=conversation_id)
    return [] if found is None else decode(found.data, list[Event])
