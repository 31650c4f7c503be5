"""Save LangGraph's checkpoints: messages in the log, everything else as documents of the conversation.

A thread is a conversation. `stored` lists its documents.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from aforesaid._internal.bounded import BoundedDict
from aforesaid.adapters._transcripts import Transcript, check_manager, conversations_named, documents_in
from aforesaid.adapters.langgraph.stored import (
    CHECKPOINTS,
    INLINE_BYTES,
    INPUT_CHANNEL,
    INPUTS,
    UNCHANGED,
    VALUES,
    WRITES,
    CachedCheckpoint,
    StoredCheckpoint,
    StoredWrite,
    StoredWrites,
    channels_of,
    config_of,
    decode_checkpoint,
    digests_in,
    inverted_id,
    is_same_value,
    merge_writes,
    namespace_of,
    namespace_prefix,
    take_over,
    thread_of,
    with_places,
    writes_prefix,
)
from aforesaid.adapters.langgraph.synchronous import SynchronousCalls
from aforesaid.adapters.langgraph.tags import matches, tags_of_run
from aforesaid.adapters.langgraph.values import (
    TAGS,
    Items,
    is_transcript,
    items_in,
    stored_items,
)
from aforesaid.contracts import Document
from aforesaid.errors import ConversationNotFound, DocumentConflict, InvalidInput
from aforesaid.memory.interface import ManagerProtocol

CACHED_THREADS = 64


class AforesaidSaver(SynchronousCalls):
    """A checkpoint saver over one owner's memory.

        saver = AforesaidSaver(memory.of("kim"))
        graph = builder.compile(checkpointer=saver)

    - `prefix` starts the names of the threads' conversations.
    - Messages of the state are in the log, once: windows, search, redaction, export and erasure work on them.
    """

    def __init__(
        self,
        manager: ManagerProtocol,
        *,
        prefix: str = "langgraph/",
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self.manager = check_manager(manager)
        self.prefix = prefix
        self._cache: BoundedDict[tuple[str, str], CachedCheckpoint] = BoundedDict(CACHED_THREADS)
        # The ids of conversations that exist: a write by id needs no look whether to create one.
        self._ids: BoundedDict[str, str] = BoundedDict(CACHED_THREADS * 16)

    # Reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with its pending writes: the one of the config, or the newest."""
        thread, ns = thread_of(config), namespace_of(config)
        stored = await self._find(thread, ns, get_checkpoint_id(config))
        return None if stored is None else await self._tuple(thread, stored)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  # the framework's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, newest first."""
        threads = await self._threads() if config is None else [thread_of(config)]
        wanted_ns = None if config is None else config["configurable"].get("checkpoint_ns")
        wanted_id = None if config is None else get_checkpoint_id(config)
        earlier = None if before is None else get_checkpoint_id(before)
        left = limit
        for thread in threads:
            for stored in await self._all(thread, wanted_ns):
                if (wanted_id and stored.id != wanted_id) or (earlier and stored.id >= earlier):
                    continue
                metadata = self.serde.loads_typed(stored.metadata)
                if not matches(metadata, filter):
                    continue
                if left is not None:
                    if left <= 0:
                        return
                    left -= 1
                yield await self._tuple(thread, stored)

    async def _find(self, thread: str, ns: str, checkpoint_id: str | None) -> StoredCheckpoint | None:
        prefix = namespace_prefix(ns)
        if checkpoint_id is not None:
            found = await self.manager.get_document(
                CHECKPOINTS, prefix + inverted_id(checkpoint_id), conversation_id=self._name(thread)
            )
            return None if found is None else decode_checkpoint(found)
        newest = await self.manager.list_documents(
            CHECKPOINTS, conversation_id=self._name(thread), after=prefix, limit=1
        )
        matching = [document for document in newest if document.key.startswith(prefix)]
        return decode_checkpoint(matching[0]) if matching else None

    async def _all(self, thread: str, ns: str | None) -> list[StoredCheckpoint]:
        found = await documents_in(
            self.manager,
            CHECKPOINTS,
            conversation_id=self._name(thread),
            prefix="" if ns is None else namespace_prefix(ns),
        )
        # Sorted here, because keys sort within a namespace only.
        stored = [decode_checkpoint(document) for document in found]
        return sorted(stored, key=lambda one: one.id, reverse=True)

    async def _threads(self) -> list[str]:
        named = await conversations_named(self.manager, self.prefix)
        return [(record.name or "").removeprefix(self.prefix) for record in named]

    async def _tuple(self, thread: str, stored: StoredCheckpoint) -> CheckpointTuple:
        checkpoint = self.serde.loads_typed(stored.checkpoint)
        # Independent reads: together they cost one round trip on a server.
        values, writes = await asyncio.gather(self._values(thread, stored), self._writes(thread, stored))
        checkpoint["channel_values"] = values
        return CheckpointTuple(
            config=config_of(thread, stored.ns, stored.id),
            checkpoint=checkpoint,
            metadata=self.serde.loads_typed(stored.metadata),
            parent_config=None if stored.parent is None else config_of(thread, stored.ns, stored.parent),
            pending_writes=writes,
        )

    async def _values(self, thread: str, stored: StoredCheckpoint) -> dict[str, Any]:
        values = {channel: self.serde.loads_typed(typed) for channel, typed in stored.inline.items()}
        for kind, references in ((VALUES, stored.shared), (INPUTS, stored.inputs)):
            for channel, (type_, digest) in references.items():
                found = await self.manager.get_document(kind, digest, conversation_id=self._name(thread))
                if found is not None:  # an input is removed when a message is redacted
                    values[channel] = self.serde.loads_typed((type_, found.data))
        if stored.logged:
            items = await self._items(thread, stored)
            values |= {channel: list(items[channel].messages) for channel in stored.logged}
        return values

    async def _items(self, thread: str, stored: StoredCheckpoint) -> dict[str, Items]:
        """Return the messages of each channel, from this process where they are current."""
        name = self._name(thread)
        unchanged = await self.manager.get_document(UNCHANGED, "log", conversation_id=name)
        cached = self._cache.get((thread, stored.ns))
        if unchanged is not None and cached is not None and cached.stored.id == stored.id:
            return cached.channels
        if unchanged is None:
            # Written before the log is read: a redaction in between removes it again.
            await self.manager.put_document(UNCHANGED, "log", b"1", conversation_id=name)
        entries = await Transcript(self.manager, name).entries()
        channels = {
            channel: items_in(entries, ranges, self.serde) for channel, ranges in stored.logged.items()
        }
        # An older checkpoint, as in time travel, must not replace the one that the next step needs.
        newest = cached is None or cached.stored.id <= stored.id
        if newest:
            self._cache[thread, stored.ns] = CachedCheckpoint(stored, channels)
        return channels

    async def _writes(self, thread: str, stored: StoredCheckpoint) -> list[tuple[str, str, Any]]:
        prefix = writes_prefix(stored.ns, stored.id)
        found = await documents_in(self.manager, WRITES, conversation_id=self._name(thread), prefix=prefix)
        tasks = [msgspec.msgpack.decode(document.data, type=StoredWrites) for document in found]
        ordered = sorted(
            ((task, write) for task in tasks for write in task.writes),
            key=lambda pair: writes_sort_key(pair[0].task_path, pair[0].task_id, pair[1].index),
        )
        return [
            (task.task_id, write.channel, self.serde.loads_typed((write.type, write.data)))
            for task, write in ordered
        ]

    # Writing

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint: its new messages in the log, then the checkpoint that refers to them."""
        thread, ns = thread_of(config), namespace_of(config)
        try:
            return await self._put(thread, ns, config, checkpoint, metadata)
        except ConversationNotFound:
            # The conversation was deleted elsewhere: what this process knows of it is void.
            self._forget(thread)
            return await self._put(thread, ns, config, checkpoint, metadata)

    async def _put(
        self,
        thread: str,
        ns: str,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
    ) -> RunnableConfig:
        parent_id = config["configurable"].get("checkpoint_id")
        before = await self._parent(thread, ns, parent_id)
        given: dict[str, Any] = dict(checkpoint)
        values: dict[str, Any] = given.pop("channel_values")
        described: dict[str, Any] = dict(get_checkpoint_metadata(config, metadata))
        tags = tags_of_run(config)
        if tags:
            described[TAGS] = list(tags)
        stored = StoredCheckpoint(
            id=checkpoint["id"],
            ns=ns,
            checkpoint=self.serde.dumps_typed(given),
            metadata=self.serde.dumps_typed(described),
            versions=dict(checkpoint["channel_versions"]),
            parent=parent_id,
            run_id=described.get("run_id"),
        )
        cached = CachedCheckpoint(stored, {})
        inputs: dict[str, bytes] = {}
        for channel, value in values.items():
            await self._put_value(thread, cached, channel, value, before, inputs, tags)
        key, data = namespace_prefix(ns) + inverted_id(stored.id), msgspec.msgpack.encode(stored)
        # Together: the store commits what waits in one transaction.
        document, *_ = await asyncio.gather(
            self._put_document(thread, CHECKPOINTS, key, data),
            *(self._put_document(thread, INPUTS, digest, data) for digest, data in inputs.items()),
        )
        if document.conversation_id is not None:
            self._ids[thread] = document.conversation_id
        self._cache[thread, ns] = cached
        return config_of(thread, ns, stored.id)

    async def _put_document(self, thread: str, kind: str, key: str, data: bytes) -> Document:
        return await self.manager.put_document(kind, key, data, conversation_id=self._place(thread))

    async def _parent(self, thread: str, ns: str, parent_id: str | None) -> CachedCheckpoint | None:
        cached = self._cache.get((thread, ns))
        if cached is not None and parent_id is not None and cached.stored.id == parent_id:
            return cached
        stored = None if parent_id is None else await self._find(thread, ns, parent_id)
        return None if stored is None else CachedCheckpoint(stored, {})

    async def _put_value(
        self,
        thread: str,
        target: CachedCheckpoint,
        channel: str,
        value: Any,
        before: CachedCheckpoint | None,
        inputs: dict[str, bytes],
        tags: Sequence[str],
    ) -> None:
        stored = target.stored
        # Most channels do not change in a step; they refer to what the parent stored.
        if before is not None and is_same_value(before.stored, stored, channel):
            take_over(before, target, channel)
            return
        known = None if before is None else before.channels.get(channel)
        if is_transcript(value, known):
            transcript = Transcript(self.manager, self._place(thread))
            items = await stored_items(transcript, value, known, self.serde, tags)
            target.channels[channel] = items
            stored.logged[channel] = items.ranges
            return
        type_, data = self.serde.dumps_typed(value)
        if channel != INPUT_CHANNEL and len(data) <= INLINE_BYTES:
            stored.inline[channel] = (type_, data)
            return
        digest = hashlib.sha256(data).hexdigest()
        if channel == INPUT_CHANNEL:
            stored.inputs[channel] = (type_, digest)
            inputs[digest] = data
        else:
            stored.shared[channel] = (type_, digest)
            await self._put_document(thread, VALUES, digest, data)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the pending writes of a task. A write that is stored already stays; control writes change."""
        thread, ns = thread_of(config), namespace_of(config)
        new = [
            StoredWrite(WRITES_IDX_MAP.get(channel, index), channel, *self.serde.dumps_typed(value))
            for index, (channel, value) in enumerate(writes)
        ]
        checkpoint_id = config["configurable"]["checkpoint_id"]
        key = writes_prefix(ns, checkpoint_id) + hashlib.sha256(task_id.encode()).hexdigest()[:32]
        earlier: Document | None = None
        while True:
            task = merge_writes(earlier, task_id, task_path, new)
            try:
                await self.manager.put_document(
                    WRITES,
                    key,
                    msgspec.msgpack.encode(task),
                    conversation_id=self._place(thread),
                    expected_version=0 if earlier is None else earlier.version,
                )
            except ConversationNotFound:
                self._forget(thread)
            except DocumentConflict:
                earlier = await self.manager.get_document(WRITES, key, conversation_id=self._name(thread))
            else:
                return

    # Removing and copying

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove a thread with its messages."""
        self._forget(thread_id)
        await self.manager.delete_conversation(self._name(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of these runs and their writes."""
        wanted = set(run_ids)
        if not wanted:
            return
        for thread in await self._threads():
            everything = await self._all(thread, None)
            gone = [one for one in everything if one.run_id in wanted]
            if gone:
                await self._remove(thread, gone, kept=[one for one in everything if one not in gone])

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove old checkpoints: all but the newest of each namespace, or all. Messages stay in the log."""
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput.not_in("strategy", strategy, ("keep_latest", "delete"))
        for thread in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(thread)
                continue
            everything = await self._all(thread, None)
            kept = self._needed(everything)
            await self._remove(thread, [one for one in everything if one not in kept], kept=kept)

    def _needed(self, everything: list[StoredCheckpoint]) -> list[StoredCheckpoint]:
        """Return the newest checkpoint of each namespace, and the ancestors that its delta channels need."""
        by_id = {(one.ns, one.id): one for one in everything}
        kept: list[StoredCheckpoint] = []
        for ns in {one.ns for one in everything}:
            newest = max((one for one in everything if one.ns == ns), key=lambda one: one.id)
            kept.append(newest)
            metadata = self.serde.loads_typed(newest.metadata)
            waiting = set(metadata.get("counters_since_delta_snapshot") or {})
            waiting -= channels_of(newest)
            ancestor = None if newest.parent is None else by_id.get((ns, newest.parent))
            while waiting and ancestor is not None:
                kept.append(ancestor)
                waiting -= channels_of(ancestor)
                ancestor = None if ancestor.parent is None else by_id.get((ns, ancestor.parent))
        return kept

    async def _remove(
        self, thread: str, gone: Sequence[StoredCheckpoint], *, kept: Sequence[StoredCheckpoint]
    ) -> None:
        self._forget(thread)
        name = self._name(thread)
        for one in gone:
            key = namespace_prefix(one.ns) + inverted_id(one.id)
            await self.manager.delete_document(CHECKPOINTS, key, conversation_id=name)
            prefix = writes_prefix(one.ns, one.id)
            for document in await documents_in(self.manager, WRITES, conversation_id=name, prefix=prefix):
                await self.manager.delete_document(WRITES, document.key, conversation_id=name)
        for kind, digests in ((VALUES, digests_in(kept, "shared")), (INPUTS, digests_in(kept, "inputs"))):
            for document in await documents_in(self.manager, kind, conversation_id=name):
                if document.key not in digests:
                    await self.manager.delete_document(kind, document.key, conversation_id=name)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread: messages, checkpoints, values and writes."""
        source, target = self._name(source_thread_id), self._name(target_thread_id)
        entries = await Transcript(self.manager, source).entries()
        places: dict[int, int] = {}
        for entry in entries:
            stored = await self.manager.append(target, [entry.message])
            places[entry.sequence] = (*stored.new, *stored.known)[0].sequence
        for kind in (VALUES, INPUTS, WRITES):
            for document in await documents_in(self.manager, kind, conversation_id=source):
                await self.manager.put_document(kind, document.key, document.data, conversation_id=target)
        for document in await documents_in(self.manager, CHECKPOINTS, conversation_id=source):
            data = msgspec.msgpack.encode(with_places(decode_checkpoint(document), places))
            await self.manager.put_document(CHECKPOINTS, document.key, data, conversation_id=target)

    def _place(self, thread: str) -> str:
        return self._ids.get(thread) or self._name(thread)

    def _forget(self, thread: str) -> None:
        self._ids.pop(thread, None)
        for key in [key for key in self._cache if key[0] == thread]:
            self._cache.pop(key, None)

    def _name(self, thread: str) -> str:
        return self.prefix + thread

    def get_next_version(self, current: Any, channel: None) -> str:
        """Return the version after this one: a number, zero-padded so that text sorts like numbers."""
        number = int(str(current).split(".", maxsplit=1)[0]) if current is not None else 0
        # The framework compares versions as text.
        return f"{number + 1:032}"
