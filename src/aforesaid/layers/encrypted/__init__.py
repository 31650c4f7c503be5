"""The encryption layer: a backend around a backend, which sees only ciphertext.

What is sealed and how is in `layers.sealing` and `layers.records`; whose keys are where, in `layers.keyring`.
Here is the order of things. A message is bound to its place, so its place must be known before it is sealed:
the layer knows where each log ends, gives messages their time as the store would, and lets the store refuse
the turn if somebody else wrote meanwhile; then it looks again and seals anew. Turns of one process to
one conversation wait for each other.

What is refused on reading is set aside with the reason, and the rest loads. A store's own search index
is not handed on: it would hold ciphertext. All other powers are.

`backend` holds what all stores of a backend know; `store` is one owner's part, made of `conversations`,
`logs` and `documents` over `base`, with `glances` where the store inside has them; `entries` seals and
opens, without waiting.
"""

from aforesaid.layers.encrypted.backend import EncryptedBackend, Encryption, encrypted
from aforesaid.layers.encrypted.entries import resealed
from aforesaid.layers.encrypted.store import EncryptedStore

__all__ = ["EncryptedBackend", "EncryptedStore", "Encryption", "encrypted", "resealed"]
