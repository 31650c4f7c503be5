"""Decide between mentions of clients that compete for the same words of a text."""

from collections.abc import Iterable
from typing import NamedTuple

from aforesaid.model.contacts import REPORTED

# A mention must exceed the next by more than this to win.
_MARGIN = 0.02


class Mention(NamedTuple):
    """A place where a contact may be named, with a confidence."""

    client_id: str
    first: int
    last: int
    confidence: float

    def inside(self, other: "Mention") -> bool:
        return other.first <= self.first and self.last <= other.last

    def touches(self, other: "Mention") -> bool:
        return self.first <= other.last and other.first <= self.last


def without_covered(mentions: Iterable[Mention]) -> list[Mention]:
    """Return the best mention per contact and place, without those inside a more certain one."""
    best: dict[tuple[str, int, int], Mention] = {}
    for mention in mentions:
        place = mention.client_id, mention.first, mention.last
        if mention.confidence >= REPORTED and (
            place not in best or best[place].confidence < mention.confidence
        ):
            best[place] = mention
    ordered = sorted(best.values(), key=lambda one: (-one.confidence, one.first, one.client_id))
    longest: list[Mention] = []
    for mention in ordered:
        covered = any(
            mention.inside(other) and (other.first, other.last) != (mention.first, mention.last)
            for other in longest
        )
        if not covered:
            longest.append(mention)
    return longest


def by_place(mentions: list[Mention]) -> list[list[Mention]]:
    """Group overlapping mentions."""
    groups: list[list[Mention]] = []
    for mention in mentions:
        touched = [group for group in groups if any(mention.touches(other) for other in group)]
        groups = [group for group in groups if group not in touched]
        groups.append([mention, *(other for group in touched for other in group)])
    return groups


def contenders(group: list[Mention]) -> list[Mention]:
    """Return the mentions of a group within the margin of its best."""
    top = max(mention.confidence for mention in group)
    return [mention for mention in group if mention.confidence >= top - _MARGIN]


def without_ambiguous(places: list[list[Mention]]) -> list[list[Mention]]:
    """Drop ambiguous places that another place resolves: "Anna called; Anna Schmidt wants an offer"."""
    certain = {place[0].client_id for place in places if len({one.client_id for one in place}) == 1}
    return [
        place
        for place in places
        if len({one.client_id for one in place}) == 1 or not any(one.client_id in certain for one in place)
    ]
