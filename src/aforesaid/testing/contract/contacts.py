"""Contacts: documents that a store may keep in a table, with the same behaviour."""

import asyncio

import pytest

from aforesaid.contacts.book import Contacts
from aforesaid.contracts import Backend, ConversationStore
from aforesaid.errors import ContactNotFound, DocumentConflict
from aforesaid.model.contacts import KIND, Contact
from aforesaid.model.conversations import Changes, Query
from aforesaid.model.ids import new_id
from aforesaid.testing.contract.base import Contract, new_conversation


class ContactsContract(Contract):
    """`Contacts` on top of the store's documents."""

    @pytest.fixture
    def contacts(self, store: ConversationStore) -> Contacts:
        return Contacts(store)

    @pytest.fixture
    async def ann(self, contacts: Contacts) -> Contact:
        return await contacts.add(
            "Ann Møller",
            nicknames=["Annie", "Nan"],
            company="Møller & Søn ApS",
            email="ann@example.org",
            phone="+45 12 34 56 78",
            notes="pays late\nlikes 🌷 'quotes' \\ and \"more\"",
        )

    async def test_a_contact_reads_back_equal(self, contacts: Contacts, ann: Contact) -> None:
        assert await contacts.get(ann.id) == ann
        assert (ann.name, ann.nicknames, ann.version) == ("Ann Møller", ("Annie", "Nan"), 1)
        assert (await contacts.list()).contacts == (ann,)

    async def test_a_contact_is_stored_as_a_document(self, store: ConversationStore, ann: Contact) -> None:
        document = await store.get_document(KIND, ann.id)
        assert document is not None
        assert await store.documents(KIND) == [document]
        assert await store.document_kinds() == [KIND]
        again = await store.put_document(KIND, ann.id, document.data)
        assert (again.data, again.version) == (document.data, 2)

    @pytest.mark.parametrize("data", [b"", b"\x00\xff sealed", b'{"name":"x"}', b'{"name":"\\u0000"}', b"[]"])
    async def test_other_data_of_the_contact_kind_is_kept_unchanged(
        self, store: ConversationStore, data: bytes
    ) -> None:
        for key in (new_id(), "no uuid", new_id().upper()):
            put = await store.put_document(KIND, key, data)
            assert await store.get_document(KIND, key) == put
        assert sorted(one.key for one in await store.documents(KIND)) == [
            one.key for one in await store.documents(KIND)
        ]
        assert [one.data for one in await store.documents(KIND)] == [data] * 3

    async def test_contacts_are_listed_in_pages(self, contacts: Contacts) -> None:
        added = [await contacts.add(f"Client {number}") for number in range(7)]
        first = await contacts.list(limit=3)
        rest = await contacts.list(limit=4, after=first.next)
        assert (*first.contacts, *rest.contacts) == tuple(sorted(added, key=lambda one: one.id))
        assert rest.next is None

    async def test_contact_updates_check_the_version(self, store: ConversationStore, ann: Contact) -> None:
        document = await store.get_document(KIND, ann.id)
        assert document is not None
        for expected in (0, 2):
            with pytest.raises(DocumentConflict):
                await store.put_document(KIND, ann.id, document.data, expected_version=expected)
        assert (await store.put_document(KIND, ann.id, document.data, expected_version=1)).version == 2
        with pytest.raises(DocumentConflict):
            await store.delete_document(KIND, ann.id, expected_version=1)
        assert await store.delete_document(KIND, ann.id, expected_version=2)
        assert not await store.delete_document(KIND, ann.id)

    async def test_concurrent_changes_of_different_fields_all_apply(
        self, contacts: Contacts, ann: Contact
    ) -> None:
        await asyncio.gather(
            contacts.update(ann.id, phone="1"),
            contacts.update(ann.id, email="a@b.c"),
            contacts.update(ann.id, notes="n"),
        )
        changed = await contacts.get(ann.id)
        assert (changed.phone, changed.email, changed.notes, changed.version) == ("1", "a@b.c", "n", 4)

    async def test_a_client_name_alone_creates_no_contact(
        self, store: ConversationStore, contacts: Contacts
    ) -> None:
        client = new_id()
        record = await store.create(new_conversation(store, client_id=client, client_name="Bo"))
        assert await contacts.lookup(client) is None
        assert (await contacts.list()).contacts == ()
        assert await store.document_kinds() == []
        described = await contacts.add("Bo Larsen", client_id=client)
        assert described.version == 1
        assert await store.get(record.id) == record

    async def test_conversations_outlive_their_contact(
        self, store: ConversationStore, contacts: Contacts, ann: Contact
    ) -> None:
        linked = [
            await store.create(new_conversation(store, client_id=ann.id, client_name=ann.name))
            for _ in range(3)
        ]
        other = await store.create(new_conversation(store, client_id=new_id(), client_name="Bo"))
        assert await contacts.remove(ann.id)
        for record in linked:
            left = await store.get(record.id)
            assert left is not None
            assert (left.client_id, left.client_name) == (None, ann.name)
            assert left.revision > record.revision
        assert await store.get(other.id) == other
        assert (await store.find(Query(client_id=ann.id))).conversations == ()
        assert await store.document_kinds() == []
        with pytest.raises(ContactNotFound):
            await contacts.get(ann.id)
        assert not await contacts.remove(ann.id)

    async def test_renaming_a_contact_updates_its_conversations(
        self, store: ConversationStore, contacts: Contacts, ann: Contact
    ) -> None:
        record = await store.create(new_conversation(store))
        await store.update(record.id, Changes(client_id=ann.id, client_name=ann.name))
        await contacts.update(ann.id, name="Ann Olsen")
        renamed = await store.get(record.id)
        assert renamed is not None
        assert renamed.client_name == "Ann Olsen"

    async def test_contacts_are_isolated_by_owner(
        self, backend: Backend, contacts: Contacts, ann: Contact
    ) -> None:
        stranger = Contacts(backend.of(f"stranger-{new_id()}"))
        assert await stranger.lookup(ann.id) is None
        assert (await stranger.list()).contacts == ()
        assert not await stranger.remove(ann.id)
        assert (await stranger.add("Somebody", client_id=ann.id)).name == "Somebody"
        assert await contacts.get(ann.id) == ann

    async def test_an_owner_with_only_contacts_is_listed_and_can_be_cleared(self, backend: Backend) -> None:
        for name in (f"book-{new_id()}", new_id() + "x" * 900):
            store = backend.of(name)
            await Contacts(store).add("Ann")
            assert name in [owner async for owner in backend.owners()]
            assert (await store.clear()).documents == {"contacts": 1}
            assert await store.document_kinds() == []

    async def test_contacts_are_restored_exactly(self, store: ConversationStore, ann: Contact) -> None:
        document = await store.get_document(KIND, ann.id)
        assert document is not None
        other = new_id()
        await store.create(new_conversation(store, client_id=other))
        kept = [
            document,
            type(document)(kind=KIND, key=other, data=b"sealed", version=7, updated_at=document.updated_at),
        ]
        await store.clear()
        await store.restore_documents(kept)
        assert await store.documents(KIND) == sorted(kept, key=lambda one: one.key)
