"""Read how conversations begin, so that lists can show those without a subject by their first words."""

import asyncio
from collections.abc import Iterable, Sequence

from aforesaid.contracts import Entry, unreadable_reason
from aforesaid.dialects import meaning_of
from aforesaid.dialects.images import PLACEHOLDER
from aforesaid.dialects.tombstones import TAG
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message

# Messages in which the first words of a user are looked for.
_EXAMINED = 4
_LONGEST = 60


async def openings_of(manager: ConversationManager, records: Iterable[Conversation]) -> dict[str, str]:
    """Return the first words that a user said in each conversation, by its id, where there are any."""

    async def read(record: Conversation) -> str:
        found = await manager.store.page(record.id, limit=_EXAMINED) if record.message_count else []
        return _first_words(found)

    listed = list(records)
    words = await asyncio.gather(*map(read, listed))
    return {record.id: said for record, said in zip(listed, words, strict=True) if said}


def _first_words(entries: Sequence[Entry]) -> str:
    said = (
        _shortened(meaning_of(entry.message).text.replace(PLACEHOLDER, ""))
        for entry in entries
        if unreadable_reason(entry) is None and _is_said(entry.message)
    )
    return next(filter(None, said), "")


def _is_said(message: Message) -> bool:
    return message.role == "user" and TAG not in message.tags


def _shortened(text: str) -> str:
    """Return the beginning of a text in one line, cut between words."""
    words = " ".join(text[: 10 * _LONGEST].split())
    if len(words) <= _LONGEST:
        return words
    return words[:_LONGEST].rpartition(" ")[0] + "…" if " " in words[:_LONGEST] else words[:_LONGEST] + "…"
