"""`aforesaid reindex`: complete the lexical index and rebuild the vectors."""

from typing import Annotated

import typer
from msgspec import Struct
from rich.progress import Progress

from aforesaid.cli.render import console, counted, errors_console
from aforesaid.cli.runtime import JsonOption, OwnerOption, UrlOption, managers, memory_at, print_json, run
from aforesaid.contracts import Reindexable, capability
from aforesaid.contracts.listing import every_record
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.opening import Memory
from aforesaid.search.indexing import Indexer, remove_vectors
from aforesaid.search.searcher import WITHOUT_VECTORS


class Result(Struct, kw_only=True):
    """Counts of indexed messages and removed vectors."""

    words: int = 0
    """Messages added to the store's lexical index."""
    model: str | None = None
    conversations: int = 0
    messages: int = 0
    """Messages embedded, or without text."""
    removed: int = 0
    """Removed vector blocks: this model's old ones and those of other models."""


def reindex(
    url: UrlOption = None,
    owner: OwnerOption = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Keep existing vectors; add missing ones.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Complete the lexical index, rebuild the vectors, and remove the vectors of other models."""

    async def work() -> Result:
        result = Result()
        async with memory_at(url) as memory:
            with Progress(console=errors_console(), transient=True) as progress:
                await _reindex_words(memory, result, progress)
                if memory.search_resources.indexer is not None:
                    await _reindex_vectors(
                        memory, memory.search_resources.indexer, result, progress, owner, missing=missing
                    )
        return result

    result = run(work)
    if as_json:
        print_json(result)
        return
    if result.words:
        console().print(f"{counted(result.words, 'message')} added to the lexical index")
    if result.model is None:
        console().print(f"[dim]{WITHOUT_VECTORS}[/]")
        return
    where = counted(result.conversations, "conversation")
    console().print(f"{counted(result.messages, 'message')} in {where}, by {result.model}")
    if result.removed:
        console().print(f"[dim]{counted(result.removed, 'block')} of vectors removed[/]")


async def _reindex_words(memory: Memory, result: Result, progress: Progress) -> None:
    reindexable = capability(memory.backend, Reindexable)
    if reindexable is not None:
        bar = progress.add_task("words", total=None)
        result.words = await reindexable.reindex(lambda number: progress.update(bar, completed=number))
        progress.remove_task(bar)


async def _reindex_vectors(
    memory: Memory, indexer: Indexer, result: Result, progress: Progress, owner: str | None, *, missing: bool
) -> None:
    result.model = indexer.embedder.name
    owners = [one async for one in managers(memory, owner)]
    total = sum([record.message_count for _, m in owners async for record in every_record(m.store)])
    bar = progress.add_task("vectors", total=total)
    for name, manager in owners:
        async for record in every_record(manager.store):
            await _reindex_one(indexer, result, name, manager, record.id, missing=missing)
            progress.advance(bar, record.message_count)


async def _reindex_one(
    indexer: Indexer,
    result: Result,
    owner: str,
    manager: ConversationManager,
    conversation_id: str,
    *,
    missing: bool,
) -> None:
    keep = indexer.embedder.name if missing else None
    result.removed += await remove_vectors(manager.store, conversation_id, all_but=keep)
    result.messages += await indexer.index(owner, manager.store, conversation_id)
    result.conversations += 1
