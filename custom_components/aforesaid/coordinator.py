"""Check the memory from time to time, and read the numbers that the sensors show."""

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from homeassistant.config_entries import ConfigEntry
from homeassistant.core import HomeAssistant, callback
from homeassistant.helpers.update_coordinator import DataUpdateCoordinator

from .const import DATABASE, DOMAIN
from .history import History
from .issues import report_status
from .link import Link, Status

log = logging.getLogger(__name__)

WHEN_OK, WHEN_AWAY = timedelta(minutes=5), timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class Health:
    """The state of the memory."""

    status: Status
    waiting: int
    """Turns in the spool."""
    size: int | None
    """Bytes of the database; None behind a server."""


class HealthCoordinator(DataUpdateCoordinator[Health]):
    """Opens the memory again after an outage, stores what is queued, and tells the user."""

    def __init__(self, hass: HomeAssistant, entry: ConfigEntry, link: Link, history: History) -> None:
        super().__init__(
            hass, log, config_entry=entry, name=DOMAIN, update_interval=WHEN_OK, always_update=False
        )
        self._link = link
        self._history = history

    async def _async_update_data(self) -> Health:
        await self._link.check()
        await self._history.replay()
        return await self._read()

    async def _read(self) -> Health:
        status = self._link.status
        self.update_interval = WHEN_OK if status is Status.OK else WHEN_AWAY
        folder = self._link.folder
        size = None if folder is None else await asyncio.to_thread(_size, folder / DATABASE)
        return Health(status=status, waiting=len(self._history.spool), size=size)

    @callback
    def async_follow(self) -> None:
        """Update at once when the status changes or a turn is stored."""
        entry = self.config_entry
        assert entry is not None
        entry.async_on_unload(self._link.listen(self._status_changed))
        entry.async_on_unload(self._history.listen(self._turn_stored))
        report_status(self.hass, entry, self._link)

    @callback
    def _status_changed(self) -> None:
        assert self.config_entry is not None
        report_status(self.hass, self.config_entry, self._link)
        self._turn_stored()

    @callback
    def _turn_stored(self) -> None:
        assert self.config_entry is not None
        self.config_entry.async_create_task(self.hass, self._refresh(), name="aforesaid-health")

    async def _refresh(self) -> None:
        self.async_set_updated_data(await self._read())


def _size(path: Path) -> int | None:
    """Return the bytes of the database with its log. Blocks."""
    files = [each for each in (path, Path(f"{path}-wal")) if each.exists()]
    return sum(each.stat().st_size for each in files) if files else None
