"""An index in memory of one owner's labels: the client names and subjects of conversations."""

from collections import Counter
from collections.abc import Iterable, Sequence

from aforesaid.contracts import Label, Labelled
from aforesaid.search.analysis import terms_of


def label_text(client_name: str | None, subject: str | None) -> str:
    return " ".join(filter(None, (client_name, subject)))


class OwnerLabels:
    """One owner's labels, current after `update`. Conversations that are gone may still be listed."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._mark = 0
        self._texts: dict[str, str] = {}
        self._terms: dict[str, frozenset[str]] = {}
        self._postings: dict[str, set[str]] = {}

    @property
    def size(self) -> int:
        return len(self._texts)

    async def update(self, store: Labelled) -> None:
        """Read the changes since the last update."""
        mark, changed = await store.labels_since(self._mark)
        if mark < self._mark:  # another store: begin again
            self._clear()
            mark, changed = await store.labels_since(0)
        for label in changed:
            self.put(label)
        self._mark = max(mark, self._mark)

    def correct(self, labels: Iterable[Label]) -> bool:
        """Replace outdated labels; return whether there was one.

        A label is outdated if it changed just now, or if another conversation has the id of a removed one.
        """
        outdated = [
            one
            for one in labels
            if self._texts.get(one.conversation_id, "") != label_text(one.client_name, one.subject).casefold()
        ]
        for label in outdated:
            self.put(label)
        return bool(outdated)

    def put(self, label: Label) -> None:
        """Add or replace the label of a conversation."""
        self.remove(label.conversation_id)
        text = label_text(label.client_name, label.subject)
        if not text:
            return
        self._texts[label.conversation_id] = text.casefold()
        terms = self._terms[label.conversation_id] = frozenset(terms_of(text))
        for term in terms:
            self._postings.setdefault(term, set()).add(label.conversation_id)

    def remove(self, conversation_id: str) -> None:
        self._texts.pop(conversation_id, None)
        for term in self._terms.pop(conversation_id, ()):
            self._postings[term].discard(conversation_id)

    def matches(self, question: str, terms: Sequence[str]) -> dict[str, float]:
        """Return the share of the question in each label, as `label_match` does, where it is not 0."""
        part = question.casefold()
        counts: Counter[str] = Counter()
        for term in terms:
            counts.update(self._postings.get(term, ()))
        shares = {one: count / len(terms) for one, count in counts.items()}
        for one, text in self._texts.items():
            if part in text:
                shares[one] = 1.0
        return shares
