"""Identify the client named in a text: a pure function of the text and an owner's name index.

Every contact that a word may name gets a *mention*: a place and a confidence. Mentions at the same place
compete. The result is one client if exactly one remains. If several are equally certain, or several places
name different people, the result is candidates, never a guess.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from aforesaid.contacts import word_lists
from aforesaid.contacts.corrections import find_correction
from aforesaid.contacts.mentions import (
    Mention,
    by_place,
    contenders,
    without_ambiguous,
    without_covered,
)
from aforesaid.contacts.name_index import NameIndex, Posting, is_other_name, number_key
from aforesaid.contacts.names import EXACT, HOMOPHONE, Alias, ParsedName, folded, singulars, vocabulary
from aforesaid.contacts.sentences import LONGEST_TEXT, AnalyzedText
from aforesaid.model.contacts import CERTAIN, Candidate, ClientMatch

FULL, INITIAL, TITLED, FAMILY, GIVEN = 0.99, 0.92, 0.93, 0.88, 0.82
NICKNAME, SINGLE, COMPANY, COMPANY_OF, PART_OF_COMPANY = 0.9, 0.9, 0.95, 0.85, 0.87
# Factor for a single word in a sentence that shows no business with a client.
DOUBT = 0.88
# Confidence of each way of naming a contact when the spelling is exact.
ADDRESS = 0.99
# Minimum grade of a family name after a title without a given name.
LEAST_TITLED = 0.86
MOST_CANDIDATES = 10

# The lookbehinds prevent quadratic time: a long run of letters or digits is scanned only once.
_ADDRESS = re.compile(r"(?<![\w.+\-])[\w.+\-]{1,64}@[\w\-]{1,63}(?:\.[\w\-]{1,63}){1,8}")
_NUMBER = re.compile(r"(?<![\d(/.\-])\+?\d[\d\s()/.\-]{5,25}\d")


class Hit(NamedTuple):
    """A word of the text that may stand for a word of a contact's name."""

    first: int
    last: int
    posting: Posting
    grade: float


def identify(text: str, index: NameIndex, *, by_ear: bool = False) -> ClientMatch | None:
    """Return the clients named in a text, or None.

    `by_ear`: the text is a transcript, so different spellings of the same sound are equal.
    """
    return read_names(text, index, by_ear=by_ear).match


class Reading(NamedTuple):
    """The clients named in a text, and whether they replace clients named before."""

    match: ClientMatch | None
    corrects: bool = False


def read_names(text: str, index: NameIndex, *, by_ear: bool = False) -> Reading:
    """Return the clients named in a text, and whether the text corrects an earlier name."""
    if not len(index):
        return Reading(None)
    addressed, rest = _by_address(text[:LONGEST_TEXT], index)
    analyzed = AnalyzedText(rest)
    correction = find_correction(analyzed, index)
    # "Not Miller, Millar" distinguishes spellings, even in a transcript.
    by_ear = by_ear and not correction.rejected
    mentions = [*addressed, *_MentionFinder(analyzed, index, by_ear=by_ear).mentions()]
    found = without_covered(mentions)
    kept = [one for one in found if correction.keeps(one.first)]
    if correction.replaced_at is not None and any(one.first >= correction.replaced_at for one in kept):
        kept = [one for one in kept if not 0 <= one.first < correction.replaced_at]
    return Reading(_decide(analyzed, index, kept), corrects=bool(kept) and correction.found)


def _by_address(text: str, index: NameIndex) -> tuple[list[Mention], str]:
    """Return mentions by mail address or phone number, and the text without those."""
    found: list[Mention] = []
    for pattern, key_of in ((_ADDRESS, str.casefold), (_NUMBER, number_key)):
        for match in pattern.findall(text):
            key = key_of(match)
            # Negative places: an address competes only with other contacts that have the same one.
            place = -1 - len(found)
            client_ids = index.by_address(key) if key else ()
            found += [Mention(client_id, place, place, ADDRESS) for client_id in client_ids]
        # A comma keeps the words around an address apart, so that they do not form a name.
        text = pattern.sub(" , ", text)
    return found, text


class _MentionFinder:
    """Finds the mentions of all contacts in one text."""

    def __init__(self, text: AnalyzedText, index: NameIndex, *, by_ear: bool) -> None:
        self._text = text
        self._index = index
        self._by_ear = by_ear
        self._other_people: dict[tuple[int, int], bool] = {}
        self._plausibilities: dict[tuple[int, int, bool], float] = {}

    def mentions(self) -> Iterator[Mention]:
        by_client: dict[str, list[Hit]] = {}
        for hit in self._hits():
            by_client.setdefault(hit.posting.client_id, []).append(hit)
        for client_id, hits in by_client.items():
            record = self._index.names.get(client_id)
            if record is not None:
                yield from self._mentions_of(record, hits)

    # Words

    def _hits(self) -> Iterator[Hit]:
        for at, token in enumerate(self._text.tokens):
            for form in token.forms:
                yield from self._hits_of_word(at, at, form)
            if at and self._text.joined(at) and not token.gap:
                pair = self._text.tokens[at - 1].fold + token.fold
                yield from (Hit(at - 1, at, posting, posting.grade) for posting in self._index.exact(pair))

    def _hits_of_word(self, first: int, last: int, word: str) -> Iterator[Hit]:
        exact = self._index.exact(word)
        for posting in exact:
            yield Hit(first, last, posting, self._grade_by_ear(posting.grade))
        # A common word is rarely a misspelt name, and matching it loosely costs precision.
        if word in vocabulary().words:
            yield from self._spelling_variants(first, last, word)
            return
        other_name = is_other_name(word)
        if not exact and not other_name:
            # German possessive: Müllers Auto; families: the Finches
            for singular in singulars(word):
                for posting in self._index.exact(singular):
                    # "Ángeles" is no form of Ángel: only families have a plural in -es.
                    if posting.slot != "given" or len(word) == len(singular) + 1:
                        yield Hit(first, last, posting, self._grade_by_ear(posting.grade))
        for name, grade in self._index.misspelt(word, by_sound_only=other_name):
            for posting in self._index.exact(name):
                # A misspelt short form is too uncertain.
                if posting.grade == EXACT:
                    yield Hit(first, last, posting, self._grade_by_ear(grade))

    def _spelling_variants(self, first: int, last: int, word: str) -> Iterator[Hit]:
        """Match a common word only with its variants inside company names: harbour, harbor."""
        for name, grade in self._index.misspelt(word, by_sound_only=True):
            for posting in self._index.exact(name):
                if posting.slot == "alias":
                    yield Hit(first, last, posting, grade)

    def _grade_by_ear(self, grade: float) -> float:
        """Treat homophones as exact in a transcript, which does not preserve spellings."""
        return EXACT if self._by_ear and grade >= HOMOPHONE else grade

    # Ways of naming a person

    def _mentions_of(self, record: ParsedName, hits: list[Hit]) -> Iterator[Mention]:
        given = [hit for hit in hits if hit.posting.slot == "given"]
        family = [hit for hit in hits if hit.posting.slot == "family"]
        full = [mention for one in given for other in family if (mention := self._full(record, one, other))]
        yield from full
        alone = [mention for hit in family if (mention := self._family(record, hit))]
        if not self._belongs_to_other_person(record, family):
            yield from alone
        yield from (mention for hit in given if (mention := self._given(record, hit)))
        aliases = [hit for hit in hits if hit.posting.slot == "alias"]
        if aliases:
            yield from self._aliases(record, aliases)

    def _full(self, record: ParsedName, given: Hit, family: Hit) -> Mention | None:
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

    def _in_order(self, record: ParsedName, given: Hit, family: Hit) -> bool:
        text = self._text
        if family.first <= given.last or family.first - given.last > 5:
            return False
        if text.tokens[given.last].possessive:
            return False
        between = range(given.last + 1, family.first)
        allowed = {*record.middle, *record.particles}
        return all(
            text.joined(at) and (text.fold(at) in allowed or text.is_initial(at)) for at in between
        ) and text.joined(family.first)

    def _in_reverse(self, given: Hit, family: Hit) -> bool:
        if given.first != family.last + 1:
            return False
        token = self._text.tokens[given.first]
        return token.gap in ("", ",") and not token.starts

    def _reads_as_name(self, given: Hit, family: Hit) -> bool:
        """Return whether two adjacent words form a name: "rich long hair" is not Rich Long."""
        text = self._text
        wordlike = [hit for hit in (given, family) if text.is_word(hit.first)]
        if not wordlike:
            return True
        if text.cased:
            return all(text.in_capitals(hit.last) for hit in wordlike)
        if len(wordlike) == 1:
            return True
        return given.first == 0 or text.evidence(given.first, family.last) > 0

    def _family(self, record: ParsedName, hit: Hit) -> Mention | None:
        first = self._with_particles(record, hit)
        if first is None:
            return None
        title = self._text.title_before(first)
        if title is not None:
            return self._titled(record, hit, first, title)
        if first and self._is_initial(record, first - 1):
            return Mention(record.client_id, first - 1, hit.last, INITIAL * hit.grade)
        if self._names_other_person(first, hit.last):
            return None
        return self._single_word(record, hit, first, FAMILY)

    def _with_particles(self, record: ParsedName, hit: Hit) -> int | None:
        """Return where the family name begins; None if its particle (van, de) is missing."""
        first = hit.first
        for particle in reversed(record.particles):
            if self._text.joined(first) and self._text.fold(first - 1) == particle:
                first -= 1
        return None if record.particles and first == hit.first else first

    def _titled(self, record: ParsedName, hit: Hit, first: int, title: str) -> Mention | None:
        if (title and record.gender and title != record.gender) or hit.grade < LEAST_TITLED:
            return None
        if hit.grade < HOMOPHONE and self._text.cased and not self._text.in_capitals(hit.last):
            return None  # a verb that resembles a name: il signore russa
        if self._text.other_name_after(hit.last, set()) and not self._text.german:
            return None
        confidence = TITLED + (0.02 if title and title == record.gender else 0.0)
        return Mention(record.client_id, first, hit.last, confidence * hit.grade)

    def _is_initial(self, record: ParsedName, at: int) -> bool:
        return (
            self._text.is_initial(at)
            and bool(record.given)
            and folded(record.given[0]).startswith(self._text.fold(at))
        )

    def _given(self, record: ParsedName, hit: Hit) -> Mention | None:
        title = self._text.title_before(hit.first)
        if title is not None:
            contradicted = bool(title and record.gender and title != record.gender)
            exact = hit.grade == EXACT and self._text.fold(hit.first) == hit.posting.word
            if contradicted or not exact or self._names_other_person(hit.first, hit.last):
                return None
            return Mention(record.client_id, hit.first, hit.last, GIVEN)
        if self._names_other_person(hit.first, hit.last):
            return None
        if self._text.is_named_so(hit.first) or self._text.is_companion(hit.first, hit.last):
            return None
        return self._single_word(record, hit, hit.first, GIVEN)

    def _names_other_person(self, first: int, last: int) -> bool:
        """Return whether adjacent words make this another person's name. Cached, because many contacts
        share a word.
        """
        if (first, last) not in self._other_people:
            after = self._text.other_name_after(last, self._contact_names_at(last + 1, "family"))
            before = self._text.other_name_before(first, self._contact_names_at(first - 1, "given"))
            self._other_people[first, last] = after or before
        return self._other_people[first, last]

    def _contact_names_at(self, at: int, slot: str) -> set[str]:
        """Return the word at this place if a contact has that name."""
        fold = self._text.fold(at)
        return {fold} if any(one.slot == slot for one in self._index.exact(fold)) else set()

    def _belongs_to_other_person(self, record: ParsedName, family: list[Hit]) -> bool:
        """Return whether the family name occurs in the text with another given name."""
        for hit in family:
            first = self._with_particles(record, hit)
            if first is not None and self._text.title_before(first) is None:
                known = self._contact_names_at(first - 1, "given")
                given = {*(folded(one) for one in record.given), *record.middle}
                if self._text.fold(first - 1) in given or (first and self._is_initial(record, first - 1)):
                    return False
                if self._text.other_name_before(first, known):
                    return True
        return False

    def _single_word(self, record: ParsedName, hit: Hit, first: int, confidence: float) -> Mention | None:
        misspelt = hit.grade < HOMOPHONE and hit.posting.grade == EXACT
        place = first, hit.last, misspelt
        if place not in self._plausibilities:
            self._plausibilities[place] = self._plausibility(first, hit.last, misspelt=misspelt)
        factor = self._plausibilities[place]
        return Mention(record.client_id, first, hit.last, confidence * hit.grade * factor) if factor else None

    def _plausibility(self, first: int, last: int, *, misspelt: bool) -> float:
        """Return how plausible a single word is as a name at this place."""
        text = self._text
        if text.is_place_name(first, last) or text.is_kin(first) or text.is_artist(last):
            return 0.0
        wordlike = text.is_word(last)
        if wordlike and text.follows_pronoun(first):
            return 0.0
        family = text.is_family(first, last)
        evidence = 3 if family and text.in_capitals(last) else text.evidence(first, last)
        if wordlike and text.is_place_or_date(last) and (evidence < 2 or text.is_when_or_where(first)):
            return 0.0
        if not family and text.after_article(first, last):
            return 0.0 if wordlike or misspelt else 0.6
        factor = self._by_case(first, last, evidence, wordlike=wordlike, misspelt=misspelt)
        if evidence < 2 and not text.is_about_business():
            factor *= DOUBT
        return factor * (0.6 if text.is_defined(last) else 1.0)

    def _by_case(self, first: int, last: int, evidence: int, *, wordlike: bool, misspelt: bool) -> float:
        text = self._text
        if not text.in_capitals(last):
            if text.cased and (wordlike or misspelt or evidence < 2):
                return 0.0
            if wordlike or misspelt:
                return 0.95 if evidence >= 2 else 0.0
            return 1.0 if evidence else 0.84
        if text.tokens[first].starts:
            if wordlike or misspelt:
                return 1.0 if evidence >= 2 else 0.0
            return 1.0 if evidence else 0.84
        if wordlike and text.german and evidence < 3:
            return 0.0
        if misspelt and not evidence:
            return 0.84
        return 1.0 if evidence else 0.95

    # Nicknames, companies and single names

    def _aliases(self, record: ParsedName, hits: list[Hit]) -> Iterator[Mention]:
        for alias in record.aliases:
            words = [folded(word) for word in alias.words]
            for start in [hit for hit in hits if hit.posting.word == words[0]]:
                mention = self._alias(record, alias, words, start, hits)
                if mention is not None:
                    yield mention
            if alias.part == "company" and len(words) > 1:
                yield from self._company_parts(record, words, hits)

    def _alias(
        self, record: ParsedName, alias: Alias, words: list[str], start: Hit, hits: list[Hit]
    ) -> Mention | None:
        run = [start]
        for word in words[1:]:
            follows = [
                hit
                for hit in hits
                if hit.posting.word == word and hit.first == run[-1].last + 1 and self._text.joined(hit.first)
            ]
            if not follows:
                return None
            run.append(max(follows, key=lambda hit: hit.grade))
        grade = sum(hit.grade for hit in run) / len(run)
        first, last = run[0].first, run[-1].last
        if len(run) > 1:
            return self._multi_word(record, alias, first, last, grade)
        if alias.part == "company":
            return self._one_word_company(record, start)
        if self._names_other_person(first, last):
            return None
        return self._single_word(record, start, first, NICKNAME if alias.part == "nickname" else SINGLE)

    def _one_word_company(self, record: ParsedName, hit: Hit) -> Mention | None:
        """Without its legal form, a company of one word is named like a person of that name."""
        after = hit.last + 1
        if self._text.joined(after) and self._text.fold(after) in word_lists.LEGAL_FORMS:
            return Mention(record.client_id, hit.first, after, self._company(record) * hit.grade)
        if self._names_other_person(hit.first, hit.last):
            return None
        return self._single_word(record, hit, hit.first, min(FAMILY, self._company(record)))

    def _company(self, record: ParsedName) -> float:
        """Return the confidence for a company: a contact that is the company outranks its employees."""
        return COMPANY_OF if record.given else COMPANY

    def _multi_word(
        self, record: ParsedName, alias: Alias, first: int, last: int, grade: float
    ) -> Mention | None:
        text = self._text
        places = range(first, last + 1)
        small = text.cased and not any(text.in_capitals(at) for at in places)
        if small and all(text.is_word(at) for at in places):
            return None
        confidence = self._company(record) if alias.part == "company" else NICKNAME
        return Mention(record.client_id, first, last, confidence * grade)

    def _company_parts(self, record: ParsedName, words: list[str], hits: list[Hit]) -> Iterator[Mention]:
        """Yield mentions of a company by its distinctive word alone: TechNova, Johnson."""
        for hit in hits:
            own = hit.posting.word in words and hit.posting.word not in vocabulary().words
            if not own or hit.posting.word in word_lists.COMPANY_WORDS or hit.grade < HOMOPHONE:
                continue
            if self._text.title_before(hit.first) is not None or self._names_other_person(
                hit.first, hit.last
            ):
                continue
            mention = self._single_word(
                record, hit, hit.first, PART_OF_COMPANY - (0.1 if record.given else 0.0)
            )
            if mention is not None:
                yield mention


def _decide(text: AnalyzedText, index: NameIndex, mentions: list[Mention]) -> ClientMatch | None:
    if not mentions:
        return None
    places = without_ambiguous([contenders(group) for group in by_place(mentions)])
    best_by_client: dict[str, Mention] = {}
    for mention in (one for place in places for one in place):
        if (
            mention.client_id not in best_by_client
            or best_by_client[mention.client_id].confidence < mention.confidence
        ):
            best_by_client[mention.client_id] = mention
    found = sorted(best_by_client.values(), key=lambda one: (-one.confidence, one.client_id))
    candidates = tuple(
        Candidate(contact=contact, confidence=round(one.confidence, 3), words=_words(text, one))
        for one in found[:MOST_CANDIDATES]
        if (contact := index.contacts.get(one.client_id)) is not None
    )
    if not candidates:
        return None
    best = candidates[0]
    certain = len(found) == 1 and best.confidence >= CERTAIN
    return ClientMatch(
        client=best.contact if certain else None, confidence=best.confidence, candidates=candidates
    )


def _words(text: AnalyzedText, mention: Mention) -> str:
    if mention.first < 0:
        return "address"
    return " ".join(token.text for token in text.tokens[mention.first : mention.last + 1])
