"""The audit trail: who did what, on whose data, when and from where. No content, ever.

    events     an event, and the line that it becomes in the chain
    trail      the files: appended to by many processes, never changed
    checking   reading a trail, and finding every change that was made to it

Below: errors, clock, keys. Above: the layer that notes what goes through a store, and the command line.
"""

from aforesaid.audit.events import Event, Outcome
from aforesaid.audit.trail import AuditTrail, Sync, audit_key_from_env
from aforesaid.audit.verification import Checked, check_trail, read_trail

__all__ = [
    "AuditTrail",
    "Checked",
    "Event",
    "Outcome",
    "Sync",
    "audit_key_from_env",
    "check_trail",
    "read_trail",
]
