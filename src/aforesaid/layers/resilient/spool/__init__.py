"""The local file that keeps what was accepted while the store was away."""

from aforesaid.layers.resilient.spool.files import Adopted, Ref
from aforesaid.layers.resilient.spool.writer import Spool

__all__ = ["Adopted", "Ref", "Spool"]
