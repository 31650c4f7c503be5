"""Link conversations to clients, by names in messages or explicitly.

service = ClientAssociationService(manager)
match = await service.identify_client("Mrs Smith's invoice is wrong")
await service.link_conversation_to_client(conversation_id, match)
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from aforesaid._internal.arguments import validated
from aforesaid.contacts.book import Contacts
from aforesaid.contacts.resources import ContactResources
from aforesaid.contracts import ConversationStore, same_content, unreadable_reason
from aforesaid.dialects import meaning_of, resolve
from aforesaid.errors import ConversationNotFound, InvalidId, InvalidInput, RevisionConflict, shown
from aforesaid.model.contacts import AmbiguousMention, ClientMatch, Contact
from aforesaid.model.conversations import Changes, Conversation, Query, check_count
from aforesaid.model.ids import conversation_key, parse_uuid
from aforesaid.model.messages import Message, carries_tool_results
from aforesaid.telemetry import event, telemetry
from aforesaid.telemetry.events import client_associated, client_sought

if TYPE_CHECKING:
    from aforesaid.contacts.identification import Reading

log = logging.getLogger("aforesaid.contacts")

# Kind of the document that marks a conversation as unlinked, so that messages do not link it again.
UNLINKED_KIND = "client link"
_KEY = "unlinked"
# Recent conversations that are searched for ambiguous mentions, and the latest messages of each.
MOST_SEARCHED = 100
MESSAGES_SEARCHED = 20
LONGEST_EXCERPT = 300
# Maximum number of attempts to link a conversation that changes concurrently.
ATTEMPTS = 5

_ambiguous = telemetry.counter("aforesaid_clients_ambiguous_total")


class AssociationProtocol(Protocol):
    """Client association, in this process or behind a server."""

    async def identify_client(self, text: str, *, by_ear: bool = False) -> ClientMatch | None: ...

    async def link_conversation_to_client(
        self, conversation_id: str, client: str | ClientMatch | Contact
    ) -> Conversation | None: ...

    async def unlink_conversation(self, conversation_id: str) -> Conversation: ...

    async def ambiguous_mentions(self, limit: int = 20) -> list[AmbiguousMention]: ...


class Associating(Protocol):
    """A manager, local or remote, as far as client association needs it."""

    @property
    def association(self) -> AssociationProtocol:
        """Find the client that a text names, and link conversations to clients."""


@validated
class Association:
    """One owner's clients and conversations."""

    def __init__(
        self,
        store: ConversationStore,
        owner: str,
        resources: ContactResources,
        for_writing: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        self._store = store
        # Returns the id of a conversation to link, and creates a missing one that has a name.
        self._for_writing = for_writing
        self._owner = owner
        self._resources = resources
        self._contacts = Contacts(store, resources=resources, owner=owner)

    @property
    def is_known_empty(self) -> bool:
        """Whether this owner is known to have no contacts, so that no text names one."""
        return self._resources.is_known_empty(self._owner)

    async def identify_client(self, text: str, *, by_ear: bool = False) -> ClientMatch | None:
        """Return the client named in a text, candidates if it is ambiguous, or None.

        `by_ear`: the text is a transcript, so names that sound alike are equal.
        """
        return (await self._read(text, by_ear=by_ear)).match

    async def _read(self, text: str, *, by_ear: bool) -> "Reading":
        from aforesaid.contacts.identification import read_names

        if not isinstance(text, str):
            raise InvalidInput(f"text must be text; got {shown(text)}", field="text", value=text)
        index = await self._resources.index_of(self._owner, self._store)
        # Most owners have no contacts: their turns do not wait for a thread.
        reading = read_names("", index)
        if len(index):
            reading = await asyncio.to_thread(read_names, text, index, by_ear=by_ear)
        _log_attempt(text, reading.match)
        return reading

    async def link_conversation_to_client(
        self, conversation_id: str, client: str | ClientMatch | Contact
    ) -> Conversation | None:
        """Link a conversation to a client: a contact, its id, a match, or a text that names one.

        Return the record, or None (and change nothing) if the match or text does not name exactly one
        client.
        """
        client_id = client_id_of(client)
        if client_id is None and not isinstance(client, ClientMatch | Contact):
            client_id = client_id_of(await self.identify_client(client))
        if client_id is None:
            return None
        contact = await self._contacts.get(client_id)
        if self._for_writing is not None:
            conversation_id = await self._for_writing(conversation_id)
        await self._store.delete_document(UNLINKED_KIND, _KEY, conversation_id=conversation_id)
        linked = await self._store.update(
            conversation_id, Changes(client_id=contact.id, client_name=contact.name)
        )
        client_associated(linked.id)
        return await self._unlink_if_removed(linked, contact)

    async def unlink_conversation(self, conversation_id: str) -> Conversation:
        """Remove the link. Later messages do not restore it; an explicit link does."""
        conversation_id = conversation_key(conversation_id, owner=self._store.owner).id
        await mark_unlinked(self._store, conversation_id)
        return await self._store.update(conversation_id, Changes(client_id=None, client_name=None))

    async def ambiguous_mentions(self, limit: int = 20) -> list[AmbiguousMention]:
        """Return mentions in recent conversations that a person should resolve, the latest first.

        Linking or unlinking a conversation resolves its mention. Nothing is stored about a mention, so it
        follows every change of contacts and messages.
        """
        check_count(limit, field="limit", least=1)
        if not len(await self._resources.index_of(self._owner, self._store)):
            return []
        found: list[AmbiguousMention] = []
        page = await self._store.find(Query(limit=MOST_SEARCHED))
        for record in page.conversations:
            mention = None if record.client_id else await self._ambiguous_mention(record)
            found += [] if mention is None else [mention]
            if len(found) >= limit:
                break
        return found

    async def _ambiguous_mention(self, record: Conversation) -> AmbiguousMention | None:
        if await self._store.get_document(UNLINKED_KIND, _KEY, conversation_id=record.id) is not None:
            return None
        for entry in reversed(await self._store.tail(record.id, limit=MESSAGES_SEARCHED)):
            if unreadable_reason(entry) is not None or entry.message.role != "user":
                continue
            reading = await self._read_message(entry.message)
            match = None if reading is None else reading.match
            if match is not None and match.client is None:
                assert entry.message.timestamp is not None, "a stored message has a time"
                return AmbiguousMention(
                    conversation_id=record.id,
                    sequence=entry.sequence,
                    message_id=entry.message.message_id,
                    said_at=entry.message.timestamp,
                    text=meaning_of(resolve(entry.message, {})).text[:LONGEST_EXCERPT],
                    candidates=match.candidates,
                )
        return None

    async def link_by_messages(
        self, conversation_id: str, messages: Sequence[Message]
    ) -> Conversation | None:
        """Link a conversation to the first client that a message names, or that a later message corrects.

        A correction that names several clients removes a link to any other. Return the record if it changed.
        """
        if self._store.degraded or not len(await self._resources.index_of(self._owner, self._store)):
            return None
        record = await self._store.get(conversation_id)
        changed: Conversation | None = None
        for message in messages:
            reading = await self._read_message(message)
            if record is None or reading is None or reading.match is None:
                continue
            if record.client_id is not None and not reading.corrects:
                continue
            updated = await self._link_to_match(record, reading.match, message)
            record, changed = (record, changed) if updated is None else (updated, updated)
        return changed

    async def _link_to_match(
        self, record: Conversation, match: ClientMatch, message: Message
    ) -> Conversation | None:
        if match.client is not None:
            if match.client.id == record.client_id or not await self._is_unchanged(record.id, message):
                return None
            return await self._relink(record, match.client, message)
        _ambiguous.add()
        event(
            log,
            logging.INFO,
            "client_ambiguous",
            f"conversation {record.id} may be about {len(match.candidates)} clients",
            conversation_id=record.id,
            candidates=[one.contact.id for one in match.candidates],
        )
        possible = {None, *(one.contact.id for one in match.candidates)}
        return None if record.client_id in possible else await self._relink(record, None, message)

    async def _read_message(self, message: Message) -> "Reading | None":
        if carries_tool_results(message):
            return None
        text = meaning_of(resolve(message, {})).text
        return await self._read(text, by_ear=message.content_type == "audio") if text else None

    async def _is_unchanged(self, conversation_id: str, message: Message) -> bool:
        """Return whether the log still contains the message's words: a redacted message must not link."""
        if message.message_id is None:
            return True
        entry = await self._store.entry(conversation_id, message.message_id)
        return entry is not None and same_content(entry, message)

    async def _relink(
        self, record: Conversation, contact: Contact | None, message: Message
    ) -> Conversation | None:
        """Replace the client of the record unless it was replaced or unlinked concurrently."""
        unlinked = await self._store.get_document(UNLINKED_KIND, _KEY, conversation_id=record.id)
        if unlinked is not None:
            return None
        changes = Changes(client_id=None, client_name=None)
        if contact is not None:
            changes = Changes(client_id=contact.id, client_name=contact.name)
        for _ in range(ATTEMPTS):
            try:
                linked = await self._store.update(record.id, changes, expected_revision=record.revision)
            except RevisionConflict:
                found = await self._store.get(record.id)
                if found is None or found.client_id != record.client_id:
                    return None
                if not await self._is_unchanged(record.id, message):
                    return None
                record = found
                continue
            except ConversationNotFound:
                return None  # removed concurrently
            if contact is None:
                return linked
            client_associated(linked.id)
            return await self._unlink_if_removed(linked, contact)
        return None

    async def _unlink_if_removed(self, record: Conversation, contact: Contact) -> Conversation:
        """Return the record; remove its client first if the contact was removed during linking."""
        if await self._contacts.lookup(contact.id) is not None:
            return record
        self._resources.removed(self._owner, contact.id)
        return await self._store.update(record.id, Changes(client_id=None))


def _log_attempt(text: str, match: ClientMatch | None) -> None:
    if match is None:
        client_sought(text, "unidentified")
    elif match.client is not None:
        client_sought(text, "identified", [match.client.id])
    else:
        client_sought(text, "ambiguous", [one.contact.id for one in match.candidates])


async def mark_unlinked(store: ConversationStore, conversation_id: str) -> None:
    """Prevent messages from linking the conversation again."""
    await store.put_document(UNLINKED_KIND, _KEY, b"{}", conversation_id=conversation_id)


def client_id_of(client: str | ClientMatch | Contact | None) -> str | None:
    """Return the id of a client or of a match's client; None for a text that is not an id."""
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
    """Identify clients in an owner's messages and link conversations to them.

    The manager may be local or remote.
    """

    def __init__(self, manager: Associating) -> None:
        self._association = manager.association

    async def identify_client(self, text: str, *, by_ear: bool = False) -> ClientMatch | None:
        """Delegate to `Association.identify_client`."""
        return await self._association.identify_client(text, by_ear=by_ear)

    async def link_conversation_to_client(
        self, conversation_id: str, client: str | ClientMatch | Contact
    ) -> Conversation | None:
        """Delegate to `Association.link_conversation_to_client`."""
        return await self._association.link_conversation_to_client(conversation_id, client)

    async def unlink_conversation(self, conversation_id: str) -> Conversation:
        """Delegate to `Association.unlink_conversation`."""
        return await self._association.unlink_conversation(conversation_id)

    async def ambiguous_mentions(self, limit: int = 20) -> list[AmbiguousMention]:
        """Delegate to `Association.ambiguous_mentions`."""
        return await self._association.ambiguous_mentions(limit)
