"""What an entry holds while it is loaded."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from homeassistant.config_entries import ConfigEntry
from homeassistant.core import HomeAssistant, callback

from .const import DOMAIN
from .history import History
from .link import Link
from .options import Options
from .spool import Spool

if TYPE_CHECKING:
    from .coordinator import HealthCoordinator
    from .recorder import Recorder


@dataclass(kw_only=True)
class Runtime:
    """The parts of a loaded entry."""

    link: Link
    spool: Spool
    history: History
    options: Options
    recorder: "Recorder"
    coordinator: "HealthCoordinator"


AforesaidConfigEntry: TypeAlias = ConfigEntry[Runtime]


@callback
def loaded_entry(hass: HomeAssistant) -> AforesaidConfigEntry | None:
    """Return the entry if it is loaded; there is at most one."""
    return next(iter(hass.config_entries.async_loaded_entries(DOMAIN)), None)
