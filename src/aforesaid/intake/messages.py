"""Prepare messages for storing, and move their images out of the log."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias, cast, get_args

from msgspec.structs import force_setattr, replace

from aforesaid.contracts import ConversationStore, Entry, LogSnapshot, Position, TokenCounter
from aforesaid.dialects import read, references_in, resolve, split_images, without_images
from aforesaid.errors import AforesaidError, InvalidMessage, InvalidSetting, StoreError, shown
from aforesaid.model.contexts import Context
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import IdSource, new_id
from aforesaid.model.lineages import may_be_branch
from aforesaid.model.messages import ContentType, Message, Role, plain_text, starts_turn, unchecked_copy
from aforesaid.stores.blobs import BlobStore, purge_blobs_of
from aforesaid.tokens import (
    RoughCounter,
    characters_in,
    count,
    default_counter,
    is_ready,
    is_slow_to_load,
    load_later,
    ready,
    storable_counter,
)
from aforesaid.windows import LogEnds, ReadSizes

# Images on their way into the log and out of it.
#
#     placeholder   text replaces the image; its bytes are not stored
#     keep          the image stays in the log
#     blobs         the log contains a reference, a blob store the bytes
#
# References never leave the memory. In a context the images of the current turn are back in place; text
# replaces older ones, because the answer has described them by then.


image_log = logging.getLogger("aforesaid.images")

ImagePolicy = Literal["placeholder", "keep", "blobs"]


class OwnerImages:
    """One owner's images. `images` is the policy for new ones, `blobs` contains the bytes."""

    def __init__(self, images: ImagePolicy = "placeholder", blobs: BlobStore | None = None) -> None:
        check_images(images, has_blobs=blobs is not None)
        self._images = images
        self._blobs = blobs

    def without(self, message: Message) -> Message:
        """Return the message as it is counted: with text for its images where their bytes are not stored."""
        return message if self._images != "placeholder" or is_text_only(message) else without_images(message)

    async def store_images(self, conversation_id: str, messages: Sequence[Message]) -> list[Message]:
        """Store the images as blobs before the log refers to them; return the messages for the log."""
        if self._images != "blobs" or self._blobs is None or all(map(is_text_only, messages)):
            return list(messages)
        referring, blobs = await asyncio.to_thread(_split, messages)
        for digest, data in blobs.items():
            # Before the append: a crash in between leaves an unused blob, never a reference without its
            # image.
            await self._blobs.put(conversation_id, digest, data)
        return referring

    async def read(self, record: Conversation, sha256: str) -> bytes | None:
        """Return the bytes of an image that a message refers to; None if they are missing."""
        return None if self._blobs is None else await _image_of(self._blobs, record, sha256)

    def view(self, store: ConversationStore, pending: Sequence[Message]) -> "LogView":
        """Return the store's logs with images instead of references."""
        return LogView(store, self._blobs, pending=pending)

    async def forget(self, conversation_id: str) -> None:
        """Remove the conversation's images."""
        if self._blobs is not None:
            await self._blobs.delete(conversation_id)

    async def purge(self, store: ConversationStore) -> None:
        """Remove the images of removed conversations."""
        if self._blobs is not None:
            await purge_blobs_of(self._blobs, store)


class LogView:
    """A log without references, read backwards: the input of a window."""

    def __init__(
        self, store: ConversationStore, blobs: BlobStore | None, *, pending: Sequence[Message]
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._in_turn = not any(map(starts_turn, pending))
        self._warnings: list[str] = []
        # Whether anything was read in addition to the snapshot.
        self.read_more = False

    def as_store(self) -> ConversationStore:
        """Return this view as a store; it has every method that reading a window needs."""
        return cast(ConversationStore, self)

    def reported(self, context: Context) -> Context:
        """Return the context with missing images in its report."""
        if not self._warnings:
            return context
        warnings = (*context.report.warnings, *self._warnings)
        return context.with_report(replace(context.report, warnings=warnings))

    @property
    def degraded(self) -> bool:
        return self._store.degraded

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        self.read_more = True
        return await self._all_shown(await self._store.recent(conversation_id, limit=limit, before=before))

    async def ends(self, seen: LogSnapshot, look: ReadSizes) -> LogEnds:
        """Return both ends of the log from a snapshot."""
        tail = await self._all_shown(seen.tail)
        return LogEnds(seen.message_count, _as_text(seen.front), tail, len(seen.tail) < look.tail)

    async def _all_shown(self, entries: Sequence[Entry]) -> list[Entry]:
        if all(is_text_only(entry.message) for entry in entries):
            self._in_turn = self._in_turn and not any(starts_turn(entry.message) for entry in entries)
            return list(entries)
        # Backwards, because only the end of the log tells where the current turn starts.
        newest_first = [await self._shown(entry) for entry in reversed(entries)]
        return newest_first[::-1]

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        self.read_more = True
        return _as_text(await self._store.page(conversation_id, limit=limit, offset=offset))

    async def get(self, conversation_id: str) -> Conversation | None:
        return await self._store.get(conversation_id)

    def now(self) -> datetime:
        return self._store.now()

    async def _shown(self, entry: Entry) -> Entry:
        is_current = self._in_turn
        self._in_turn = self._in_turn and not starts_turn(entry.message)
        if is_text_only(entry.message):
            return entry
        found = await self._fetched(entry, references_in(entry.message)) if is_current else {}
        if not found:
            return _with_message(entry, resolve(entry.message, {}))
        return _with_message(entry, await asyncio.to_thread(resolve, entry.message, found))

    async def _fetched(self, entry: Entry, digests: Sequence[str]) -> dict[str, bytes]:
        fetched = {digest: await self._image(entry.conversation_id, digest) for digest in digests}
        return {digest: data for digest, data in fetched.items() if data is not None}

    async def _image(self, conversation_id: str, digest: str) -> bytes | None:
        self.read_more = True
        why = "this memory has no blobs" if self._blobs is None else "it is missing"
        try:
            data = None if self._blobs is None else await self._blobs.get(conversation_id, digest)
            if data is None and self._blobs is not None and may_be_branch(conversation_id):
                record = await self._store.get(conversation_id)
                data = None if record is None else await _image_of(self._blobs, record, digest)
        except StoreError as error:
            data, why = None, str(error)
        if data is None:
            self._warn(f"the image {digest[:12]}… is replaced by text: {why}")
        return data

    def _warn(self, warning: str) -> None:
        image_log.warning("%s", warning)
        self._warnings.append(warning)


async def _image_of(blobs: BlobStore, record: Conversation, digest: str) -> bytes | None:
    """Return an image of the conversation, or of one that it continues."""
    for holder in (record.id, *(one.conversation_id for one in record.lineage)):
        data = await blobs.get(holder, digest)
        if data is not None:
            return data
    return None


def check_images(images: object, *, has_blobs: bool) -> None:
    """Raise `InvalidSetting` for an unknown policy, and for blobs without a place for them."""
    if images not in get_args(ImagePolicy):
        raise InvalidSetting.not_in("images", images, get_args(ImagePolicy))
    if images == "blobs" and not has_blobs:
        raise InvalidSetting("images='blobs' needs a place for them: blobs='some/folder'", field="blobs")


def _split(messages: Sequence[Message]) -> tuple[list[Message], dict[str, bytes]]:
    blobs: dict[str, bytes] = {}
    referring: list[Message] = []
    for message in messages:
        changed, found = split_images(message)
        blobs |= found
        # The count is that of the message with its images.
        referring.append(replace(changed, tokens=message.tokens))
    return referring, blobs


def _as_text(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries with text for all their images."""
    return [
        entry if is_text_only(entry.message) else _with_message(entry, resolve(entry.message, {}))
        for entry in entries
    ]


def _with_message(entry: Entry, message: Message) -> Entry:
    return entry if message is entry.message else replace(entry, message=message)


def is_text_only(message: Message) -> bool:
    """Whether the message is text alone, without images: most messages, and the text blocks of models."""
    if plain_text(message) is not None:
        return True
    content = message.content
    return not message.extra and isinstance(content, list) and all(map(_is_text_block, content))


def _is_text_block(block: object) -> bool:
    if not isinstance(block, dict) or block.get("type") != "text":
        return False
    return all(value is None or isinstance(value, str) for value in block.values())


# Prepare messages for storing.
#
# Every stored message passes here once: SDK objects become plain JSON, images leave the log, an id makes a
# repeated write idempotent, and tokens are counted.
#
# An application's redact function receives each message as it would be stored and returns it, changed or
# not, or None to omit it. It runs on the event loop, so it must not block. When it raises or returns
# anything else, nothing of the turn is stored.


Redactor: TypeAlias = Callable[[Message], Message | None]


def redacted(messages: Sequence[Message], redact: Redactor) -> list[Message]:
    """Return the redacted messages. Ids and roles stay, whatever the function returns."""
    seen = [_redacted(message, redact) for message in messages]
    return [message for message in seen if message is not None]


def _redacted(message: Message, redact: Redactor) -> Message | None:
    try:
        left = redact(message)
    except AforesaidError:
        raise
    except Exception as error:
        # The error's text may quote the message, so only its type is included.
        raise InvalidMessage(
            f"the redact function failed with {type(error).__name__}, and nothing was stored", field="redact"
        ) from error
    if left is None:
        return None
    if not isinstance(left, Message):
        raise InvalidMessage(
            f"the redact function must give back a Message or None; it gave a {type(left).__name__}, and "
            "nothing was stored",
            field="redact",
        )
    return (
        left if left is message else left.with_(message_id=message.message_id, role=message.role, tokens={})
    )


log = logging.getLogger("aforesaid.intake")

# The most characters that are counted on the event loop; longer texts are counted in a thread.
_COUNTED_INLINE = 20_000


class Intake:
    """Prepares messages. `counter` defaults to the default token counter."""

    def __init__(
        self,
        *,
        ids: IdSource = new_id,
        counter: TokenCounter | None = None,
        images: OwnerImages | None = None,
        redact: Redactor | None = None,
    ) -> None:
        self._ids = ids
        self.redact = redact
        self.counter = counter or default_counter()
        self._stored_counter = storable_counter(self.counter)
        self._is_ready = is_ready(self.counter)
        self.images = images or OwnerImages()

    def counting_with(self, counter: TokenCounter) -> "Intake":
        """Return this intake with another counter."""
        return Intake(ids=self._ids, counter=counter, images=self.images, redact=self.redact)

    def message(
        self,
        role: Role,
        content: Any,
        *,
        agent_name: str | None = None,
        author: str | None = None,
        content_type: ContentType = "text",
        message_id: str | None = None,
        tags: tuple[str, ...] = (),
        timestamp: datetime | None = None,
    ) -> Message:
        """Return one message of this role. Content is text, any JSON, or an SDK's blocks or message.

        A dict is always content, so that a tool result cannot impersonate a message.
        """
        # The fast path of nearly all messages: text needs no parsing.
        if isinstance(content, str):
            return Message(
                role=role,
                content=content,
                timestamp=timestamp,
                content_type=content_type,
                agent_name=agent_name,
                author=author,
                message_id=self._ids() if message_id is None else message_id,
                tags=tags,
            )
        (message,) = read(content if _is_message(content) else {"role": role, "content": content})
        fields = {
            "timestamp": timestamp,
            "content_type": content_type,
            "agent_name": agent_name,
            "author": author,
            "message_id": message_id,
            "tags": tags,
        }
        given = {name: value for name, value in fields.items() if value is not None and value != ()}
        return self.completed(replace(message, **given))

    def messages(self, given: Any, *, dialect: str | None = None) -> list[Message]:
        """Return the messages in dicts, SDK objects, lists of them, or a whole response."""
        return [self.completed(message) for message in read(given, dialect=dialect)]

    def completed(self, message: Message) -> Message:
        """Return the message with an id."""
        if not isinstance(message, Message):
            raise InvalidMessage(
                f"a message must be a Message; got {shown(message)}. `turn.add` takes dicts and SDK objects"
            )
        return message if message.message_id else replace(message, message_id=self._ids())

    async def stored_form(self, conversation_id: str, messages: Sequence[Message]) -> list[Message]:
        """Return the messages as they are stored in this conversation's log."""
        complete = [self.completed(message) for message in messages]
        if self.redact is not None:
            complete = redacted(complete, self.redact)
        if all(map(is_text_only, complete)):
            return await self.counted(complete)
        shown = [self.images.without(message) for message in complete]
        return await self.images.store_images(conversation_id, await self.counted(shown))

    async def line_counter(self) -> TokenCounter:
        """Return the counter for text budgets. It never calibrates, so a text that fits once always fits."""
        return storable_counter(self.counter) if await self.can_count() else RoughCounter()

    async def can_count(self) -> bool:
        """Return whether the counter works; load it first. Log the reason when it does not."""
        try:
            await ready(self.counter)
        except AforesaidError as error:
            log.warning("messages are not counted: %s", error)
            return False
        return True

    async def counted(self, complete: list[Message]) -> list[Message]:
        """Return the messages with their token counts, where the counter works."""
        if not self._is_ready:
            if is_slow_to_load(self.counter):
                # The first turn of a process does not wait for the tables. Contexts count it on demand.
                load_later(self.counter)
                return complete
            self._is_ready = await self.can_count()
            if not self._is_ready:
                return complete  # store without counts rather than not at all
        # Handing over to a thread costs about 0.1 ms, more than counting a usual message.
        if sum(map(characters_in, complete)) <= _COUNTED_INLINE:
            return self._counted(complete)
        return await asyncio.to_thread(self._counted, complete)

    def _counted(self, messages: list[Message]) -> list[Message]:
        name = self._stored_counter.name
        return [
            message
            if name in message.tokens
            else _with_count(message, name, count(self._stored_counter, message))
            for message in messages
        ]


def _with_count(message: Message, name: str, tokens: int) -> Message:
    """Return a copy with the count. The copy skips validation: the message is valid already."""
    counted = unchecked_copy(message)
    force_setattr(counted, "tokens", {**message.tokens, name: tokens})
    return counted


def _is_message(content: Any) -> bool:
    """Whether this is an SDK's whole message or response, not the content of one."""
    return hasattr(content, "model_dump") and (hasattr(content, "role") or hasattr(content, "choices"))
