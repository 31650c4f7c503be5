"""An owner's contacts and client association behind a server, async and sync."""

from collections.abc import AsyncIterator, Iterator

from aforesaid.contacts.association import Association
from aforesaid.contacts.book import PAGE, Contacts
from aforesaid.model.contacts import Contact
from aforesaid.remote.methods import AsyncFace, CallMethod, SyncFace
from aforesaid.remote.requests.contacts import AssociationCalls, ContactCalls
from aforesaid.remote.transport import AsyncSender, SyncSender


class ContactMethods:
    """The calls of an owner's contacts, with the local method that each mirrors."""

    add = CallMethod(ContactCalls.add, Contacts.add)
    get = CallMethod(ContactCalls.get, Contacts.get)
    lookup = CallMethod(ContactCalls.lookup, Contacts.lookup)
    list = CallMethod(ContactCalls.list, Contacts.list)
    find = CallMethod(ContactCalls.find, Contacts.find)
    update = CallMethod(ContactCalls.update, Contacts.update)
    remove = CallMethod(ContactCalls.remove, Contacts.remove)
    import_csv = CallMethod(ContactCalls.import_csv, Contacts.import_csv)


class RemoteContacts(AsyncFace, ContactMethods):
    """One owner's contacts behind a server; `manager.clients`."""

    def __init__(self, calls: ContactCalls, sender: AsyncSender) -> None:
        self.calls = calls
        self.sender = sender

    async def every(self) -> AsyncIterator[Contact]:
        """Yield all contacts, page by page."""
        after: str | None = None
        while True:
            page = await self.list(limit=PAGE, after=after)
            for contact in page.contacts:
                yield contact
            after = page.next
            if after is None:
                return


class SyncContacts(SyncFace, ContactMethods):
    """One owner's contacts behind a server, sync; `manager.clients`."""

    def __init__(self, calls: ContactCalls, sender: SyncSender) -> None:
        self.calls = calls
        self.sender = sender

    def every(self) -> Iterator[Contact]:
        """Yield all contacts, page by page."""
        after: str | None = None
        while True:
            page = self.list(limit=PAGE, after=after)
            yield from page.contacts
            after = page.next
            if after is None:
                return


class AssociationMethods:
    """The calls of client association, with the local method that each mirrors."""

    identify_client = CallMethod(AssociationCalls.identify_client, Association.identify_client)
    link_conversation_to_client = CallMethod(
        AssociationCalls.link_conversation_to_client, Association.link_conversation_to_client
    )
    unlink_conversation = CallMethod(AssociationCalls.unlink_conversation, Association.unlink_conversation)


class RemoteAssociation(AsyncFace, AssociationMethods):
    """Client identification and links, executed by the server; `manager.association`."""

    def __init__(self, calls: AssociationCalls, sender: AsyncSender) -> None:
        self.calls = calls
        self.sender = sender


class SyncAssociation(SyncFace, AssociationMethods):
    """Client identification and links, executed by the server, sync; `manager.association`."""

    def __init__(self, calls: AssociationCalls, sender: SyncSender) -> None:
        self.calls = calls
        self.sender = sender
