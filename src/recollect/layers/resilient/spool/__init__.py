"""The local file that keeps what was accepted while the store was away."""

from recollect.layers.resilient.spool.files import Adopted, Ref
from recollect.layers.resilient.spool.writer import Spool

__all__ = ["Adopted", "Ref", "Spool"]
