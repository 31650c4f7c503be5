"""What is held in memory of each owner: as much as fits, for as long as somebody asks for it."""

import asyncio

from msgspec import Struct

from aforesaid.search.owner_cache import Held


class Copy(Struct, eq=False):
    size: int = 2


class Time:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_who_asks_again_gets_the_same() -> None:
    held = Held(Copy, most=10)
    assert held.of("erin") is held.of("erin")
    assert held.get("sam") is None


async def test_who_asked_longest_ago_goes_first_when_it_gets_too_much() -> None:
    held = Held(Copy, most=5)
    erin, sam = held.of("erin"), held.of("sam")
    held.of("erin")
    held.of("kim")
    assert held.get("erin") is erin
    assert held.get("sam") is None
    assert held.of("sam") is not sam


async def test_the_owner_who_asks_is_served_however_much_it_is() -> None:
    held = Held(lambda: Copy(size=100), most=5)
    erin = held.of("erin")
    assert held.of("erin") is erin
    held.of("sam")
    assert len(held) == 1


async def test_what_nobody_asks_for_is_let_go() -> None:
    time = Time()
    held = Held(Copy, most=10, idle=60, now=time)
    held.of("erin")
    time.now = 30
    held.of("sam")
    time.now = 61
    held.let_go()
    assert (held.get("erin"), len(held)) == (None, 1)


async def test_an_idle_process_lets_go_by_itself() -> None:
    held = Held(Copy, most=10, idle=0)
    held.of("erin")
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(0, later.set)
    await later.wait()
    assert len(held) == 0


async def test_what_is_cleared_is_gone_and_can_be_held_again() -> None:
    held = Held(Copy, most=10)
    erin = held.of("erin")
    held.clear()
    assert len(held) == 0
    assert held.of("erin") is not erin
