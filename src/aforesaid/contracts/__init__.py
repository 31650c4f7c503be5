"""The contract of a store, its optional capabilities, and the plug-ins an application provides.

Read in this order: `stores` (the contract), `entries` (messages in a log), `documents` (data next to the
log), `capabilities` (optional protocols, queried with `capability`), `plugins` (embedders, token counters,
summarizers, agents, transcribers).

A `Backend` is opened from a URL. It owns the connections, the schema and the purge. `Backend.of(owner)`
returns a `ConversationStore` that is bound to one owner; no method of a store takes an owner, so no call can
forget it. `aforesaid.testing.StoreContract` states this page as tests: a class that passes them is a store.
`aforesaid.stores.key_value.KeyValueBackend` derives all of it from three methods on ordered keys.

Rules that types cannot express:

Visibility
- A conversation that is missing, has expired or belongs to another owner looks the same: `get` and `session`
  return None, every other method raises `ConversationNotFound`.
- Every error is one of `aforesaid.errors`. A driver's error never leaves a store.

Appending
- `append` stores one turn in one transaction: all of it or nothing, also when the caller is cancelled. When
  it returns, the turn is as durable as the store can make it. It reads only the end of the log, so its cost
  does not grow.
- A message id is an idempotency key within its conversation. A known id with the same content is not stored
  again; a known id with other content raises `MessageConflict`.
- A message without a timestamp gets the time of storing from `conversations.stamp_for`. One turn gets one
  time, so concurrent turns never interleave.

Reading
- Messages are ordered by time; messages of the same time are ordered by arrival.
- A damaged message does not prevent reading the others. Its entry gives the reason in `unreadable` and
  contains an empty message as a placeholder.
- Operations that read everything (move, copy, delete, count, verify) read from `authoritative()`. A page of
  records from the last known state has `degraded` set.

Restoring
- `restore` stores a conversation exactly as it was read elsewhere, including sequence numbers and times. No
  other method sets values that a store derives. Restoring an expired conversation as a live one starts with
  an empty log, as `create` does.

Documents
- A document without a conversation id belongs to the owner and stays until it is deleted.
- A document with a conversation id is derived from that conversation's log. It is removed when the
  conversation is deleted, purged or expired, and when its log is rewritten. `append` leaves it unchanged.
"""

from aforesaid.contracts.capabilities import (
    JOURNAL,
    Auditable,
    Auditing,
    Bounded,
    Branchable,
    Change,
    ChangeTracking,
    CopyHolder,
    FileBacked,
    Label,
    LabelChanges,
    Labelled,
    LogEnd,
    LogSnapshot,
    Match,
    Matches,
    Measurable,
    Migratable,
    Progress,
    RecordChanges,
    Reindexable,
    SchemaVersion,
    Scrubbable,
    Sealable,
    Searchable,
    ServerBacked,
    SnapshotReader,
    Spooling,
    VectorMatch,
    VectorSearchable,
    Watchable,
    Wrapper,
    audit_action,
    capability,
    label_of,
)
from aforesaid.contracts.documents import (
    LARGEST_DOCUMENT,
    LONGEST_KEY,
    LONGEST_KIND,
    OPEN_TURNS,
    STATE,
    Document,
    Listing,
    Place,
    check_data,
    check_expected,
    check_restorable_documents,
    is_derived,
    parse_holder,
    parse_kind,
    parse_listing,
    parse_place,
)
from aforesaid.contracts.entries import (
    Appended,
    Entry,
    Position,
    check_head,
    check_not_partly_stored,
    check_position,
    check_restorable,
    check_same_content,
    entries_without_head,
    fingerprint,
    replaced_entry,
    replaced_id,
    replacement_message,
    same_content,
    split_head,
    unreadable_entry,
    unreadable_reason,
    with_head,
    without_head,
)
from aforesaid.contracts.plugins import (
    PCM,
    Agent,
    Ask,
    Audio,
    AudioFormat,
    DetectedNote,
    Embedder,
    NameAwareTranscriber,
    NoteDetector,
    OnText,
    Reply,
    Segment,
    Stop,
    StreamingTranscriber,
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
    "OPEN_TURNS",
    "PCM",
    "STATE",
    "Agent",
    "Appended",
    "Ask",
    "Audio",
    "AudioFormat",
    "Auditable",
    "Auditing",
    "Backend",
    "Bounded",
    "Branchable",
    "Change",
    "ChangeTracking",
    "ConversationStore",
    "CopyHolder",
    "DetectedNote",
    "Document",
    "Embedder",
    "Entry",
    "FileBacked",
    "Label",
    "LabelChanges",
    "Labelled",
    "Listing",
    "LogEnd",
    "LogSnapshot",
    "Match",
    "Matches",
    "Measurable",
    "Migratable",
    "NameAwareTranscriber",
    "NoteDetector",
    "OnText",
    "Place",
    "Position",
    "Progress",
    "RecordChanges",
    "Reindexable",
    "Reply",
    "SchemaVersion",
    "Scrubbable",
    "Sealable",
    "Searchable",
    "Segment",
    "ServerBacked",
    "SnapshotReader",
    "Spooling",
    "Stop",
    "StreamingTranscriber",
    "Summarizer",
    "Tally",
    "TokenCounter",
    "Transcriber",
    "Transcript",
    "Usage",
    "VectorMatch",
    "VectorSearchable",
    "Watchable",
    "Wrapper",
    "audit_action",
    "capability",
    "check_data",
    "check_expected",
    "check_head",
    "check_not_partly_stored",
    "check_position",
    "check_restorable",
    "check_restorable_documents",
    "check_same_content",
    "entries_without_head",
    "fingerprint",
    "is_derived",
    "label_of",
    "parse_holder",
    "parse_kind",
    "parse_listing",
    "parse_place",
    "replaced_entry",
    "replaced_id",
    "replacement_message",
    "same_content",
    "split_head",
    "unreadable_entry",
    "unreadable_reason",
    "with_head",
    "without_head",
]
