"""Whom a text names: a pure function of the text and an owner's index. Below: index, reading.

Every contact that a word of the text may stand for gets a *mention*: where it is named, and how sure that
is. Then mentions at the same place compete. One client is named when exactly one is left at exactly one
place; when several are equally sure, or when several places name different people, the answer is
candidates, never a guess.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from aforesaid.contacts.matches import CERTAIN, REPORTED, Candidate, ClientMatch
from aforesaid.contacts.name_index import NameIndex, Posting, is_other_name, number_key
from aforesaid.contacts.names import Alias, Named, vocabulary
from aforesaid.contacts.sentences import LONGEST_TEXT, Scene
from aforesaid.contacts.spelling import EXACT, HOMOPHONE, folded
from aforesaid.contacts.words import names

FULL, INITIAL, TITLED, FAMILY, GIVEN = 0.99, 0.92, 0.93, 0.88, 0.82
NICKNAME, SINGLE, COMPANY, COMPANY_OF, PART_OF_COMPANY = 0.9, 0.9, 0.95, 0.85, 0.87
ADDRESS = 0.99
"""How sure each way of naming somebody is when every letter is right."""
MARGIN = 0.02
"""Who is not surer than the next by more than this is not sure at all."""
LEAST_TITLED = 0.86
"""How well a word must say a family name that stands with a title alone."""
MOST_CANDIDATES = 10

# Both are anchored, so that a long run of letters or digits is looked at once, not from each of its places.
_ADDRESS = re.compile(r"(?<![\w.+\-])[\w.+\-]{1,64}@[\w\-]{1,63}(?:\.[\w\-]{1,63}){1,8}")
_NUMBER = re.compile(r"(?<![\d(/.\-])\+?\d[\d\s()/.\-]{5,25}\d")


class Hit(NamedTuple):
    """A word of the text that may stand for a word of a contact's name."""

    first: int
    last: int
    posting: Posting
    grade: float


class Mention(NamedTuple):
    """Where a contact is named, and how sure that is."""

    client_id: str
    first: int
    last: int
    confidence: float

    def inside(self, other: "Mention") -> bool:
        return other.first <= self.first and self.last <= other.last

    def touches(self, other: "Mention") -> bool:
        return self.first <= other.last and other.first <= self.last


def identify(text: str, index: NameIndex, *, by_ear: bool = False) -> ClientMatch | None:
    """Whom a text names; None when it is nobody.

    In a text that is taken `by_ear` spellings count for nothing: what is said alike is the same.
    """
    if not len(index):
        return None
    addressed, rest = _addressed(text[:LONGEST_TEXT], index)
    scene = Scene(rest)
    mentions = [*addressed, *_Search(scene, index, by_ear=by_ear).mentions()]
    return _decided(scene, index, _competing(mentions))


def _addressed(text: str, index: NameIndex) -> tuple[list[Mention], str]:
    """Who is named by an address or a number, and the text without those."""
    found: list[Mention] = []
    for pattern, key_of in ((_ADDRESS, str.casefold), (_NUMBER, number_key)):
        for match in pattern.findall(text):
            key = key_of(match)
            place = -1 - len(found)
            whose = index.at(key) if key else ()
            found += [Mention(client_id, place, place, ADDRESS) for client_id in whose]
        text = pattern.sub(" , ", text)
    return found, text


class _Search:
    """Looks for everybody in one text."""

    def __init__(self, scene: Scene, index: NameIndex, *, by_ear: bool) -> None:
        self._scene = scene
        self._index = index
        self._by_ear = by_ear
        self._others: dict[tuple[int, int], bool] = {}
        self._reads: dict[tuple[int, int, bool], float] = {}

    def mentions(self) -> Iterator[Mention]:
        by_client: dict[str, list[Hit]] = {}
        for hit in self._hits():
            by_client.setdefault(hit.posting.client_id, []).append(hit)
        for client_id, hits in by_client.items():
            record = self._index.names.get(client_id)
            if record is not None:
                yield from self._of(record, hits)

    # Words

    def _hits(self) -> Iterator[Hit]:
        for at, token in enumerate(self._scene.tokens):
            for form in token.forms:
                yield from self._standing_for(at, at, form)
            if at and self._scene.joined(at) and not token.gap:
                pair = self._scene.tokens[at - 1].fold + token.fold
                yield from (Hit(at - 1, at, posting, posting.grade) for posting in self._index.exact(pair))

    def _standing_for(self, first: int, last: int, word: str) -> Iterator[Hit]:
        exact = self._index.exact(word)
        for posting in exact:
            yield Hit(first, last, posting, self._heard(posting.grade))
        if word in vocabulary().words:
            yield from self._spelt_otherwise(first, last, word)
            return
        other_name = is_other_name(word)
        if not exact and not other_name and len(word) > 4 and word.endswith("s"):
            for posting in self._index.exact(word[:-1]):  # Müllers Auto
                yield Hit(first, last, posting, self._heard(posting.grade))
        for name, grade in self._index.misspelt(word, by_sound_only=other_name):
            for posting in self._index.exact(name):
                if posting.grade == EXACT:
                    yield Hit(first, last, posting, self._heard(grade))

    def _spelt_otherwise(self, first: int, last: int, word: str) -> Iterator[Hit]:
        """A common word is itself, but for a word among others in the name of a company: harbour, harbor."""
        for name, grade in self._index.misspelt(word, by_sound_only=True):
            for posting in self._index.exact(name):
                if posting.slot == "alias":
                    yield Hit(first, last, posting, grade)

    def _heard(self, grade: float) -> float:
        """Who hears cannot tell spellings apart."""
        return EXACT if self._by_ear and grade >= HOMOPHONE else grade

    # Ways of naming somebody

    def _of(self, record: Named, hits: list[Hit]) -> Iterator[Mention]:
        given = [hit for hit in hits if hit.posting.slot == "given"]
        family = [hit for hit in hits if hit.posting.slot == "family"]
        full = [mention for one in given for other in family if (mention := self._full(record, one, other))]
        yield from full
        alone = [mention for hit in family if (mention := self._family(record, hit))]
        if not self._is_somebody_else(record, family):
            yield from alone
        yield from (mention for hit in given if (mention := self._given(record, hit)))
        aliases = [hit for hit in hits if hit.posting.slot == "alias"]
        if aliases:
            yield from self._aliases(record, aliases)

    def _full(self, record: Named, given: Hit, family: Hit) -> Mention | None:
        if not (self._in_order(record, given, family) or self._in_reverse(given, family)):
            return None
        if not self._reads_as_name(given, family):
            return None
        grade = 0.45 * given.grade + 0.55 * family.grade
        if given.grade < HOMOPHONE and family.grade < HOMOPHONE and given.posting.grade == EXACT:
            grade *= 0.93  # both misspelt
        return Mention(
            record.client_id, min(given.first, family.first), max(given.last, family.last), FULL * grade
        )

    def _in_order(self, record: Named, given: Hit, family: Hit) -> bool:
        scene = self._scene
        if family.first <= given.last or family.first - given.last > 5:
            return False
        if scene.tokens[given.last].possessive:
            return False
        between = range(given.last + 1, family.first)
        allowed = record.middle | set(record.particles)
        return all(
            scene.joined(at) and (scene.fold(at) in allowed or len(scene.fold(at)) == 1) for at in between
        ) and scene.joined(family.first)

    def _in_reverse(self, given: Hit, family: Hit) -> bool:
        if given.first != family.last + 1:
            return False
        token = self._scene.tokens[given.first]
        return token.gap in ("", ",") and not token.starts

    def _reads_as_name(self, given: Hit, family: Hit) -> bool:
        """Whether two words beside each other are meant as a name: rich long hair is not Rich Long."""
        scene = self._scene
        wordlike = [hit for hit in (given, family) if scene.is_word(hit.first)]
        if not wordlike:
            return True
        if scene.cased:
            return all(scene.in_capitals(hit.last) for hit in wordlike)
        if len(wordlike) == 1:
            return True
        return given.first == 0 or scene.evidence(given.first, family.last) > 0

    def _family(self, record: Named, hit: Hit) -> Mention | None:
        first = self._with_particles(record, hit)
        if first is None:
            return None
        title = self._scene.title_before(first)
        if title is not None:
            return self._titled(record, hit, first, title)
        if first and self._is_initial(record, first - 1):
            return Mention(record.client_id, first - 1, hit.last, INITIAL * hit.grade)
        if self._is_other(first, hit.last):
            return None
        return self._alone(record, hit, first, FAMILY)

    def _with_particles(self, record: Named, hit: Hit) -> int | None:
        """Where the family name begins; None when it goes without its van or de."""
        first = hit.first
        for particle in reversed(record.particles):
            if self._scene.joined(first) and self._scene.fold(first - 1) == particle:
                first -= 1
        return None if record.particles and first == hit.first else first

    def _titled(self, record: Named, hit: Hit, first: int, title: str) -> Mention | None:
        if (title and record.gender and title != record.gender) or hit.grade < LEAST_TITLED:
            return None
        if self._scene.other_name_after(hit.last, set()) and not self._scene.german:
            return None
        sure = TITLED + (0.02 if title and title == record.gender else 0.0)
        return Mention(record.client_id, first, hit.last, sure * hit.grade)

    def _is_initial(self, record: Named, at: int) -> bool:
        fold = self._scene.fold(at)
        return len(fold) == 1 and bool(record.given) and folded(record.given[0]).startswith(fold)

    def _given(self, record: Named, hit: Hit) -> Mention | None:
        title = self._scene.title_before(hit.first)
        if title is not None:
            contradicted = bool(title and record.gender and title != record.gender)
            exact = hit.grade == EXACT and self._scene.fold(hit.first) == hit.posting.word
            if contradicted or not exact or self._is_other(hit.first, hit.last):
                return None
            return Mention(record.client_id, hit.first, hit.last, GIVEN)
        if self._is_other(hit.first, hit.last):
            return None
        return self._alone(record, hit, hit.first, GIVEN)

    def _is_other(self, first: int, last: int) -> bool:
        """Whether the words around make another person of this one. Asked for many, answered once."""
        if (first, last) not in self._others:
            after = self._scene.other_name_after(last, self._known(last + 1, "family"))
            before = self._scene.other_name_before(first, self._known(first - 1, "given"))
            self._others[first, last] = after or before
        return self._others[first, last]

    def _known(self, at: int, slot: str) -> set[str]:
        """The word there, if somebody else among the contacts has that name."""
        fold = self._scene.fold(at)
        return {fold} if any(one.slot == slot for one in self._index.exact(fold)) else set()

    def _is_somebody_else(self, record: Named, family: list[Hit]) -> bool:
        """Whether the family name stands somewhere in the text with another given name."""
        for hit in family:
            first = self._with_particles(record, hit)
            if first is not None and self._scene.title_before(first) is None:
                known = self._known(first - 1, "given")
                given = {folded(one) for one in record.given} | record.middle
                if self._scene.fold(first - 1) in given or (first and self._is_initial(record, first - 1)):
                    return False
                if self._scene.other_name_before(first, known):
                    return True
        return False

    def _alone(self, record: Named, hit: Hit, first: int, sure: float) -> Mention | None:
        misspelt = hit.grade < HOMOPHONE and hit.posting.grade == EXACT
        place = first, hit.last, misspelt
        if place not in self._reads:
            self._reads[place] = self._plausibility(first, hit.last, misspelt=misspelt)
        factor = self._reads[place]
        return Mention(record.client_id, first, hit.last, sure * hit.grade * factor) if factor else None

    def _plausibility(self, first: int, last: int, *, misspelt: bool) -> float:
        """How well a single word reads as a name where it stands."""
        scene = self._scene
        if scene.names_grounds(first, last):
            return 0.0
        wordlike = scene.is_word(last)
        evidence = scene.evidence(first, last)
        if wordlike and scene.is_elsewhere(last) and (evidence < 2 or scene.is_when_or_where(first)):
            return 0.0
        if scene.after_article(first, last):
            return 0.0 if wordlike or misspelt else 0.6
        factor = self._by_case(first, last, evidence, wordlike=wordlike, misspelt=misspelt)
        return factor * (0.6 if scene.is_kin(first) or scene.is_defined(last) else 1.0)

    def _by_case(self, first: int, last: int, evidence: int, *, wordlike: bool, misspelt: bool) -> float:
        scene = self._scene
        if not scene.in_capitals(last):
            if scene.cased and (wordlike or misspelt or evidence < 2):
                return 0.0
            if wordlike or misspelt:
                return 0.95 if evidence >= 2 else 0.0
            return 1.0 if evidence else 0.84
        if scene.tokens[first].starts:
            if wordlike or misspelt:
                return 1.0 if evidence >= 2 else 0.0
            return 1.0 if evidence else 0.84
        if wordlike and scene.german and evidence < 3:
            return 0.0
        if misspelt and not evidence:
            return 0.84
        return 1.0 if evidence else 0.95

    # Nicknames, companies, and those with one name only

    def _aliases(self, record: Named, hits: list[Hit]) -> Iterator[Mention]:
        for alias in record.aliases:
            words = [folded(word) for word in alias.words]
            for start in [hit for hit in hits if hit.posting.word == words[0]]:
                mention = self._alias(record, alias, words, start, hits)
                if mention is not None:
                    yield mention
            if alias.part == "company" and len(words) > 1:
                yield from self._parts(record, words, hits)

    def _alias(
        self, record: Named, alias: Alias, words: list[str], start: Hit, hits: list[Hit]
    ) -> Mention | None:
        run = [start]
        for word in words[1:]:
            follows = [
                hit
                for hit in hits
                if hit.posting.word == word
                and hit.first == run[-1].last + 1
                and self._scene.joined(hit.first)
            ]
            if not follows:
                return None
            run.append(max(follows, key=lambda hit: hit.grade))
        grade = sum(hit.grade for hit in run) / len(run)
        first, last = run[0].first, run[-1].last
        if len(run) > 1:
            return self._several(record, alias, first, last, grade)
        if alias.part != "company" and self._is_other(first, last):
            return None
        sure = {"nickname": NICKNAME, "single": SINGLE}.get(alias.part, self._company(record))
        return self._alone(record, start, first, sure)

    def _company(self, record: Named) -> float:
        """A company that is a contact is meant before somebody who works there."""
        return COMPANY_OF if record.given else COMPANY

    def _several(self, record: Named, alias: Alias, first: int, last: int, grade: float) -> Mention | None:
        scene = self._scene
        places = range(first, last + 1)
        small = scene.cased and not any(scene.in_capitals(at) for at in places)
        if small and all(scene.is_word(at) for at in places):
            return None
        sure = self._company(record) if alias.part == "company" else NICKNAME
        return Mention(record.client_id, first, last, sure * grade)

    def _parts(self, record: Named, words: list[str], hits: list[Hit]) -> Iterator[Mention]:
        """A company by its own word alone: TechNova, Johnson."""
        for hit in hits:
            own = hit.posting.word in words and hit.posting.word not in vocabulary().words
            if not own or hit.posting.word in names.COMPANY_WORDS or hit.grade < HOMOPHONE:
                continue
            if self._scene.title_before(hit.first) is not None or self._is_other(hit.first, hit.last):
                continue
            mention = self._alone(record, hit, hit.first, PART_OF_COMPANY - (0.1 if record.given else 0.0))
            if mention is not None:
                yield mention


# Who is left


def _competing(mentions: Iterable[Mention]) -> list[Mention]:
    """The mentions that are not inside a surer one, each contact once at each place."""
    best: dict[tuple[str, int, int], Mention] = {}
    for mention in mentions:
        place = mention.client_id, mention.first, mention.last
        if mention.confidence >= REPORTED and (
            place not in best or best[place].confidence < mention.confidence
        ):
            best[place] = mention
    kept = sorted(best.values(), key=lambda one: (-one.confidence, one.first, one.client_id))
    longest: list[Mention] = []
    for mention in kept:
        covered = any(
            mention.inside(other) and (other.first, other.last) != (mention.first, mention.last)
            for other in longest
        )
        if not covered:
            longest.append(mention)
    return longest


def _decided(scene: Scene, index: NameIndex, mentions: list[Mention]) -> ClientMatch | None:
    if not mentions:
        return None
    places = _resolved([_contenders(group) for group in _by_place(mentions)])
    surest: dict[str, Mention] = {}
    for mention in (one for place in places for one in place):
        if mention.client_id not in surest or surest[mention.client_id].confidence < mention.confidence:
            surest[mention.client_id] = mention
    found = sorted(surest.values(), key=lambda one: (-one.confidence, one.client_id))
    candidates = tuple(
        Candidate(contact=contact, confidence=round(one.confidence, 3), words=_words(scene, one))
        for one in found[:MOST_CANDIDATES]
        if (contact := index.contacts.get(one.client_id)) is not None
    )
    if not candidates:
        return None
    best = candidates[0]
    sure = len(found) == 1 and best.confidence >= CERTAIN
    return ClientMatch(
        client=best.contact if sure else None, confidence=best.confidence, candidates=candidates
    )


def _by_place(mentions: list[Mention]) -> list[list[Mention]]:
    """Mentions that touch each other, together."""
    groups: list[list[Mention]] = []
    for mention in mentions:
        touched = [group for group in groups if any(mention.touches(other) for other in group)]
        groups = [group for group in groups if group not in touched]
        groups.append([mention, *(other for group in touched for other in group)])
    return groups


def _contenders(group: list[Mention]) -> list[Mention]:
    """Those at one place that are as sure as the surest."""
    top = max(mention.confidence for mention in group)
    return [mention for mention in group if mention.confidence >= top - MARGIN]


def _resolved(places: list[list[Mention]]) -> list[list[Mention]]:
    """Without places that another one makes clear: Anna called; Anna Schmidt wants an offer."""
    certain = {place[0].client_id for place in places if len({one.client_id for one in place}) == 1}
    return [
        place
        for place in places
        if len({one.client_id for one in place}) == 1 or not any(one.client_id in certain for one in place)
    ]


def _words(scene: Scene, mention: Mention) -> str:
    if mention.first < 0:
        return "address"
    return " ".join(token.text for token in scene.tokens[mention.first : mention.last + 1])
