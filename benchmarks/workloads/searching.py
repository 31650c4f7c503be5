"""W12: search by words and meaning: its speed in long histories, its first question, what it adds to a turn,
whether stores find the same, and whether other people's questions find nothing.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from aforesaid.search.encoders import encoder_named
from benchmarks import first_question, search_agreement, search_speed, search_writes
from benchmarks.peers.driving import Race
from benchmarks.peers.roster import Entrant
from benchmarks.search_eval import floor
from benchmarks.search_eval.asking import asking
from benchmarks.search_eval.households import households
from benchmarks.workloads.size import Size

MESSAGES = 100
"""Of a conversation."""
SHORT = 10
"""Conversations of the history that first questions are asked about, besides the longest ones."""


def run(race: Race, size: Size, entrants: tuple[Entrant, ...]) -> dict[str, Any]:
    """Needs no other entrant: none of the peers has a search."""
    with tempfile.TemporaryDirectory(dir=race.folder) as folder:
        place = Path(folder)
        return {
            "speed": [_speed(place, conversations, size) for conversations in size.searched],
            "first": [
                _first(place, conversations, size) for conversations in sorted({SHORT, size.searched[0]})
            ],
            "writes": _writes(place, size),
            "agreement": asyncio.run(_agreement(size)),
            "nothing": asyncio.run(_nothing()),
        }


def _file(folder: Path, conversations: int) -> Path:
    return folder / f"searched {conversations}.db"


def _speed(folder: Path, conversations: int, size: Size) -> dict[str, Any]:
    file = _file(folder, conversations)
    return asyncio.run(search_speed.measure(file, conversations, MESSAGES, size.questions))


def _first(folder: Path, conversations: int, size: Size) -> dict[str, Any]:
    file = _file(folder, conversations)
    if not file.exists():
        asyncio.run(search_speed.measure(file, conversations, MESSAGES, questions=1))
    return {"messages": conversations * MESSAGES, **first_question.measure(file, size.first_questions)}


def _writes(folder: Path, size: Size) -> dict[str, Any]:
    return {
        synchronous: asyncio.run(search_writes.measure(folder, synchronous, size.write_rounds))
        for synchronous in ("full", "normal")
    }


async def _agreement(size: Size) -> list[dict[str, Any]]:
    found = []
    for conversations in size.agreement:
        for by_words in (True, False):
            stores = await search_agreement.made_up(conversations, size.questions, by_words=by_words)
            found.append({"messages": conversations * 100, "by_words": by_words, "stores": stores})
    return found


async def _nothing() -> list[dict[str, Any]]:
    """Ask the owners of short everyday histories their own questions and those of the others."""
    everyday, found = households(), []
    for name, encoder in (("words", None), ("hybrid", encoder_named("installed"))):
        async with asking(everyday, encoder) as ready:
            one = await floor.measure(ready, everyday, await ready.answers(None), [])
        found.append(
            {
                "name": name,
                "foreign": one.foreign,
                "nothing": one.nothing,
                "recall": one.recall,
                "recall_above": one.recall_above,
            }
        )
    return found
