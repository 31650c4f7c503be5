"""The actions: search, remember, recall, forget, export and clear, each with a response."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import probatio as vol
from homeassistant.core import HomeAssistant, ServiceCall, ServiceResponse, SupportsResponse, callback
from homeassistant.exceptions import HomeAssistantError, ServiceValidationError
from homeassistant.helpers import config_validation as cv
from homeassistant.util import dt as dt_util
from homeassistant.util import slugify

from aforesaid.errors import AforesaidError, InvalidInput, NotFound
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.notes.records import Note

from .const import CONF_DEVICE, CONF_PERSON, DOMAIN
from .link import SHARED
from .owners import device_owner, person_owner
from .runtime import Runtime, loaded_entry

WHO = {
    vol.Optional(CONF_PERSON): cv.entity_id,
    vol.Optional(CONF_DEVICE): cv.string,
}
COUNT = vol.All(vol.Coerce(int), vol.Range(min=1, max=100))

Handler = Callable[[HomeAssistant, Runtime, str, dict[str, Any]], Awaitable[dict[str, Any]]]


@callback
def async_setup_services(hass: HomeAssistant) -> None:
    """Register the actions once, so that automations are valid before the entry is loaded."""
    reads, writes = SupportsResponse.ONLY, SupportsResponse.OPTIONAL
    for name, handler, fields, response in (
        ("search_history", _search, {vol.Optional("query", default=""): cv.string, **_limit(5)}, reads),
        ("remember", _remember, {vol.Required("text"): cv.string, **_text("subject")}, writes),
        ("recall", _recall, {vol.Optional("query", default=""): cv.string, **_limit(10)}, reads),
        ("forget", _forget, {vol.Required("what"): cv.string}, writes),
        ("export", _export, {}, writes),
        ("clear_history", _clear, _text("conversation_id"), writes),
    ):
        hass.services.async_register(
            DOMAIN,
            name,
            partial(_handle, hass, handler),
            schema=vol.Schema({**fields, **WHO}),
            supports_response=response,
        )


def _limit(default: int) -> dict[Any, Any]:
    return {vol.Optional("max_results", default=default): COUNT}


def _text(field: str) -> dict[Any, Any]:
    return {vol.Optional(field): cv.string}


async def _handle(hass: HomeAssistant, handler: Handler, call: ServiceCall) -> ServiceResponse:
    entry = loaded_entry(hass)
    if entry is None:
        raise ServiceValidationError(translation_domain=DOMAIN, translation_key="not_loaded")
    runtime = entry.runtime_data
    owner = await _owner(hass, runtime, call)
    arguments = {key: value for key, value in call.data.items() if key not in (CONF_PERSON, CONF_DEVICE)}
    try:
        response = await handler(hass, runtime, owner, arguments)
    except (InvalidInput, NotFound) as error:
        raise _error(ServiceValidationError, "invalid", reason=str(error)) from error
    except AforesaidError as error:
        raise _error(HomeAssistantError, "store_failed", reason=str(error)) from error
    return response if call.return_response else None


def _error(kind: type[HomeAssistantError], key: str, **placeholders: str) -> HomeAssistantError:
    return kind(translation_domain=DOMAIN, translation_key=key, translation_placeholders=placeholders)


async def _owner(hass: HomeAssistant, runtime: Runtime, call: ServiceCall) -> str:
    """Return the owner that an action is for: the caller, or the chosen person or device.

    Automations without a user may choose any; a user who is no administrator may not choose another one.
    """
    user_id = call.context.user_id
    own = f"user:{user_id}" if user_id else SHARED
    chosen = _chosen_owner(hass, runtime, call)
    if chosen is None or chosen == own or user_id is None:
        return chosen or own
    user = await hass.auth.async_get_user(user_id)
    if user is None or not user.is_admin:
        raise _error(ServiceValidationError, "not_permitted")
    return chosen


@callback
def _chosen_owner(hass: HomeAssistant, runtime: Runtime, call: ServiceCall) -> str | None:
    person, device = call.data.get(CONF_PERSON), call.data.get(CONF_DEVICE)
    if person is not None and device is not None:
        raise _error(ServiceValidationError, "owner_ambiguous")
    if device is not None:
        return device_owner(hass, runtime.options, device)
    if person is None:
        return None
    if hass.states.get(person) is None or not person.startswith("person."):
        raise _error(ServiceValidationError, "person_unknown", person=person)
    return person_owner(hass, person)


def _manager(runtime: Runtime, owner: str) -> ManagerProtocol:
    return runtime.link.of(owner)


async def _search(
    hass: HomeAssistant, runtime: Runtime, owner: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    zone = dt_util.get_default_time_zone()
    found = await _manager(runtime, owner).search(**arguments, timezone=zone)
    return {
        "passages": [
            {
                "text": passage.text,
                "speaker": passage.speaker,
                "role": passage.role,
                "said_at": passage.said_at.isoformat(),
                "conversation_id": passage.conversation_id,
            }
            for passage in found.passages
        ]
    }


async def _remember(
    hass: HomeAssistant, runtime: Runtime, owner: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    return {"fact": _note(await _manager(runtime, owner).remember(**arguments))}


async def _recall(
    hass: HomeAssistant, runtime: Runtime, owner: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    notes = await _manager(runtime, owner).recall(arguments["query"], arguments["max_results"])
    return {"facts": [_note(note) for note in notes]}


async def _forget(
    hass: HomeAssistant, runtime: Runtime, owner: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    return {"forgotten": [_note(note) for note in await _manager(runtime, owner).forget(**arguments)]}


def _note(note: Note) -> dict[str, Any]:
    return {
        "id": note.id,
        "text": note.text,
        "subject": note.subject,
        "remembered_at": note.remembered_at.isoformat(),
    }


async def _export(
    hass: HomeAssistant, runtime: Runtime, owner: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    await runtime.history.replay()
    name = f"{slugify(owner)}-{dt_util.now():%Y%m%d-%H%M%S}"
    folder = hass.config.path(DOMAIN, "exports", name)
    manifest = await _manager(runtime, owner).export(folder)
    return {"folder": folder, "counts": dict(manifest.counts)}


async def _clear(
    hass: HomeAssistant, runtime: Runtime, owner: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    manager = _manager(runtime, owner)
    name = arguments.get("conversation_id")
    queued = await runtime.spool.forget(owner, name)
    if name is not None:
        await manager.delete_conversation(name)
        return {"queued_turns": queued}
    receipt = await manager.erase()
    return {"erased": dict(receipt.erased), "queued_turns": queued, "remains": list(receipt.remains)}
