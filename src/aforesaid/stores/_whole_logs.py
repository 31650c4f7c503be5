"""The log of a store that reads and writes a conversation as a whole."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from aforesaid.contracts import Appended, Entry, Position, without_head
from aforesaid.model.messages import Message
from aforesaid.stores._arguments import DocumentChecks
from aforesaid.stores.encoded_logs import encode_messages
from aforesaid.stores.owner_data import OwnerData

T = TypeVar("T")


class WholeLogs(DocumentChecks):
    """The log of a store that reads and writes a conversation as a whole."""

    @abstractmethod
    def _name(self, conversation_id: str) -> str:
        """Return the name under which `_load` finds a conversation."""

    @abstractmethod
    async def _load(self, name: str) -> OwnerData:
        """Return the data of one conversation, as it is now."""

    @abstractmethod
    async def _change(self, name: str, work: Callable[[OwnerData], T]) -> T:
        """Load one conversation, change it, and save it, unless another change comes first."""

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        messages, head = without_head(messages)
        turn = encode_messages(messages)
        return await self._change(
            self._name(conversation_id),
            lambda data: data.append(
                conversation_id, turn, now=self.now(), expected_revision=expected_revision, head=head
            ),
        )

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        messages, head = without_head(messages)
        turn = encode_messages(messages)
        return await self._change(
            self._name(conversation_id),
            lambda data: data.rewrite(
                conversation_id, turn, now=self.now(), expected_revision=expected_revision, head=head
            ),
        )

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        data = await self._load(self._name(conversation_id))
        return data.tail(conversation_id, now=self.now(), limit=limit, before=before)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        data = await self._load(self._name(conversation_id))
        return data.page(conversation_id, now=self.now(), limit=limit, offset=offset)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        data = await self._load(self._name(conversation_id))
        return data.entry(conversation_id, message_id, now=self.now())

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        encode_messages([message])  # raises for a message that could not be parsed again
        return await self._change(
            self._name(conversation_id),
            lambda data: data.replace(
                conversation_id, message, now=self.now(), expected_revision=expected_revision
            ),
        )
