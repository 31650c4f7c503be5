"""Retention rules: how long a conversation is kept, and why.

A rule is a lifetime, or None to keep. The most specific rule applies:

    conversation    set for this conversation
    tag             of several tags with rules, the shortest lifetime; None is the longest
    channel
    owner           this owner's own default
    default         the default of the memory

At each level the owner's rule precedes the memory's. Of two tags with the same lifetime, the first in sort
order is reported. All functions are pure.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import force_setattr, replace

from aforesaid._internal.arguments import validated
from aforesaid.errors import InvalidInput, InvalidSetting, StoreDamaged, shown
from aforesaid.model.conversations import DEFAULT_TTL, Conversation, check_channel, check_span
from aforesaid.model.ids import parse_conversation, parse_uuid
from aforesaid.model.messages import parse_tags

Lifetime: TypeAlias = timedelta | None
Step = Literal["conversation", "tag", "channel", "owner", "default"]

DOCUMENT_KIND = "retention"
DOCUMENT_KEY = "rules"


@validated
class RetentionRules(Struct, frozen=True, kw_only=True):
    """Lifetimes by owner, channel, tag and conversation. Without a rule the next level applies."""

    owner: Lifetime | UnsetType = UNSET
    channels: dict[str, Lifetime] = {}
    tags: dict[str, Lifetime] = {}
    conversations: dict[str, Lifetime] = {}

    def __post_init__(self) -> None:
        if self.owner is not UNSET:
            check_span(self.owner, field="owner")
        for field in ("channels", "tags", "conversations"):
            check_lifetimes(getattr(self, field), field)
        for channel in self.channels:
            check_channel(channel, field="channels")
        parse_tags(tuple(self.tags))
        given = {
            parse_conversation(one, field="conversations"): ttl for one, ttl in self.conversations.items()
        }
        force_setattr(self, "conversations", given)

    def __bool__(self) -> bool:
        """Whether there is any rule."""
        return self.owner is not UNSET or bool(self.channels or self.tags or self.conversations)

    def for_conversation(self, conversation_id: str, ttl: Lifetime) -> "RetentionRules":
        """Return these rules with one for a conversation."""
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        lifetime = check_span(ttl, field="ttl")
        return replace(self, conversations={**self.conversations, conversation_id: lifetime})

    def without(self, conversation_ids: Iterable[str]) -> "RetentionRules":
        """Return these rules without those for some conversations."""
        removed = set(conversation_ids)
        remaining = {one: ttl for one, ttl in self.conversations.items() if one not in removed}
        return self if len(remaining) == len(self.conversations) else replace(self, conversations=remaining)


class Applied(Struct, frozen=True, kw_only=True):
    """The lifetime of a conversation and the rule that sets it."""

    ttl: Lifetime
    step: Step
    name: str = ""
    """The conversation, tag or channel of the rule."""

    @property
    def why(self) -> str:
        """The rule in words."""
        lifetime = "keep" if self.ttl is None else spoken_span(self.ttl)
        return (
            f"{lifetime}, by {self.step} {self.name}".strip() if self.name else f"{lifetime}, by {self.step}"
        )


def lifetime_of(
    record: Conversation,
    own: RetentionRules,
    *,
    given: RetentionRules | None = None,
    default: Lifetime = DEFAULT_TTL,
) -> Applied:
    """Return the lifetime of the record and the rule. `own` are the owner's rules, `given` the memory's."""
    layers = (own, given or RetentionRules())
    # Levels outside, rule sets inside: the memory's rule for a tag precedes the owner's for a channel.
    for find in (_by_conversation, _by_tag, _by_channel, _by_owner):
        for rules in layers:
            found = find(record, rules)
            if found is not None:
                return found
    return Applied(ttl=default, step="default")


def _by_conversation(record: Conversation, rules: RetentionRules) -> Applied | None:
    if record.id not in rules.conversations:
        return None
    return Applied(ttl=rules.conversations[record.id], step="conversation", name=record.id)


def _by_tag(record: Conversation, rules: RetentionRules) -> Applied | None:
    ruled = sorted(tag for tag in record.tags if tag in rules.tags)
    if not ruled:
        return None
    tag = min(ruled, key=lambda tag: _length(rules.tags[tag]))
    return Applied(ttl=rules.tags[tag], step="tag", name=tag)


def _by_channel(record: Conversation, rules: RetentionRules) -> Applied | None:
    if record.channel not in rules.channels:
        return None
    return Applied(ttl=rules.channels[record.channel], step="channel", name=record.channel)


def _by_owner(record: Conversation, rules: RetentionRules) -> Applied | None:
    return None if rules.owner is UNSET else Applied(ttl=rules.owner, step="owner")


def _length(ttl: Lifetime) -> timedelta:
    return timedelta.max if ttl is None else ttl


def spoken_span(span: timedelta) -> str:
    """Return a duration in words."""
    seconds = span.total_seconds()
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds / size
            return f"{count:g} {unit}{'' if count == 1 else 's'}"
    return f"{seconds:g} seconds"


class Archiving(Struct, frozen=True, kw_only=True):
    """When conversations are archived and archives deleted, counted from the last activity.

    A lifetime that ends before `after` wins: expired conversations are purged, not archived.
    """

    after: timedelta
    delete_after: timedelta | None = None
    """None keeps archives."""

    def __post_init__(self) -> None:
        check_span(self.after, field="after")
        check_span(self.delete_after, field="delete_after")
        if self.after is None or (self.delete_after is not None and self.delete_after <= self.after):
            raise InvalidSetting(
                "an archive must be deleted later than it is made: delete_after > after", field="delete_after"
            )


# The rules as a document


def encode_rules(rules: RetentionRules) -> bytes:
    """Return the rules as JSON; a lifetime is an ISO 8601 duration, or null to keep."""
    return msgspec.json.encode(rules)


def decode_rules(data: bytes) -> RetentionRules:
    """Return the rules; the inverse of `encode_rules`."""
    try:
        return msgspec.json.decode(data, type=RetentionRules)
    except (msgspec.MsgspecError, InvalidInput) as error:
        raise StoreDamaged(f"the stored retention rules cannot be read: {error}") from error


def days(value: Any, *, field: str) -> Lifetime:
    """Return a lifetime from a number of days; 0 means keep."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise InvalidInput(
            f"{field} must be a number of days, or 0 to keep; got {shown(value)}", field=field, value=value
        )
    try:
        return check_span(timedelta(days=value), field=field) if value else None
    except OverflowError:
        raise InvalidInput(f"{field} must be fewer days; got {shown(value)}", field=field) from None


def check_lifetimes(lifetimes: Mapping[str, Lifetime], field: str) -> None:
    """Raise `InvalidInput` unless all values are lifetimes."""
    if not isinstance(lifetimes, Mapping):
        raise InvalidInput(f"{field} must be lifetimes by name; got {shown(lifetimes)}", field=field)
    for name, ttl in lifetimes.items():
        check_span(ttl, field=f"{field}[{shown(name)}]")
