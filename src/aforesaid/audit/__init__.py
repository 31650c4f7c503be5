"""The audit trail: who did what, on whose data, when and from where. It never contains content.

events         an event, and its line in the hash chain
trail          the files, which several processes append to
verification   reading a trail, and detecting every change to it
"""

from aforesaid.audit.chain import Checked, Event, Outcome, check_trail, read_trail
from aforesaid.audit.trail import AuditTrail, Sync, audit_key_from_env

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
