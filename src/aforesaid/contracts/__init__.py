"""What a store is, a token counter, an agent, stated once. Below: values. Above: who writes or uses one.

Read `stores` first, then `entries` and `documents`; `powers` are what some stores can do besides,
`guests` what is brought along from elsewhere.

A `Backend` is opened from a URL and owns connections, schema and sweeping. It hands out one
`ConversationStore` per owner, and nothing on that store takes an owner, so nothing can forget to.
`aforesaid.testing.StoreContract` is this page as tests: a class that passes it is a store.

The rules that types cannot say:

- A conversation that is not there, has expired, or belongs to another owner is one and the same:
  `get` and `session` answer None, everything else raises `ConversationNotFound`.
- An append is one turn and one transaction: all of it is stored, or nothing. When it returns, the
  turn is as durable as the store can make it. It reads nothing of the past; its cost does not grow.
- A message id is an idempotency key within its conversation. A message whose id is known already
  and says the same is not stored again; one that says something else raises `MessageConflict`.
- Messages read back in order of time, ties in order of arrival. A message without a timestamp gets
  the moment it is stored, by `conversations.stamp_for`, one moment for the whole turn: so turns
  that meet never interleave.
- A caller that is cancelled leaves a whole turn or none.
- `restore` puts a conversation where it was read from elsewhere, numbers and moments included. It
  alone sets what other calls derive. What has expired and is brought back alive starts empty, as
  with `create`.
- A message that cannot be read does not keep the others from being read: its entry says why, in
  `unreadable`, and its message is an empty one that holds the place.
- A document without a conversation is its owner's and stays until it is deleted. One with a
  conversation is derived from that conversation's log and goes with it: when it is deleted, purged
  or has expired, and when its history is rewritten. An append leaves it as it is.
- Every operation that reads everything in order to move, copy, delete, count or verify reads from
  `authoritative()`. A page of records that comes from a last known state has `degraded` set.
- Errors are those of `aforesaid.errors`; a driver's own errors never come through.
"""

from aforesaid.contracts.capabilities import (
    JOURNAL,
    Change,
    Erasing,
    Holds,
    LogEnd,
    LogSnapshot,
    Match,
    Matches,
    Migrated,
    Nearby,
    Nearest,
    Noted,
    Progress,
    Reindexed,
    SchemaVersion,
    Sealable,
    Searchable,
    SnapshotReader,
    Spooling,
    Watchable,
    note,
)
from aforesaid.contracts.documents import (
    LARGEST_DOCUMENT,
    LONGEST_KEY,
    LONGEST_KIND,
    Document,
    Listing,
    Place,
    check_data,
    check_expected,
    parse_holder,
    parse_kind,
    parse_listing,
    parse_place,
    restorable_documents,
)
from aforesaid.contracts.entries import (
    Appended,
    Entry,
    Position,
    check_head,
    check_not_in_part,
    check_position,
    check_says_the_same,
    entries_without_head,
    fingerprint,
    keeps_words,
    replaced,
    replaced_id,
    replacing,
    restorable,
    seen_head,
    set_aside,
    why_unreadable,
    with_head,
    without_head,
)
from aforesaid.contracts.plugins import (
    PCM,
    Agent,
    Ask,
    Audio,
    AudioFormat,
    Embedder,
    Listening,
    OnText,
    Reply,
    Segment,
    Stop,
    Summarizer,
    TokenCounter,
    Transcriber,
    Transcript,
    Usage,
)
from aforesaid.contracts.stores import Backend, ConversationStore, Tally

__all__ = [
    "JOURNAL",
    "LARGEST_DOCUMENT",
    "LONGEST_KEY",
    "LONGEST_KIND",
    "PCM",
    "Agent",
    "Appended",
    "Ask",
    "Audio",
    "AudioFormat",
    "Backend",
    "Change",
    "ConversationStore",
    "Document",
    "Embedder",
    "Entry",
    "Erasing",
    "Holds",
    "Listening",
    "Listing",
    "LogEnd",
    "LogSnapshot",
    "Match",
    "Matches",
    "Migrated",
    "Nearby",
    "Nearest",
    "Noted",
    "OnText",
    "Place",
    "Position",
    "Progress",
    "Reindexed",
    "Reply",
    "SchemaVersion",
    "Sealable",
    "Searchable",
    "Segment",
    "SnapshotReader",
    "Spooling",
    "Stop",
    "Summarizer",
    "Tally",
    "TokenCounter",
    "Transcriber",
    "Transcript",
    "Usage",
    "Watchable",
    "check_data",
    "check_expected",
    "check_head",
    "check_not_in_part",
    "check_position",
    "check_says_the_same",
    "entries_without_head",
    "fingerprint",
    "keeps_words",
    "note",
    "parse_holder",
    "parse_kind",
    "parse_listing",
    "parse_place",
    "replaced",
    "replaced_id",
    "replacing",
    "restorable",
    "restorable_documents",
    "seen_head",
    "set_aside",
    "why_unreadable",
    "with_head",
    "without_head",
]
