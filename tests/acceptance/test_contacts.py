"""Clients: a named client is linked and listed with all of its conversations, each on its own."""

from hypothesis import strategies as st

from aforesaid.contacts import ClientAssociationService, Contact
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import new_id
from tests.builders import Target, forget
from tests.examples import also_for_all

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
@also_for_all(
    names=people, said=st.sampled_from(SAID), restart=st.integers(0, 9).map(lambda number: number == 5)
)
def test_a_named_client_is_linked_and_stays_so(
    target: Target, names: list[tuple[str, str]], said: str, restart: bool
) -> None:
    owner = f"owner-{new_id()}"

    async def name_one(erin: ConversationManager) -> tuple[str, list[Contact]]:
        contacts = await add(erin, names)
        conversation = await erin.get_or_create_conversation("s")
        await erin.add_message(conversation.id, "user", said.format(contacts[0].name))
        await erin.contact_resources.queue.wait_until_idle()
        return conversation.id, contacts

    async def check(erin: ConversationManager) -> None:
        linked = await erin.get_conversation(conversation_id)
        assert (linked.client_id, linked.client_name) == (contacts[0].id, contacts[0].name)
        for contact in contacts:
            await erin.clients.remove(contact.id)
        left = await erin.get_conversation(conversation_id)
        assert (left.client_id, left.client_name) == (None, contacts[0].name)
        await forget(erin)

    conversation_id, contacts = target.run_as(owner, name_one)
    if restart:
        target.restart()
    target.run_as(owner, check)


# Feature: conversation-context, Property 15: Client query retrieval
@also_for_all(names=people, named=st.lists(st.none() | st.integers(0, 2), max_size=4))
def test_all_conversations_that_name_a_client_are_found_by_it(
    target: Target, names: list[tuple[str, str]], named: list[int | None]
) -> None:
    meant = [None if which is None else which % len(names) for which in named]

    async def scenario(erin: ConversationManager) -> None:
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

    target.run(scenario)


# Feature: conversation-context, Property 16: Separate conversations per client
@also_for_all(names=people, count=st.integers(2, 3))
def test_conversations_that_name_one_client_stay_separate(
    target: Target, names: list[tuple[str, str]], count: int
) -> None:
    async def scenario(erin: ConversationManager) -> None:
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

    target.run(scenario)
