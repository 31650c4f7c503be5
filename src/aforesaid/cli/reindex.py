"""`aforesaid reindex`: bring the index of words up to date, and make the vectors anew."""

from typing import Annotated

import typer
from msgspec import Struct
from rich.progress import Progress

from aforesaid.cli.render import console, counted, errors_console
from aforesaid.cli.runtime import JsonOption, OwnerOption, UrlOption, managers, memory_at, print_json, run
from aforesaid.contracts import Reindexable
from aforesaid.contracts.listing import every_record
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.opening import Memory
from aforesaid.search.indexing import Indexer, remove_vectors
from aforesaid.search.searcher import WITHOUT_VECTORS


class Done(Struct, kw_only=True):
    """What was done."""

    words: int = 0
    """Messages that the store's own index lacked."""
    model: str | None = None
    conversations: int = 0
    messages: int = 0
    """Messages that were encoded, or found to have no words."""
    removed: int = 0
    """Blocks of vectors that went: this model's old ones, and those of other models."""


def reindex(
    url: UrlOption = None,
    owner: OwnerOption = None,
    missing: Annotated[bool, typer.Option("--missing", help="Keep what is there; add what lacks.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring the search index up to date: words where they lack, vectors anew; other models' vectors go."""

    async def work() -> Done:
        done = Done()
        async with memory_at(url) as memory:
            with Progress(console=errors_console(), transient=True) as progress:
                await _reindex_words(memory, done, progress)
                if memory.search_resources.indexer is not None:
                    await _reindex_vectors(
                        memory, memory.search_resources.indexer, done, progress, owner, missing=missing
                    )
        return done

    done = run(work)
    if as_json:
        print_json(done)
        return
    if done.words:
        console().print(f"{counted(done.words, 'message')} indexed by words")
    if done.model is None:
        console().print(f"[dim]{WITHOUT_VECTORS}[/]")
        return
    where = counted(done.conversations, "conversation")
    console().print(f"{counted(done.messages, 'message')} in {where}, by {done.model}")
    if done.removed:
        console().print(f"[dim]{counted(done.removed, 'block')} of vectors removed[/]")


async def _reindex_words(memory: Memory, done: Done, progress: Progress) -> None:
    if isinstance(memory.backend, Reindexable):
        bar = progress.add_task("words", total=None)
        done.words = await memory.backend.reindex(lambda number: progress.update(bar, completed=number))
        progress.remove_task(bar)


async def _reindex_vectors(
    memory: Memory, indexer: Indexer, done: Done, progress: Progress, owner: str | None, *, missing: bool
) -> None:
    done.model = indexer.embedder.name
    everybody = [one async for one in managers(memory, owner)]
    total = sum([record.message_count for _, m in everybody async for record in every_record(m.store)])
    bar = progress.add_task("vectors", total=total)
    for name, manager in everybody:
        async for record in every_record(manager.store):
            await _reindex_one(indexer, done, name, manager, record.id, missing=missing)
            progress.advance(bar, record.message_count)


async def _reindex_one(
    indexer: Indexer,
    done: Done,
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
