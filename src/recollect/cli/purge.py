"""`recollect purge`: remove what has expired, now."""

from recollect.cli.rendering import console
from recollect.cli.running import JsonOption, OwnerOption, UrlOption, memory_at, print_json, run


def purge(url: UrlOption = None, owner: OwnerOption = None, as_json: JsonOption = False) -> None:
    """Remove expired conversations."""

    async def work() -> int:
        async with memory_at(url) as memory:
            if owner is not None:
                return await memory.of(owner).purge_expired()
            return await memory.purge_expired()

    purged = run(work)
    if as_json:
        print_json({"purged": purged})
    else:
        console().print(f"{purged:,} expired conversation{'' if purged == 1 else 's'} removed")
