"""A dictionary with a limit that evicts its least recently used items."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class BoundedDict(MutableMapping[K, V]):
    """A dictionary that evicts the least recently used items beyond `limit`.

    The limit is a number of items or, with `size`, a sum of sizes. The most recent item stays, even if it
    exceeds the limit alone. Assigning and `use` mark an item as used; reading does not. `on_evict` is called
    after an eviction, not after a deletion.
    """

    def __init__(
        self,
        limit: int,
        *,
        size: Callable[[V], int] | None = None,
        on_evict: Callable[[K, V], None] | None = None,
    ) -> None:
        self.limit = limit
        self._size = size
        self._on_evict = on_evict
        self._items: OrderedDict[K, V] = OrderedDict()
        self._sizes: dict[K, int] = {}
        self._total = 0

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        return self._items.get(key, default)

    def __setitem__(self, key: K, value: V) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        if self._size is not None:
            self._measure(key, value)
            self._evict()
        # Without sizes, the common case needs no call.
        elif len(self._items) > self.limit:
            self._evict()

    def __delitem__(self, key: K) -> None:
        del self._items[key]
        self._total -= self._sizes.pop(key, 0)

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys, least recently used first."""
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def use(self, key: K) -> V | None:
        """Mark an item as used and return its value, or None."""
        if key not in self._items:
            return None
        self._items.move_to_end(key)
        return self._items[key]

    def remeasure(self) -> None:
        """Measure all values again, for values that grow after assignment, and evict."""
        for key, value in self._items.items():
            self._measure(key, value)
        self._evict()

    def _measure(self, key: K, value: V) -> None:
        if self._size is not None:
            size = self._size(value)
            self._total += size - self._sizes.get(key, 0)
            self._sizes[key] = size

    def _evict(self) -> None:
        while len(self._items) > 1 and self.used > self.limit:
            key = next(iter(self._items))
            try:
                value = self.pop(key)
            except KeyError:  # another thread has removed the item meanwhile
                continue
            if self._on_evict is not None:
                self._on_evict(key, value)

    @property
    def used(self) -> int:
        """The part of the limit in use: the number of items, or the sum of their sizes."""
        return len(self._items) if self._size is None else self._total
