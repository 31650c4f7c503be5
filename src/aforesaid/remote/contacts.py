"""An owner's contacts, and who is meant, behind a server: awaited or waited for.

Below: describing, sending. Above: managers.
"""

from collections.abc import Iterator

from aforesaid.contacts.association import Association
from aforesaid.contacts.book import PAGE, Contacts
from aforesaid.model.contacts import Contact
from aforesaid.remote.methods import awaited, waited
from aforesaid.remote.requests.contacts import AssociationCalls, ContactCalls
from aforesaid.remote.transport import AsyncSender, SyncSender


class RemoteContacts(Contacts):
    """One owner's contacts behind a server; `manager.clients`."""

    def __init__(self, calls: ContactCalls, sender: AsyncSender) -> None:
        # What contacts have of a store is the server's business: nothing of it is made here.
        self.calls = calls
        self.sender = sender

    add = awaited(ContactCalls.add, Contacts.add)
    get = awaited(ContactCalls.get, Contacts.get)
    lookup = awaited(ContactCalls.lookup, Contacts.lookup)
    list = awaited(ContactCalls.list, Contacts.list)
    find = awaited(ContactCalls.find, Contacts.find)
    update = awaited(ContactCalls.update, Contacts.update)
    remove = awaited(ContactCalls.remove, Contacts.remove)
    import_csv = awaited(ContactCalls.import_csv, Contacts.import_csv)


class SyncContacts:
    """One owner's contacts behind a server, for code that does not await; `manager.clients`."""

    def __init__(self, calls: ContactCalls, sender: SyncSender) -> None:
        self.calls = calls
        self.sender = sender

    add = waited(ContactCalls.add, Contacts.add)
    get = waited(ContactCalls.get, Contacts.get)
    lookup = waited(ContactCalls.lookup, Contacts.lookup)
    list = waited(ContactCalls.list, Contacts.list)
    find = waited(ContactCalls.find, Contacts.find)
    update = waited(ContactCalls.update, Contacts.update)
    remove = waited(ContactCalls.remove, Contacts.remove)
    import_csv = waited(ContactCalls.import_csv, Contacts.import_csv)

    def every(self) -> Iterator[Contact]:
        """All contacts, one after the other."""
        after: str | None = None
        while True:
            page = self.list(limit=PAGE, after=after)
            yield from page.contacts
            after = page.next
            if after is None:
                return


class RemoteAssociation:
    """Which client is meant, as the server says; `manager.association`."""

    def __init__(self, calls: AssociationCalls, sender: AsyncSender) -> None:
        # The names are known to the server: no index is made here.
        self.calls = calls
        self.sender = sender

    identify_client = awaited(AssociationCalls.identify_client, Association.identify_client)
    link_conversation_to_client = awaited(
        AssociationCalls.link_conversation_to_client, Association.link_conversation_to_client
    )
    unlink_conversation = awaited(AssociationCalls.unlink_conversation, Association.unlink_conversation)


class SyncAssociation:
    """Which client is meant, as the server says, for code that does not await; `manager.association`."""

    def __init__(self, calls: AssociationCalls, sender: SyncSender) -> None:
        self.calls = calls
        self.sender = sender

    identify_client = waited(AssociationCalls.identify_client, Association.identify_client)
    link_conversation_to_client = waited(
        AssociationCalls.link_conversation_to_client, Association.link_conversation_to_client
    )
    unlink_conversation = waited(AssociationCalls.unlink_conversation, Association.unlink_conversation)
