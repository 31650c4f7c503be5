"""The spool: local files that hold accepted writes while the store is unavailable."""

from aforesaid.layers.resilient.spool.files import Adopted, Ref
from aforesaid.layers.resilient.spool.writer import Spool

__all__ = ["Adopted", "Ref", "Spool"]
