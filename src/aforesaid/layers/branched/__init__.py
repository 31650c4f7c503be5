"""The branched layer: a conversation that continues others by reference.

It is the outermost layer, around one owner's store. A branch stores its own messages; this layer reads them
together with the parts of its ancestors, and moves a part before the conversation that stores it is removed.
"""

from aforesaid.layers.branched.moves import moving
from aforesaid.layers.branched.parts import PrefixCache
from aforesaid.layers.branched.store import BranchedStore, branched, family_of, settle, stored_itself

__all__ = ["BranchedStore", "PrefixCache", "branched", "family_of", "moving", "settle", "stored_itself"]
