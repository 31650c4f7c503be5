"""Number the changes of one owner's conversations in memory; see `contracts.ChangeTracking`."""

from functools import partial
from itertools import count, takewhile

from msgspec import Struct, field

from aforesaid.contracts import RecordChanges

# Distinguishes the numbers of one owner's data from those of other data.
_new_series = partial(next, count(1))
# Removed conversations that are listed beyond twice the number of the others.
MOST_REMOVED = 1_000


class ChangeNumbers(Struct):
    """The number of the last change of each conversation, in ascending order."""

    numbers: dict[str, int] = {}
    last: int = 0
    series: int = field(default_factory=_new_series)

    def copy(self) -> "ChangeNumbers":
        return ChangeNumbers(self.numbers.copy(), self.last, self.series)

    def note(self, conversation_id: str, *, conversations: int) -> None:
        """Number a change. `conversations` is how many the owner has."""
        self.last += 1
        self.numbers.pop(conversation_id, None)  # insertion order is the order of the numbers
        self.numbers[conversation_id] = self.last
        if len(self.numbers) > 2 * conversations + MOST_REMOVED:
            self.restart()

    def restart(self) -> None:
        """Forget every change, so that readers read all records once."""
        self.numbers = {}
        self.series = _new_series()

    def since(self, mark: str | None) -> RecordChanges:
        series, _, number = (mark or "").partition(":")
        current = f"{self.series}:{self.last}"
        if series != str(self.series):
            return RecordChanges(current, None)
        later = takewhile(lambda one: one[1] > int(number), reversed(self.numbers.items()))
        return RecordChanges(current, [conversation_id for conversation_id, _ in later])
