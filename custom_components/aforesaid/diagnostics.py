"""Diagnostics: numbers and options, never words, names or keys."""

from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from homeassistant.components.diagnostics import async_redact_data
from homeassistant.core import HomeAssistant

from aforesaid.errors import AforesaidError
from aforesaid.memory.interface import MemoryProtocol

from .const import CONF_DEVICES, CONF_KEY, CONF_MODE, CONF_TARGET, CONF_URL
from .runtime import AforesaidConfigEntry, Runtime

MOST_OWNERS = 1000


async def async_get_config_entry_diagnostics(
    hass: HomeAssistant, entry: AforesaidConfigEntry
) -> dict[str, Any]:
    """Return what helps to find a fault, without content."""
    runtime = entry.runtime_data
    health = runtime.coordinator.data
    return {
        "version": version("aforesaid"),
        "data": {
            **async_redact_data(dict(entry.data), {CONF_KEY, CONF_URL}),
            "scheme": urlsplit(entry.data.get(CONF_URL, "")).scheme or None,
        },
        "options": async_redact_data(dict(entry.options), {CONF_DEVICES}),
        "mapped_devices": len(runtime.options.devices),
        "agents": [
            {**subentry.data, CONF_TARGET: subentry.data[CONF_TARGET].partition(".")[0]}
            for subentry in entry.subentries.values()
        ],
        "mode": entry.data[CONF_MODE],
        "status": health.status.value,
        "waiting_turns": health.waiting,
        "size": health.size,
        "stored": await _counts(runtime),
    }


async def _counts(runtime: Runtime) -> dict[str, int] | None:
    """Count owners, conversations and messages; None while the memory is unavailable."""
    try:
        return await runtime.link.call(lambda: _count(runtime.link.memory()), patience=10)
    except AforesaidError:
        return None


async def _count(memory: MemoryProtocol) -> dict[str, int]:
    counts = {"owners": 0, "conversations": 0, "messages": 0, "notes": 0}
    async for owner in memory.owners():
        counts["owners"] += 1
        if counts["owners"] > MOST_OWNERS:
            break
        manager = memory.of(owner)
        after: str | None = None
        while True:
            page = await manager.list(limit=100, after=after)
            counts["conversations"] += len(page.conversations)
            counts["messages"] += sum(record.message_count for record in page.conversations)
            after = page.next
            if after is None:
                break
        counts["notes"] += len(await manager.notes())
    return counts
