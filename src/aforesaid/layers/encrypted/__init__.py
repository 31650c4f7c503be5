"""The encrypted layer: the wrapped backend sees only ciphertext.

A message is bound to its place in the log, so the layer must know the place before it seals the message. It
caches the end of each log, assigns times as the store would, and lets the store refuse the turn if another
process wrote meanwhile; then it reads the end again and seals the turn anew. Turns of one process to one
conversation run one after the other.

An entry that fails verification is returned as unreadable, with the reason; the others load. The layer does
not forward the store's search index, which would hold ciphertext. It forwards all other capabilities.

- `base`: options, and the keys and caches that all stores share
- `backend`: the backend and one owner's store, made of `log_reads`, `log_writes` and `documents`
- `seals`, `records`, `heads`: pure functions that seal, open and compare values
- `keyring`: the data keys; `rotation`: new keys for all logs, and their verification
"""

from aforesaid.layers.encrypted.backend import EncryptedBackend, EncryptedStore, encrypted
from aforesaid.layers.encrypted.base import Encryption
from aforesaid.layers.encrypted.records import resealed

__all__ = ["EncryptedBackend", "EncryptedStore", "Encryption", "encrypted", "resealed"]
