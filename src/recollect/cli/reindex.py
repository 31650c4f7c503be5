"""`recollect reindex`: make the vectors anew, or those that are missing, and remove another model's."""

from typing import Annotated

import typer
from msgspec import Struct
from rich.progress import Progress

from recollect.cli.rendering import console, counted, errors_console
from recollect.cli.running import JsonOption, OwnerOption, UrlOption, managers, memory_at, print_json, run
from recollect.errors import MissingExtra
from recollect.manager import ConversationManager
from recollect.memory import Memory
from recollect.search.catching_up import all_records
from recollect.search.indexing import Indexer, remove_vectors


class Reindexed(Struct, kw_only=True):
    """What was done."""

    model: str
    conversations: int = 0
    messages: int = 0
    removed: int = 0
    """Blocks of vectors that went: this model's old ones, and those of other models."""


def reindex(
    url: UrlOption = None,
    owner: OwnerOption = None,
    missing: Annotated[bool, typer.Option("--missing", help="Keep what is there; add what lacks.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make the vectors for search by meaning anew, and remove those of other models."""

    async def work() -> Reindexed:
        async with memory_at(url) as memory:
            indexer = memory.search_room.indexer
            if indexer is None:
                raise MissingExtra("search by meaning", extra="semantic")
            return await _reindex(memory, indexer, owner, missing=missing)

    done = run(work)
    if as_json:
        print_json(done)
        return
    where = counted(done.conversations, "conversation")
    console().print(f"{counted(done.messages, 'message')} in {where}, by {done.model}")
    if done.removed:
        console().print(f"[dim]{counted(done.removed, 'block')} of vectors removed[/]")


async def _reindex(memory: Memory, indexer: Indexer, owner: str | None, *, missing: bool) -> Reindexed:
    done = Reindexed(model=indexer.embedder.name)
    everybody = [one async for one in managers(memory, owner)]
    total = sum([record.message_count for _, m in everybody async for record in all_records(m.store)])
    with Progress(console=errors_console(), transient=True) as progress:
        bar = progress.add_task("vectors", total=total)
        for name, manager in everybody:
            async for record in all_records(manager.store):
                await _reindex_one(indexer, done, name, manager, record.id, missing=missing)
                progress.advance(bar, record.message_count)
    return done


async def _reindex_one(
    indexer: Indexer,
    done: Reindexed,
    owner: str,
    manager: ConversationManager,
    conversation_id: str,
    *,
    missing: bool,
) -> None:
    keep = indexer.embedder.name if missing else None
    done.removed += await remove_vectors(manager.store, conversation_id, all_but=keep)
    done.messages += await indexer.index(owner, manager.store, conversation_id)
    done.conversations += 1
