"""Tools for tests: one that works, one that fails, one that hangs, two that wait for each other."""

import asyncio
from typing import Any

from aforesaid.agents.tools import Tool, ToolRegistry

ROOM = {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


async def lights(room: str) -> str:
    return f"the lights in the {room} are on"


async def broken() -> str:
    raise RuntimeError("wire 7 is loose, password=hunter2")


async def hangs() -> str:
    await asyncio.Event().wait()
    return "never"


def meeting() -> list[Tool]:
    """Two tools that answer only while the other one is running too."""
    barrier = asyncio.Barrier(2)

    async def one() -> str:
        async with barrier:
            return "met"

    return [Tool(name=name, description=name, parameters=NOTHING, run=one) for name in ("left", "right")]


def registry(*more: Tool) -> ToolRegistry:
    return ToolRegistry(
        [
            Tool(name="lights", description="Is the light on?", parameters=ROOM, run=lights, repeatable=True),
            Tool(name="broken", description="Fails.", parameters=NOTHING, run=broken),
            Tool(name="hangs", description="Hangs.", parameters=NOTHING, run=hangs, timeout=0.01),
            *more,
        ]
    )
