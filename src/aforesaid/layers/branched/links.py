"""Links between related conversations: two documents of the owner for each, one for either side."""

from aforesaid.contracts import ConversationStore

LINKS = "links"
PAGE = 100


def link_keys(here: str, there: str) -> tuple[str, str]:
    """Return the keys of a link."""
    return f"{here}/{there}", f"{there}/{here}"


async def linked_to(store: ConversationStore, conversation_id: str) -> list[str]:
    """Return the conversations that are linked to this one."""
    found: list[str] = []
    after = stem = f"{conversation_id}/"
    while True:
        page = await store.documents(LINKS, after=after, limit=PAGE)
        mine = [one.key for one in page if one.key.startswith(stem)]
        found += [key.removeprefix(stem) for key in mine]
        if len(mine) < PAGE:
            return found
        after = mine[-1]


async def remove_links(store: ConversationStore, conversation_id: str) -> None:
    """Remove all links of a conversation that is removed."""
    for other_id in await linked_to(store, conversation_id):
        for key in link_keys(conversation_id, other_id):
            await store.delete_document(LINKS, key)
