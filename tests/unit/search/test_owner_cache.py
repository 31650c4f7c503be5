"""What is cached for each owner: as much as fits, for as long as it is used."""

import asyncio

from msgspec import Struct

from aforesaid.search.resources import OwnerCache


class Copy(Struct, eq=False):
    size: int = 2


class Time:
    """Seconds that pass on request."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_who_asks_again_gets_the_same() -> None:
    cache = OwnerCache(Copy, max_size=10)
    assert cache.of("erin") is cache.of("erin")
    assert cache.get("sam") is None


async def test_who_asked_longest_ago_goes_first_when_it_gets_too_much() -> None:
    cache = OwnerCache(Copy, max_size=5)
    erin, sam = cache.of("erin"), cache.of("sam")
    cache.of("erin")
    cache.of("kim")
    assert cache.get("erin") is erin
    assert cache.get("sam") is None
    assert cache.of("sam") is not sam


async def test_the_owner_who_asks_is_served_however_much_it_is() -> None:
    cache = OwnerCache(lambda: Copy(size=100), max_size=5)
    erin = cache.of("erin")
    assert cache.of("erin") is erin
    cache.of("sam")
    assert len(cache) == 1


async def test_unused_entries_are_dropped() -> None:
    time = Time()
    cache = OwnerCache(Copy, max_size=10, idle=60, now=time)
    cache.of("erin")
    time.now = 30
    cache.of("sam")
    time.now = 61
    cache.evict_idle()
    assert (cache.get("erin"), len(cache)) == (None, 1)


async def test_an_idle_process_lets_go_by_itself() -> None:
    cache = OwnerCache(Copy, max_size=10, idle=0)
    cache.of("erin")
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(0, later.set)
    await later.wait()
    assert len(cache) == 0


async def test_what_is_cleared_is_gone_and_can_be_held_again() -> None:
    cache = OwnerCache(Copy, max_size=10)
    erin = cache.of("erin")
    cache.clear()
    assert len(cache) == 0
    assert cache.of("erin") is not erin
