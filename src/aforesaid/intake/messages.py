"""From what a caller says to messages ready to be stored. Below: dialects, tokens. Above: the manager.

Every message that is stored passes here once: SDK objects become plain JSON, pictures leave the
log, an id makes a repeated write harmless, and tokens are counted.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import force_setattr, replace

from aforesaid.contracts import TokenCounter
from aforesaid.dialects import read
from aforesaid.errors import AforesaidError, InvalidMessage, shown
from aforesaid.intake.images import Pictures, is_words
from aforesaid.intake.redaction import Redactor, redacted
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

log = logging.getLogger("aforesaid.intake")

_COUNTED_AT_ONCE = 20_000
"""Characters that are counted between two breaths of the event loop; more goes to a thread."""


class Intake:
    """What is done to every message on its way in. Without a counter, the default one counts."""

    def __init__(
        self,
        *,
        ids: IdSource = new_id,
        counter: TokenCounter | None = None,
        pictures: Pictures | None = None,
        redact: Redactor | None = None,
    ) -> None:
        self._ids = ids
        self.redact = redact
        self.counter = counter or default_counter()
        self._keeper = storable_counter(self.counter)
        self._is_ready = is_ready(self.counter)
        self.pictures = pictures or Pictures()

    def counting_with(self, counter: TokenCounter) -> "Intake":
        """This intake with another counter."""
        return Intake(ids=self._ids, counter=counter, pictures=self.pictures, redact=self.redact)

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
        """One message of this role. Content is text, any JSON, or an SDK's blocks or message.

        A dict is content, whatever it holds: a tool's answer cannot pass itself off as a message.
        """
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
        """The messages in what was handed in: dicts, SDK objects, lists of them, or a whole response."""
        return [self.completed(message) for message in read(given, dialect=dialect)]

    def completed(self, message: Message) -> Message:
        """The message with an id."""
        if not isinstance(message, Message):
            raise InvalidMessage(
                f"a message must be a Message; got {shown(message)}. `turn.add` takes dicts and SDK objects"
            )
        return message if message.message_id else replace(message, message_id=self._ids())

    async def stored_form(self, conversation_id: str, messages: Sequence[Message]) -> list[Message]:
        """The messages as they go into this conversation's log."""
        said = [self.completed(message) for message in messages]
        if self.redact is not None:
            said = redacted(said, self.redact)
        if all(map(is_words, said)):
            return await self.counted(said)
        shown = [self.pictures.without(message) for message in said]
        return await self.pictures.put_away(conversation_id, await self.counted(shown))

    async def line_counter(self) -> TokenCounter:
        """Return the counter for text budgets. It never calibrates, so a text that fits once always fits."""
        return storable_counter(self.counter) if await self.can_count() else RoughCounter()

    async def can_count(self) -> bool:
        """Whether the counter works, loaded if it was not. Why it does not is logged."""
        try:
            await ready(self.counter)
        except AforesaidError as error:
            log.warning("messages are not counted: %s", error)
            return False
        return True

    async def counted(self, complete: list[Message]) -> list[Message]:
        """The messages with what they cost, where that can be counted."""
        if not self._is_ready:
            self._is_ready = await self.can_count()
            if not self._is_ready:
                return complete  # what was said is worth more than what it costs
        if sum(map(characters_in, complete)) <= _COUNTED_AT_ONCE:
            return self._counted(complete)
        return await asyncio.to_thread(self._counted, complete)

    def _counted(self, messages: list[Message]) -> list[Message]:
        name = self._keeper.name
        return [
            message if name in message.tokens else _with_count(message, name, count(self._keeper, message))
            for message in messages
        ]


def _with_count(message: Message, name: str, tokens: int) -> Message:
    """A copy that was not checked again: of what was checked, only the count is new, and that is ours."""
    counted = unchecked_copy(message)
    force_setattr(counted, "tokens", {**message.tokens, name: tokens})
    return counted


def _is_message(content: Any) -> bool:
    """Whether this is an SDK's whole message or response, not the content of one."""
    return hasattr(content, "model_dump") and (hasattr(content, "role") or hasattr(content, "choices"))
