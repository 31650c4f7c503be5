"""A complete store over ordered keys. To write a store, subclass `KeyValueBackend` and implement `read`,
`scan` and `write`.

Every operation reads the few rows that it needs, applies `OwnerData` to them, and writes the difference in
one step. An append reads the record and the rows of message ids that are known already, so its cost does not
grow with the conversation.
"""

from aforesaid.stores.key_value.rows import Rows
from aforesaid.stores.key_value.store import KeyValueBackend

__all__ = ["KeyValueBackend", "Rows"]
