"""Which client a conversation is about: found in what is said, or linked by hand. Below: the room.

service = ClientAssociationService(manager)
match = await service.identify_client("Mrs Smith's invoice is wrong")
await service.link_conversation_to_client(conversation_id, match)
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from aforesaid._internal.arguments import validated
from aforesaid.contacts.book import Contacts
from aforesaid.contacts.matches import ClientMatch
from aforesaid.contacts.shared import ContactResources
from aforesaid.contracts import ConversationStore, same_content
from aforesaid.dialects import meaning_of, resolve
from aforesaid.errors import ConversationNotFound, InvalidId, InvalidInput, RevisionConflict, shown
from aforesaid.model.contacts import Contact
from aforesaid.model.conversations import Changes, Conversation
from aforesaid.model.ids import parse_uuid
from aforesaid.model.messages import Message, carries_tool_results
from aforesaid.telemetry import event, telemetry
from aforesaid.telemetry.events import client_associated

if TYPE_CHECKING:
    from aforesaid.memory.manager import ConversationManager

log = logging.getLogger("aforesaid.clients")

BY_HAND = "client link"
"""The kind of a document of a conversation that somebody unlinked: what is said does not link it again."""
_KEY = "unlinked"
ATTEMPTS = 5
"""How often a link is tried anew when somebody writes to the conversation in between."""

_ambiguous = telemetry.counter("aforesaid_clients_ambiguous_total")


class Associating(Protocol):
    """Who tells which client is meant: here, or behind a server."""

    async def identify_client(self, text: str, *, by_ear: bool = False) -> ClientMatch | None: ...

    async def link_conversation_to_client(
        self, conversation_id: str, client: str | ClientMatch | Contact
    ) -> Conversation | None: ...

    async def unlink_conversation(self, conversation_id: str) -> Conversation: ...


@validated
class Association:
    """One owner's clients and conversations."""

    def __init__(self, store: ConversationStore, owner: str, resources: ContactResources) -> None:
        self._store = store
        self._owner = owner
        self._resources = resources
        self._contacts = Contacts(store, resources=resources, owner=owner)

    async def identify_client(self, text: str, *, by_ear: bool = False) -> ClientMatch | None:
        """Whom a text names: one client with a confidence, candidates where it could be several, or None.

        `by_ear`: the text was heard, not written, so names that sound alike are the same.
        """
        from aforesaid.contacts.identification import identify

        if not isinstance(text, str):
            raise InvalidInput(f"text must be text; got {shown(text)}", field="text", value=text)
        index = await self._resources.index_of(self._owner, self._store)
        return await asyncio.to_thread(identify, text, index, by_ear=by_ear)

    async def link_conversation_to_client(
        self, conversation_id: str, client: str | ClientMatch | Contact
    ) -> Conversation | None:
        """Link a conversation to a client: a contact, its id, a match, or a text that names one.

        Returns the record; None when the match or the text names no single client, and nothing was changed.
        """
        client_id = meant(client)
        if client_id is None and not isinstance(client, ClientMatch | Contact):
            client_id = meant(await self.identify_client(client))
        if client_id is None:
            return None
        contact = await self._contacts.get(client_id)
        await self._store.delete_document(BY_HAND, _KEY, conversation_id=conversation_id)
        linked = await self._store.update(
            conversation_id, Changes(client_id=contact.id, client_name=contact.name)
        )
        client_associated(linked.id)
        return await self._still_there(linked, contact)

    async def unlink_conversation(self, conversation_id: str) -> Conversation:
        """Take the link away; what is said later does not bring it back, a link by hand does."""
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        await keep_unlinked(self._store, conversation_id)
        return await self._store.update(conversation_id, Changes(client_id=None, client_name=None))

    async def look_through(self, conversation_id: str, messages: Sequence[Message]) -> Conversation | None:
        """Link a conversation that has no client when one of the messages names exactly one.

        Returns the record when it was linked.
        """
        if self._store.degraded or not len(await self._resources.index_of(self._owner, self._store)):
            return None
        record = await self._store.get(conversation_id)
        if record is None or record.client_id is not None:
            return None
        for message in messages:
            match = await self._identified(message)
            if match is not None and match.client is not None:
                if await self._still_says(conversation_id, message):
                    return await self._link_unless_linked(record, match.client, message)
            elif match is not None:
                _ambiguous.add()
                event(
                    log,
                    logging.INFO,
                    "client_ambiguous",
                    f"conversation {conversation_id} may be about {len(match.candidates)} clients",
                    conversation_id=conversation_id,
                    candidates=[one.contact.id for one in match.candidates],
                )
        return None

    async def _identified(self, message: Message) -> ClientMatch | None:
        if carries_tool_results(message):
            return None
        text = meaning_of(resolve(message, {})).text
        return await self.identify_client(text, by_ear=message.content_type == "audio") if text else None

    async def _still_says(self, conversation_id: str, message: Message) -> bool:
        """Whether the message is in the log as it was said: one that was redacted since links nobody."""
        if message.message_id is None:
            return True
        entry = await self._store.entry(conversation_id, message.message_id)
        return entry is not None and same_content(entry, message)

    async def _link_unless_linked(
        self, record: Conversation, contact: Contact, message: Message
    ) -> Conversation | None:
        unlinked = await self._store.get_document(BY_HAND, _KEY, conversation_id=record.id)
        if unlinked is not None:
            return None
        changes = Changes(client_id=contact.id, client_name=contact.name)
        for _ in range(ATTEMPTS):
            try:
                linked = await self._store.update(record.id, changes, expected_revision=record.revision)
            except RevisionConflict:
                found = await self._store.get(record.id)
                if found is None or found.client_id is not None:
                    return None
                if not await self._still_says(record.id, message):
                    return None
                record = found
                continue
            except ConversationNotFound:
                return None  # it went meanwhile
            client_associated(linked.id)
            return await self._still_there(linked, contact)
        return None

    async def _still_there(self, record: Conversation, contact: Contact) -> Conversation:
        """The record, without its client if the contact was removed while it was linked."""
        if await self._contacts.lookup(contact.id) is not None:
            return record
        self._resources.removed(self._owner, contact.id)
        return await self._store.update(record.id, Changes(client_id=None))


async def keep_unlinked(store: ConversationStore, conversation_id: str) -> None:
    """Somebody took the link away: what is said does not bring it back."""
    await store.put_document(BY_HAND, _KEY, b"{}", conversation_id=conversation_id)


def meant(client: str | ClientMatch | Contact | None) -> str | None:
    """The id of the client that is given, or that a match names; None for a text that is no id."""
    match client:
        case Contact():
            return client.id
        case ClientMatch():
            return None if client.client is None else client.client.id
        case str():
            with suppress(InvalidId):
                return parse_uuid(client, field="client_id")
    return None


class ClientAssociationService:
    """Identifies clients in what is said to one owner's assistant, and links conversations to them.

    The manager may be in this process, or stand for one behind a server.
    """

    def __init__(self, manager: "ConversationManager") -> None:
        self._association = manager.association

    async def identify_client(self, text: str, *, by_ear: bool = False) -> ClientMatch | None:
        """As `Association.identify_client`."""
        return await self._association.identify_client(text, by_ear=by_ear)

    async def link_conversation_to_client(
        self, conversation_id: str, client: str | ClientMatch | Contact
    ) -> Conversation | None:
        """As `Association.link_conversation_to_client`."""
        return await self._association.link_conversation_to_client(conversation_id, client)

    async def unlink_conversation(self, conversation_id: str) -> Conversation:
        """As `Association.unlink_conversation`."""
        return await self._association.unlink_conversation(conversation_id)
