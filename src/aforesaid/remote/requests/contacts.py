"""Calls for contacts. The signatures are those of `manager.clients` and `manager.association`."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from aforesaid.contacts.association import client_id_of
from aforesaid.contacts.book import ContactPage, cleared_fields
from aforesaid.errors import InvalidInput, shown
from aforesaid.model.contacts import NO_MATCH, AmbiguousMention, ClientMatch, Contact, parse_fields
from aforesaid.model.conversations import Conversation, check_count
from aforesaid.model.ids import new_id, parse_uuid
from aforesaid.protocol import conversation_of
from aforesaid.remote.calls import Call, path_of, reader
from aforesaid.remote.requests.base import (
    LARGEST_PAGE,
    VERSION,
    Calls,
    CallSequence,
    conversation,
    none_if_absent,
)

if TYPE_CHECKING:
    from aforesaid.contacts.csv_import import Imported


class ContactCalls(Calls):
    """Calls for an owner's contacts."""

    def add(
        self,
        name: str,
        *,
        nicknames: Sequence[str] = (),
        company: str | None = None,
        email: str | None = None,
        phone: str | None = None,
        notes: str | None = None,
        client_id: str | None = None,
    ) -> Call[Contact]:
        fields = {
            "name": name,
            "nicknames": nicknames,
            "company": company,
            "email": email,
            "phone": phone,
            "notes": notes,
        }
        key = new_id() if client_id is None else parse_uuid(client_id, field="client_id")
        # Not retried: a second attempt would find the id taken by the first.
        body = {**parse_fields(fields), "client_id": key}
        return self._call("POST", "clients", body=body, read=_contact, repeatable=False)

    def get(self, client_id: str) -> Call[Contact]:
        return self._call("GET", "clients", _key(client_id), read=_contact)

    def lookup(self, client_id: str) -> Call[Contact | None]:
        return self._call("GET", "clients", _key(client_id), read=_contact, on_not_found=none_if_absent)

    def list(self, limit: int = 50, after: str | None = None) -> CallSequence[ContactPage]:
        check_count(limit, field="limit", least=1)
        found: list_[Contact] = []
        while True:
            query = {"limit": min(limit - len(found), LARGEST_PAGE), "after": after}
            page: ContactPage = yield self._call("GET", "clients", query=query, read=_page)
            found += page.contacts
            after = page.next
            if after is None or len(found) >= limit:
                return ContactPage(contacts=tuple(found), next=after)

    def update(
        self,
        client_id: str,
        *,
        name: str | None = None,
        nicknames: Sequence[str] | None = None,
        company: str | None = None,
        email: str | None = None,
        phone: str | None = None,
        notes: str | None = None,
        clear: Collection[str] = (),
    ) -> Call[Contact]:
        fields = {
            "name": name,
            "nicknames": nicknames,
            "company": company,
            "email": email,
            "phone": phone,
            "notes": notes,
        }
        changes = parse_fields({field: value for field, value in fields.items() if value is not None})
        body = {**changes, **dict.fromkeys(cleared_fields(clear))}
        return self._call("PATCH", "clients", _key(client_id), body=body, read=_contact)

    def remove(self, client_id: str) -> CallSequence[bool]:
        found = yield self.lookup(client_id)
        yield self._call_without_result("DELETE", "clients", _key(client_id))
        return found is not None

    def find(self, query: str, limit: int = 20) -> "Call[list_[Contact]]":
        check_count(limit, field="limit", least=1)
        if not isinstance(query, str):
            raise InvalidInput(f"query must be text; got {shown(query)}", field="query", value=query)
        body = {"query": query, "limit": min(limit, LARGEST_PAGE)}
        return self._call("POST", "clients", "find", body=body, read=_found)

    def import_csv(self, text: str) -> "Call[Imported]":
        if not isinstance(text, str):
            raise InvalidInput(f"text must be text; got {shown(text)}", field="text", value=text)
        return Call(
            method="POST",
            path=path_of(VERSION, "clients", "import"),
            headers={**self._headers, "content-type": "text/csv"},
            body=text.encode(errors="replace"),
            read=reader(_imported),
        )


class AssociationCalls(Calls):
    """Calls for client identification and links."""

    def identify_client(self, text: str, *, by_ear: bool = False) -> Call[ClientMatch | None]:
        if not isinstance(text, str):
            raise InvalidInput(f"text must be text; got {shown(text)}", field="text", value=text)
        body = {"text": text, "by_ear": by_ear}
        return self._call("POST", "clients", "identify", body=body, read=_match)

    def link_conversation_to_client(
        self, conversation_id: str, client: str | ClientMatch | Contact
    ) -> CallSequence[Conversation | None]:
        place = ("conversations", conversation(conversation_id), "client")
        client_id = client_id_of(client)
        if client_id is None and not isinstance(client, ClientMatch | Contact):
            client_id = client_id_of((yield self.identify_client(client)))
        if client_id is None:
            return None
        contact: Contact = yield self._call("GET", "clients", client_id, read=_contact)
        body = {"client_id": contact.id, "client_name": contact.name}
        linked: Conversation = yield self._call("PUT", *place, body=body, read=conversation_of)
        return linked

    def unlink_conversation(self, conversation_id: str) -> Call[Conversation]:
        place = ("conversations", conversation(conversation_id), "client")
        return self._call("DELETE", *place, read=conversation_of)

    def ambiguous_mentions(self, limit: int = 20) -> "Call[list_[AmbiguousMention]]":
        check_count(limit, field="limit", least=1)
        query = {"limit": str(min(limit, 100))}
        return self._call("GET", "clients", "ambiguous", query=query, read=_mentions)


# The built-in, which the method `list` shadows.
list_ = list


def _key(client_id: str) -> str:
    return parse_uuid(client_id, field="client_id")


def _contact(document: Any) -> Contact:
    return msgspec.convert(document, Contact)


def _page(document: Any) -> ContactPage:
    return msgspec.convert(document, ContactPage)


def _match(document: Any) -> ClientMatch | None:
    match = msgspec.convert(document, ClientMatch)
    return None if match == NO_MATCH else match


def _found(document: Any) -> list[Contact]:
    return list(_page(document).contacts)


def _mentions(document: Any) -> list[AmbiguousMention]:
    return msgspec.convert(document["mentions"], list[AmbiguousMention])


def _imported(document: Any) -> "Imported":
    from aforesaid.contacts.csv_import import Imported

    return msgspec.convert(document, Imported)
