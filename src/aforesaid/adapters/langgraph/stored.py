"""How checkpoints are stored: the documents of a thread, their form and their keys.

state/langgraph.checkpoints   one per checkpoint, newest first by key
state/langgraph.values        large channel values, by digest
langgraph.inputs              the input of a run, until a message is redacted
langgraph.writes              pending writes, one per checkpoint and task
langgraph.unchanged           exists while no message was redacted; cached messages depend on it
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from langchain_core.runnables import RunnableConfig

from aforesaid.adapters.langgraph.values import Items, Ranges, to_ranges, to_sequences
from aforesaid.contracts import Document

CHECKPOINTS = "state/langgraph.checkpoints"
VALUES = "state/langgraph.values"
INPUTS = "langgraph.inputs"
WRITES = "langgraph.writes"
UNCHANGED = "langgraph.unchanged"
INPUT_CHANNEL = "__start__"
# Larger values are documents of their own, which later checkpoints share.
INLINE_BYTES = 1024
# Newest first: documents are listed by key in ascending order, and checkpoint ids ascend with time.
_INVERTED = {ord(one): chr(0x7E - ord(one) + 0x20) for one in map(chr, range(0x20, 0x7F))}


class StoredCheckpoint(msgspec.Struct, omit_defaults=True):
    """A checkpoint as it is stored."""

    id: str
    ns: str
    checkpoint: tuple[str, bytes]
    metadata: tuple[str, bytes]
    versions: dict[str, Any]
    parent: str | None = None
    run_id: str | None = None
    inline: dict[str, tuple[str, bytes]] = {}
    shared: dict[str, tuple[str, str]] = {}
    """The type and the digest of values in documents of their own."""
    inputs: dict[str, tuple[str, str]] = {}
    logged: dict[str, Ranges] = {}
    """The messages of a channel, in the log."""


class StoredWrite(msgspec.Struct, array_like=True):
    """One pending write of a task."""

    index: int
    channel: str
    type: str
    data: bytes


class StoredWrites(msgspec.Struct):
    """The pending writes of one task."""

    task_id: str
    task_path: str
    writes: list[StoredWrite]


class CachedCheckpoint(msgspec.Struct):
    """The newest checkpoint of a thread that this process has seen, with its messages as objects."""

    stored: StoredCheckpoint
    channels: dict[str, Items]


def namespace_prefix(ns: str) -> str:
    return hashlib.sha256(ns.encode()).hexdigest()[:16] + "/"


def inverted_id(checkpoint_id: str) -> str:
    # The end sorts last, so that a longer id that continues this one comes before it.
    return checkpoint_id.translate(_INVERTED) + "\x7f"


def writes_prefix(ns: str, checkpoint_id: str) -> str:
    return f"{namespace_prefix(ns)}{checkpoint_id}/"


def decode_checkpoint(document: Document) -> StoredCheckpoint:
    return msgspec.msgpack.decode(document.data, type=StoredCheckpoint)


def channels_of(stored: StoredCheckpoint) -> set[str]:
    return {*stored.inline, *stored.shared, *stored.inputs, *stored.logged}


def merge_writes(
    earlier: Document | None, task_id: str, task_path: str, new: Sequence[StoredWrite]
) -> StoredWrites:
    if earlier is None:
        return StoredWrites(task_id, task_path, [*{write.index: write for write in new}.values()])
    before = msgspec.msgpack.decode(earlier.data, type=StoredWrites)
    writes = {write.index: write for write in before.writes}
    for write in new:
        if write.index < 0 or write.index not in writes:
            writes[write.index] = write
    return StoredWrites(task_id, before.task_path or task_path, [*writes.values()])


def digests_in(checkpoints: Sequence[StoredCheckpoint], field: str) -> set[str]:
    return {digest for one in checkpoints for _, digest in getattr(one, field).values()}


def with_places(stored: StoredCheckpoint, places: Mapping[int, int]) -> StoredCheckpoint:
    stored.logged = {
        channel: to_ranges([places[number] for number in to_sequences(ranges) if number in places])
        for channel, ranges in stored.logged.items()
    }
    return stored


def is_same_value(before: StoredCheckpoint, now: StoredCheckpoint, channel: str) -> bool:
    """Return whether a channel has the same version as in the parent, which stored its value."""
    version = now.versions.get(channel)
    return version is not None and before.versions.get(channel) == version and channel in channels_of(before)


def take_over(before: CachedCheckpoint, target: CachedCheckpoint, channel: str) -> None:
    for field in ("inline", "shared", "inputs", "logged"):
        values = getattr(before.stored, field)
        if channel in values:
            getattr(target.stored, field)[channel] = values[channel]
    if channel in before.channels:
        target.channels[channel] = before.channels[channel]


def thread_of(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


def namespace_of(config: RunnableConfig) -> str:
    return str(config["configurable"].get("checkpoint_ns", ""))


def config_of(thread: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}
