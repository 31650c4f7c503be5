"""Contacts of an owner."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct
from msgspec.structs import asdict

from aforesaid.contacts.book import ContactPage
from aforesaid.contacts.csv_import import Imported
from aforesaid.errors import Malformed
from aforesaid.model.contacts import NO_MATCH, AmbiguousMention, ClientMatch, Contact
from aforesaid.protocol.bodies import (
    ClientText,
    ContactChanges,
    ContactQuery,
    Limit,
    NewContact,
    ResponseModel,
    Uuid,
)
from aforesaid.server.endpoints import Call, Media, NoBody, NoQuery, Reply, Routes
from aforesaid.server.responses import NO_CONTENT, json_response
from aforesaid.server.routes.conversations import link_to_next

routes = Routes("clients")

CSV = "text/csv"


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The page to return."""

    limit: Limit = 50
    after: Uuid | None = None


@routes.get("/clients", response=ContactPage)
async def list_clients(call: Call[NoBody, PageQuery]) -> Reply:
    """List contacts in order of creation."""
    page = await call.manager.clients.list(call.query.limit, call.query.after)
    return json_response(page, headers=link_to_next(call, "after", page.next))


class MentionsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of mentions."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class MentionsBody(ResponseModel, frozen=True, kw_only=True):
    """Mentions that may mean several contacts, the latest first."""

    mentions: list[AmbiguousMention]


@routes.get("/clients/ambiguous", response=MentionsBody, route_class="search")
async def list_ambiguous_mentions(call: Call[NoBody, MentionsQuery]) -> Reply:
    """List messages of recent conversations without a client that may name several contacts.

    Link the conversation to one of the candidates, or remove its client to say that it is none of them.
    """
    found = await call.manager.association.ambiguous_mentions(call.query.limit)
    return json_response({"mentions": found})


@routes.post("/clients", response=Contact, status=201, errors=(409,))
async def add_client(call: Call[NewContact, NoQuery]) -> Reply:
    """Create a contact. Answers 409 if the given `client_id` is taken."""
    return json_response(await call.manager.clients.add(**asdict(call.body)), status=201)


@routes.get("/clients/{client_id}", response=Contact)
async def get_client(call: Call[NoBody, NoQuery]) -> Reply:
    """Return a contact."""
    return json_response(await call.manager.clients.get(call.path["client_id"]))


@routes.patch("/clients/{client_id}", response=Contact)
async def update_client(call: Call[ContactChanges, NoQuery]) -> Reply:
    """Change a contact. Linked conversations get a new name too.

    Omitted fields do not change; null clears a field.
    """
    fields = {name: value for name, value in asdict(call.body).items() if value is not UNSET}
    clear = [name for name, value in fields.items() if value is None]
    changes = {name: value for name, value in fields.items() if value is not None}
    return json_response(await call.manager.clients.update(call.path["client_id"], **changes, clear=clear))


@routes.delete("/clients/{client_id}")
async def remove_client(call: Call[NoBody, NoQuery]) -> Reply:
    """Remove a contact. Its conversations stay and have no client."""
    await call.manager.clients.remove(call.path["client_id"])
    return NO_CONTENT


@routes.post(
    "/clients/import", response=Imported, body_media=Media(type=CSV, description="A CSV file in UTF-8.")
)
async def import_clients(call: Call[NoBody, NoQuery]) -> Reply:
    """Import contacts from a CSV file. The response lists invalid lines with the reason."""
    try:
        text = call.raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Malformed("the file must be UTF-8", field="body") from None
    return json_response(await call.manager.clients.import_csv(text))


@routes.post("/clients/find", response=ContactPage, scope="read", route_class="search")
async def find_clients(call: Call[ContactQuery, NoQuery]) -> Reply:
    """Find contacts by parts of names, companies, addresses and numbers, best match first.

    Tolerates misspellings.
    """
    found = await call.manager.clients.find(call.body.query, limit=call.body.limit)
    return json_response(ContactPage(contacts=tuple(found)))


@routes.post("/clients/identify", response=ClientMatch, scope="read", route_class="search")
async def identify_client(call: Call[ClientText, NoQuery]) -> Reply:
    """Identify the client that a text names.

    Returns one client, several candidates if the name is ambiguous, or neither.
    """
    match = await call.manager.association.identify_client(call.body.text, by_ear=call.body.by_ear)
    return json_response(match or NO_MATCH)
