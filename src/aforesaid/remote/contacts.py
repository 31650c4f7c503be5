"""An owner's contacts and client association behind a server, async and sync."""

from collections.abc import Iterator

from aforesaid.contacts.association import Association
from aforesaid.contacts.book import PAGE, Contacts
from aforesaid.model.contacts import Contact
from aforesaid.remote.methods import async_method, sync_method
from aforesaid.remote.requests.contacts import AssociationCalls, ContactCalls
from aforesaid.remote.transport import AsyncSender, SyncSender


class RemoteContacts(Contacts):
    """One owner's contacts behind a server; `manager.clients`."""

    def __init__(self, calls: ContactCalls, sender: AsyncSender) -> None:
        # Skips Contacts.__init__, which needs a store.
        self.calls = calls
        self.sender = sender

    add = async_method(ContactCalls.add, Contacts.add)
    get = async_method(ContactCalls.get, Contacts.get)
    lookup = async_method(ContactCalls.lookup, Contacts.lookup)
    list = async_method(ContactCalls.list, Contacts.list)
    find = async_method(ContactCalls.find, Contacts.find)
    update = async_method(ContactCalls.update, Contacts.update)
    remove = async_method(ContactCalls.remove, Contacts.remove)
    import_csv = async_method(ContactCalls.import_csv, Contacts.import_csv)


class SyncContacts:
    """One owner's contacts behind a server, sync; `manager.clients`."""

    def __init__(self, calls: ContactCalls, sender: SyncSender) -> None:
        self.calls = calls
        self.sender = sender

    add = sync_method(ContactCalls.add, Contacts.add)
    get = sync_method(ContactCalls.get, Contacts.get)
    lookup = sync_method(ContactCalls.lookup, Contacts.lookup)
    list = sync_method(ContactCalls.list, Contacts.list)
    find = sync_method(ContactCalls.find, Contacts.find)
    update = sync_method(ContactCalls.update, Contacts.update)
    remove = sync_method(ContactCalls.remove, Contacts.remove)
    import_csv = sync_method(ContactCalls.import_csv, Contacts.import_csv)

    def every(self) -> Iterator[Contact]:
        """Yield all contacts, page by page."""
        after: str | None = None
        while True:
            page = self.list(limit=PAGE, after=after)
            yield from page.contacts
            after = page.next
            if after is None:
                return


class RemoteAssociation:
    """Client identification and links, executed by the server; `manager.association`."""

    def __init__(self, calls: AssociationCalls, sender: AsyncSender) -> None:
        self.calls = calls
        self.sender = sender

    identify_client = async_method(AssociationCalls.identify_client, Association.identify_client)
    link_conversation_to_client = async_method(
        AssociationCalls.link_conversation_to_client, Association.link_conversation_to_client
    )
    unlink_conversation = async_method(AssociationCalls.unlink_conversation, Association.unlink_conversation)


class SyncAssociation:
    """Client identification and links, executed by the server, sync; `manager.association`."""

    def __init__(self, calls: AssociationCalls, sender: SyncSender) -> None:
        self.calls = calls
        self.sender = sender

    identify_client = sync_method(AssociationCalls.identify_client, Association.identify_client)
    link_conversation_to_client = sync_method(
        AssociationCalls.link_conversation_to_client, Association.link_conversation_to_client
    )
    unlink_conversation = sync_method(AssociationCalls.unlink_conversation, Association.unlink_conversation)
