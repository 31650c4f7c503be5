"""Whose memory a turn belongs to: the user's, else the device's, else the shared one, as the user maps it."""

from homeassistant.core import Context, HomeAssistant, callback
from homeassistant.helpers import entity_registry as er

from .const import UNMAPPED_SHARED
from .link import SHARED
from .options import Options


@callback
def owner_of(
    hass: HomeAssistant,
    options: Options,
    context: Context | None,
    device_id: str | None,
    satellite_id: str | None = None,
) -> str:
    """Return the owner of an input. A model's tools know the device only, so it precedes the satellite."""
    if context is not None and context.user_id:
        return f"user:{context.user_id}"
    device_id = device_id or _device_of(hass, satellite_id)
    if device_id is not None:
        return device_owner(hass, options, device_id)
    if satellite_id is None or options.unmapped == UNMAPPED_SHARED:
        return SHARED
    return f"satellite:{satellite_id}"


@callback
def device_owner(hass: HomeAssistant, options: Options, device_id: str) -> str:
    """Return the owner of a device: the person it is mapped to, the shared memory, or the device itself."""
    if device_id in options.devices:
        person = options.devices[device_id]
        return SHARED if person is None else person_owner(hass, person)
    return SHARED if options.unmapped == UNMAPPED_SHARED else f"device:{device_id}"


@callback
def person_owner(hass: HomeAssistant, person: str) -> str:
    """Return the owner of a person: the person's user, or the person where there is none."""
    state = hass.states.get(person)
    user_id = None if state is None else state.attributes.get("user_id")
    if user_id:
        return f"user:{user_id}"
    entry = er.async_get(hass).async_get(person)
    return f"person:{entry.unique_id if entry is not None else person}"


@callback
def _device_of(hass: HomeAssistant, entity_id: str | None) -> str | None:
    entry = None if entity_id is None else er.async_get(hass).async_get(entity_id)
    return None if entry is None else entry.device_id
