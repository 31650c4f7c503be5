"""Repair issues about the memory."""

from homeassistant.config_entries import ConfigEntry
from homeassistant.core import HomeAssistant, callback
from homeassistant.helpers import issue_registry as ir

from .const import DOMAIN
from .link import Link, Status

ISSUES = {
    Status.UNAVAILABLE: "store_unavailable",
    Status.KEY_REFUSED: "key_refused",
    Status.DISK_FULL: "disk_full",
    Status.DAMAGED: "store_damaged",
}


@callback
def report_status(hass: HomeAssistant, entry: ConfigEntry, link: Link) -> None:
    """Show the issue of the current status and close the others; ask for a new key where it was refused."""
    for status, issue in ISSUES.items():
        if status is link.status:
            ir.async_create_issue(
                hass,
                DOMAIN,
                issue,
                is_fixable=False,
                severity=ir.IssueSeverity.ERROR,
                translation_key=issue,
                translation_placeholders={"reason": link.problem or ""},
            )
        else:
            ir.async_delete_issue(hass, DOMAIN, issue)
    if link.status is Status.KEY_REFUSED:
        entry.async_start_reauth(hass)


@callback
def clear_issues(hass: HomeAssistant) -> None:
    """Close all issues about the memory."""
    for issue in ISSUES.values():
        ir.async_delete_issue(hass, DOMAIN, issue)
