"""Sensors for the size and the health of the memory."""

from collections.abc import Callable
from dataclasses import dataclass

from homeassistant.components.sensor import (
    SensorDeviceClass,
    SensorEntity,
    SensorEntityDescription,
    SensorStateClass,
)
from homeassistant.const import EntityCategory, UnitOfInformation
from homeassistant.core import HomeAssistant
from homeassistant.helpers.device_registry import DeviceEntryType, DeviceInfo
from homeassistant.helpers.entity_platform import AddConfigEntryEntitiesCallback
from homeassistant.helpers.update_coordinator import CoordinatorEntity

from .const import DEFAULT_TITLE, DOMAIN
from .coordinator import Health, HealthCoordinator
from .link import Status
from .runtime import AforesaidConfigEntry

PARALLEL_UPDATES = 0


@dataclass(frozen=True, kw_only=True)
class MemorySensorDescription(SensorEntityDescription):
    """A sensor and where its value comes from."""

    value: Callable[[Health], str | int | None]
    local_only: bool = False


SENSORS = (
    MemorySensorDescription(
        key="status",
        translation_key="status",
        device_class=SensorDeviceClass.ENUM,
        options=[status.value for status in Status],
        entity_category=EntityCategory.DIAGNOSTIC,
        value=lambda health: health.status.value,
    ),
    MemorySensorDescription(
        key="waiting",
        translation_key="waiting",
        state_class=SensorStateClass.MEASUREMENT,
        entity_category=EntityCategory.DIAGNOSTIC,
        entity_registry_enabled_default=False,
        value=lambda health: health.waiting,
    ),
    MemorySensorDescription(
        key="size",
        translation_key="size",
        device_class=SensorDeviceClass.DATA_SIZE,
        state_class=SensorStateClass.MEASUREMENT,
        native_unit_of_measurement=UnitOfInformation.BYTES,
        suggested_unit_of_measurement=UnitOfInformation.MEGABYTES,
        suggested_display_precision=1,
        entity_category=EntityCategory.DIAGNOSTIC,
        value=lambda health: health.size,
        local_only=True,
    ),
)


async def async_setup_entry(
    hass: HomeAssistant, entry: AforesaidConfigEntry, async_add_entities: AddConfigEntryEntitiesCallback
) -> None:
    """Add the sensors."""
    runtime = entry.runtime_data
    async_add_entities(
        MemorySensor(runtime.coordinator, entry, description)
        for description in SENSORS
        if runtime.link.is_local or not description.local_only
    )


class MemorySensor(CoordinatorEntity[HealthCoordinator], SensorEntity):
    """One number or state of the memory. It is available while the memory is not: that is what it shows."""

    _attr_has_entity_name = True
    entity_description: MemorySensorDescription

    def __init__(
        self,
        coordinator: HealthCoordinator,
        entry: AforesaidConfigEntry,
        description: MemorySensorDescription,
    ) -> None:
        super().__init__(coordinator)
        self.entity_description = description
        self._attr_unique_id = f"{entry.entry_id}-{description.key}"
        self._attr_device_info = DeviceInfo(
            identifiers={(DOMAIN, entry.entry_id)},
            name=DEFAULT_TITLE,
            manufacturer=DEFAULT_TITLE,
            entry_type=DeviceEntryType.SERVICE,
        )

    @property
    def native_value(self) -> str | int | None:
        return self.entity_description.value(self.coordinator.data)
