"""Retention rules: how long an owner's conversations are kept, and the sweep that applies them."""

import asyncio
import logging
import random
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts.listing import every_record
from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    DocumentConflict,
    InvalidInput,
    StoreError,
    shown,
)
from aforesaid.intake.messages import OwnerImages
from aforesaid.model.conversations import Changes, Conversation, check_span
from aforesaid.model.ids import conversation_key, parse_uuid
from aforesaid.model.lifetimes import (
    DOCUMENT_KEY,
    DOCUMENT_KIND,
    Applied,
    Lifetime,
    RetentionRules,
    decode_rules,
    encode_rules,
    lifetime_of,
    spoken_span,
)
from aforesaid.notes.records import purge_notes
from aforesaid.telemetry import describe, events
from aforesaid.transfer.owner_scope import OwnerScope

# Retention rules: how long an owner's conversations are kept.


log = logging.getLogger("aforesaid.retention")

# The most conversations in one listing.
AT_MOST = 10_000


class Expiring(Struct, frozen=True, kw_only=True):
    """A conversation that a purge will remove, with the reason and without content."""

    conversation_id: str
    expires_at: datetime
    last_activity: datetime
    messages: int
    why: str


class Lifetimes:
    """One owner's retention rules and their effect on conversations."""

    def __init__(self, scope: OwnerScope, images: OwnerImages, *, default: Lifetime) -> None:
        self.scope = scope
        self.store = scope.store
        self._images = images
        self._default = default

    async def purge_expired(self) -> int:
        """Remove this owner's expired conversations and notes; return how many conversations."""
        whole = await self.store.authoritative()
        purged = await whole.purge_expired()
        await purge_notes(whole)
        await self._images.purge(whole)
        events.conversations_expired(purged)
        return purged

    async def retention(self) -> RetentionRules:
        """Return this owner's own retention rules."""
        return (await self._rules())[0]

    async def set_retention(self, rules: RetentionRules, *, inherit: Collection[str] = ()) -> int:
        """Set the rules and apply them; return how many lifetimes changed.

        Rules for single conversations stay, unless these rules contain them, or `inherit` does: such a
        conversation follows the general rules again. A changed lifetime counts from now.
        """
        if not isinstance(rules, RetentionRules):
            raise InvalidInput(f"rules must be RetentionRules; got {shown(rules)}", field="rules")
        if isinstance(inherit, str) or not isinstance(inherit, Collection):
            raise InvalidInput(f"inherit must be a list of ids; got {shown(inherit)}", field="inherit")
        inheriting = {self._id_of(one, field="inherit") for one in inherit}
        own = {self._id_of(one, field="conversations"): ttl for one, ttl in rules.conversations.items()}
        await self.change(
            lambda current: replace(rules, conversations={**current.without(inheriting).conversations, **own})
        )
        return await self.apply_retention()

    def _id_of(self, conversation_id: str, *, field: str) -> str:
        return conversation_key(conversation_id, owner=self.store.owner, field=field).id

    async def apply_retention(self) -> int:
        """Apply the rules to every conversation; return how many lifetimes changed."""
        records = await self._every_record()
        rules = await self.retention()
        changed = 0
        for record in records:
            changed += await self._apply(record, rules) is not record
        return changed

    async def lifetime(self, conversation_id: str) -> Applied:
        """Return the lifetime of a conversation and the reason. Raise `ConversationNotFound`."""
        record = await self.store.get(conversation_id)
        if record is None:
            raise ConversationNotFound(conversation_id)
        return self.applied(record, await self.retention())

    async def expiring(self, within: timedelta = timedelta(0), *, limit: int = AT_MOST) -> list[Expiring]:
        """Return what a purge would remove now, or after some time, and the reason: a dry run."""
        if within:
            check_span(within, field="within")
        by = self.store.now() + within
        whole = await self.store.authoritative()
        rules = await self.retention()
        return [self._expiring(record, rules) for record in await whole.expired(by=by, limit=limit)]

    def _expiring(self, record: Conversation, rules: RetentionRules) -> Expiring:
        assert record.expires_at is not None
        applied = self.applied(record, rules)
        why = applied.why if applied.ttl == record.ttl else f"{_spoken(record.ttl)}, as it was stored"
        return Expiring(
            conversation_id=record.id,
            expires_at=record.expires_at,
            last_activity=record.last_activity,
            messages=record.message_count,
            why=why,
        )

    def applied(self, record: Conversation, rules: RetentionRules) -> Applied:
        return lifetime_of(record, rules, given=self.scope.rules, default=self._default)

    async def _rules(self) -> tuple[RetentionRules, int]:
        document = await self.store.get_document(DOCUMENT_KIND, DOCUMENT_KEY)
        return (RetentionRules(), 0) if document is None else (decode_rules(document.data), document.version)

    async def change(self, change: Any) -> None:
        """Change the rules. Retry after a concurrent change, so that none is lost."""
        while True:
            current, version = await self._rules()
            # Rules of removed conversations would accumulate in the document for ever.
            removed = [one for one in current.conversations if await self.store.get(one) is None]
            rules = change(current.without(removed))
            if rules == current:
                return
            try:
                await self.store.put_document(
                    DOCUMENT_KIND, DOCUMENT_KEY, encode_rules(rules), expected_version=version
                )
            except DocumentConflict:
                continue
            return

    async def for_new(self, record: Conversation) -> Conversation:
        """Apply the owner's rules to a new conversation. A store failure must not prevent the conversation:
        it then keeps its initial lifetime.
        """
        try:
            return await self._apply(record, await self.retention())
        except StoreError as error:
            log.warning(
                "conversation %s does not follow the retention rules yet: %s", record.id, describe(error)
            )
            return record

    async def _apply(self, record: Conversation, rules: RetentionRules) -> Conversation:
        """Return the record with the lifetime that the rules give it."""
        ttl = self.applied(record, rules).ttl
        if ttl == record.ttl:
            return record
        try:
            return await self.store.update(record.id, Changes(ttl=ttl))
        except ConversationNotFound:  # removed meanwhile
            return record

    async def with_lifetime(self, conversation_id: str, changes: Changes) -> Changes:
        """Add the lifetime that follows from the changes: a tag or a channel may have a rule."""
        given = changes.given()
        labels = {name: given[name] for name in ("tags", "channel") if name in given}
        if "ttl" in given or not labels:
            return changes
        rules = await self.retention()
        # Most owners have no rules: then a change of tags needs no further read.
        if not rules and not self.scope.rules:
            return changes
        record = await self.store.get(conversation_id)
        if record is None:
            raise ConversationNotFound(conversation_id)
        ttl = self.applied(record.with_(**labels), rules).ttl
        return changes if ttl == record.ttl else replace(changes, ttl=ttl)

    async def remember(self, conversation_id: str, ttl: Lifetime) -> None:
        """Store a lifetime that was set for one conversation. It takes precedence over every other rule."""
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        await self.change(lambda rules: rules.for_conversation(conversation_id, ttl))

    async def _every_record(self) -> list[Conversation]:
        return [record async for record in every_record(self.store)]


def _spoken(ttl: Lifetime) -> str:
    return "keep" if ttl is None else spoken_span(ttl)


# The sweep: periodic removal of expired data and archiving of old conversations.
#
# Expired data is never returned, swept or not; the sweep only frees space. Several processes may sweep one
# store at once: one of them removes and counts each conversation.


# Frequent enough that expired data does not stay long, rare enough to cost nothing.
SWEEP_EVERY = timedelta(hours=1)
# The random part of an interval, as a fraction.
JITTER = 0.5


class Sweepable(Protocol):
    """A memory, or anything else with periodic maintenance."""

    async def sweep(self) -> int: ...


async def sweep_forever(memory: Sweepable, *, every: timedelta = SWEEP_EVERY) -> None:
    """Sweep at intervals until cancelled. A failed sweep is logged and retried at the next interval."""
    while True:
        await asyncio.sleep(pause(every))
        await sweep_once(memory)


def pause(every: timedelta) -> float:
    """Return the seconds to the next sweep: random, so that the processes of one store do not sweep
    at once.
    """
    return every.total_seconds() * random.uniform(1 - JITTER, 1 + JITTER)


async def sweep_once(memory: Sweepable) -> int:
    """Run one sweep; return how many expired conversations were removed."""
    try:
        purged = await memory.sweep()
    except AforesaidError as error:
        log.warning("sweep failed: %s", describe(error))
        return 0
    if purged:
        log.info("sweep removed %d expired conversations", purged)
    return purged
