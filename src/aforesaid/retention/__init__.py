"""Expiry, archiving, redaction and erasure for one owner."""
