"""Clients: whoever is named is linked, listed with all of its conversations, each on its own."""

from hypothesis import strategies as st

from aforesaid.contacts import ClientAssociationService, Contact
from aforesaid.memory.manager import ConversationManager
from tests.builders import World
from tests.examples import for_all

GIVEN = ("Robert", "Anna", "José", "Élodie", "Jürgen", "Siobhan", "Priya", "Willem")
FAMILY = ("Oakley", "Müller", "Lefèvre", "Núñez", "van den Berg", "O'Brien", "Raman", "Abernathy")
SAID = (
    "I spoke to {} today.",
    "{}'s invoice is wrong.",
    "Please call {} tomorrow",
    "Bitte ruf {} an.",
    "Le dossier de {} est complet.",
    "La factura de {} no llegó.",
    "Bel {} terug",
)
people = st.lists(
    st.tuples(st.sampled_from(GIVEN), st.sampled_from(FAMILY)),
    min_size=1,
    max_size=3,
    unique_by=(lambda name: name[0], lambda name: name[1]),
)


async def add(erin: ConversationManager, names: list[tuple[str, str]]) -> list[Contact]:
    return [await erin.clients.add(" ".join(name)) for name in names]


# Feature: conversation-context, Property 5: Client association storage
@for_all(names=people, said=st.sampled_from(SAID), restart=st.booleans())
def test_whoever_is_named_is_linked_and_stays_so(
    world: World, names: list[tuple[str, str]], said: str, restart: bool
) -> None:
    async def play(erin: ConversationManager) -> None:
        contacts = await add(erin, names)
        conversation = await erin.get_or_create_conversation("s")
        await erin.add_message(conversation.id, "user", said.format(contacts[0].name))
        await erin.contact_resources.queue.wait_until_idle()
        linked = await erin.get_conversation(conversation.id)
        assert (linked.client_id, linked.client_name) == (contacts[0].id, contacts[0].name)
        for contact in contacts:
            await erin.clients.remove(contact.id)
        left = await erin.get_conversation(conversation.id)
        assert (left.client_id, left.client_name) == (None, contacts[0].name)

    world.play(play)
    if restart:
        world.restart()


# Feature: conversation-context, Property 15: Client query retrieval
@for_all(names=people, data=st.data())
def test_all_conversations_that_name_a_client_are_found_by_it(
    world: World, names: list[tuple[str, str]], data: st.DataObject
) -> None:
    meant = data.draw(st.lists(st.none() | st.integers(0, len(names) - 1), max_size=4))

    async def play(erin: ConversationManager) -> None:
        contacts = await add(erin, names)
        made: dict[int | None, set[str]] = {}
        for number, which in enumerate(meant):
            conversation = await erin.get_or_create_conversation(f"s{number}")
            text = "Turn on the lights" if which is None else f"Please call {contacts[which].name} tomorrow"
            await erin.add_message(conversation.id, "user", text)
            made.setdefault(which, set()).add(conversation.id)
        await erin.contact_resources.queue.wait_until_idle()
        for which, contact in enumerate(contacts):
            page = await erin.list(client_id=contact.id)
            assert {record.id for record in page.conversations} == made.get(which, set())

    world.play(play)


# Feature: conversation-context, Property 16: Separate conversations per client
@for_all(names=people, count=st.integers(2, 3))
def test_conversations_that_name_one_client_stay_separate(
    world: World, names: list[tuple[str, str]], count: int
) -> None:
    async def play(erin: ConversationManager) -> None:
        contacts = await add(erin, names)
        service = ClientAssociationService(erin)
        records = [await erin.get_or_create_conversation(f"s{number}") for number in range(count)]
        for number, record in enumerate(records):
            await erin.add_message(record.id, "user", f"{contacts[0].name} called about {number}")
        await erin.contact_resources.queue.wait_until_idle()
        await service.unlink_conversation(records[0].id)
        page = await erin.list(client_id=contacts[0].id)
        assert {one.id for one in page.conversations} == {record.id for record in records[1:]}
        for number, record in enumerate(records):
            (message,) = await erin.messages(record.id)
            assert message.content == f"{contacts[0].name} called about {number}"

    world.play(play)
