"""Prepare messages for storing.

Every stored message passes here once: SDK objects become plain JSON, images leave the log, an id makes a
repeated write idempotent, and tokens are counted.

An application's redact function receives each message as it would be stored and returns it, changed or not,
or None to omit it. It runs on the event loop, so it must not block. When it raises or returns anything else,
nothing of the turn is stored.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from msgspec.structs import force_setattr, replace

from aforesaid.contracts import TokenCounter
from aforesaid.dialects import read
from aforesaid.errors import AforesaidError, InvalidMessage, shown
from aforesaid.intake.images import OwnerImages, is_text_only
from aforesaid.model.ids import IdSource, new_id
from aforesaid.model.messages import ContentType, Message, Role, unchecked_copy
from aforesaid.tokens import (
    RoughCounter,
    characters_in,
    count,
    default_counter,
    is_ready,
    ready,
    storable_counter,
)

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
                message_id=self._ids() if message_id is None else message_id,
                tags=tags,
            )
        (message,) = read(content if _is_message(content) else {"role": role, "content": content})
        fields = {
            "timestamp": timestamp,
            "content_type": content_type,
            "agent_name": agent_name,
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
