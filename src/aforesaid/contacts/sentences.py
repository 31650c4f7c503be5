"""Analyze a text for names: its words, and the grammatical context of each."""

import re
from typing import NamedTuple

from aforesaid.contacts import word_lists
from aforesaid.contacts.names import composed, folded, singulars, spellings, vocabulary, word_finder

# Characters of a message that are read.
LONGEST_TEXT = 20_000

_word_in = word_finder(letter=r"[^\W\d_]", joints=r"'’\-")
_ELISION = re.compile(r"^(?:[dlnsjmtc]|qu|dell|all|dall|nell|sull)['’](?=[^\W\d_]{2})", re.IGNORECASE)
_POSSESSIVE = re.compile(r"(?:['’]s|['’])$", re.IGNORECASE)
_HONORIFIC = re.compile(r"-(?:san|sama|sensei|ji)$", re.IGNORECASE)
_ENDS = re.compile(r"[.!?:;\n¿¡]")


# Words of one letter in the supported languages; without a point they are not initials.
_ONE_LETTER_WORDS = frozenset("aeiouy")


class Token(NamedTuple):
    """A word of a text."""

    text: str
    fold: str
    forms: tuple[str, ...]
    capital: bool
    starts: bool
    """Whether it begins a sentence."""
    gap: str
    """The characters between the previous word and this one, without whitespace."""
    possessive: bool
    pointed: bool


def tokens_in(text: str) -> list[Token]:
    """Return the words of a text."""
    found: list[Token] = []
    end = 0
    text = composed(text)
    for match in _word_in(text).finditer(text):
        between = text[end : match.start()]
        word = match.group()
        elided = _ELISION.match(word)
        if elided is not None:
            found.append(_token(elided.group()[:-1], between, found, pointed=False))
            # An elided word (d', l') becomes a token of its own, directly before the name.
            between, word = "", word[elided.end() :]
        end = match.end()
        found.append(_token(word, between, found, pointed=text[end : end + 1] == "."))
    return found


def _token(word: str, between: str, before: list[Token], *, pointed: bool) -> Token:
    bare = _HONORIFIC.sub("", _POSSESSIVE.sub("", word))
    fold = folded(bare)
    return Token(
        text=word,
        fold=fold,
        forms=spellings(bare),
        capital=word[:1].isupper(),
        # The point of "Mr." or of an initial does not end a sentence.
        starts=not before or (bool(_ENDS.search(between)) and not _is_abbreviation(before[-1])),
        gap=between.strip(),
        possessive=bare != word and _HONORIFIC.search(word) is None,
        pointed=pointed,
    )


def _is_abbreviation(token: Token) -> bool:
    return token.pointed and (token.fold in word_lists.TITLES or len(token.fold) == 1)


class AnalyzedText:
    """A text as tokens, with questions about the context of each."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens_in(text)
        letters = [token.text for token in self.tokens]
        # In a text in capitals only, as in a text without capitals, case says nothing about names.
        small = any(word != word.upper() for word in letters)
        self.cased = small and any(token.capital and token.text not in ("I", "A") for token in self.tokens)
        self.language = self._language()
        self.german = self.language == "de"
        # Where a correction announces a name; see `corrections`.
        self.announced: set[int] = set()

    def _language(self) -> str:
        folds = [token.fold for token in self.tokens]
        # Function words identify a language; its other words decide between equals.
        counts = {
            name: sum((fold in signs) + 0.3 * (fold in word_lists.WORDS[name]) for fold in folds)
            for name, signs in word_lists.SIGNS.items()
        }
        best = max(counts, key=lambda name: counts[name])
        # Without any function word, English rules apply.
        return best if counts[best] else "en"

    def fold(self, at: int) -> str:
        return self.tokens[at].fold if 0 <= at < len(self.tokens) else ""

    def joined(self, at: int) -> bool:
        """Return whether only whitespace separates this word from the previous one."""
        return 0 < at < len(self.tokens) and self.tokens[at].gap in ("", ".") and not self.tokens[at].starts

    def separate(self, at: int) -> None:
        """Separate this word from the previous one, as a comma does."""
        if at < len(self.tokens):
            self.tokens[at] = self.tokens[at]._replace(gap=self.tokens[at].gap or ",")

    def is_word(self, at: int) -> bool:
        """Return whether this is also a common word, place, month or machine, so a name only in context."""
        fold, words = self.fold(at), vocabulary().words
        return fold in words or any(one in words for one in singulars(fold)) or self.is_place_or_date(at)

    def is_initial(self, at: int) -> bool:
        """Return whether this letter abbreviates a name: "a" and "I" do so only with a point."""
        if not 0 <= at < len(self.tokens) or len(self.fold(at)) != 1:
            return False
        token = self.tokens[at]
        if token.pointed:
            return True
        return token.fold not in _ONE_LETTER_WORDS and (token.capital or not self.cased)

    def is_family(self, first: int, last: int) -> bool:
        """Return whether this is a family: the Finches, die Müllers, los García, i Rossi."""
        if not self.joined(first) or self.fold(first - 1) not in word_lists.PLURAL_ARTICLES:
            return False
        if self.language in ("it", "es", "fr"):
            return self.is_article(first - 1) and self.in_capitals(last)
        # The rivers of a region are no family.
        named = not self.joined(last + 1) or self.fold(last + 1) != "of"
        return named and bool(singulars(self.fold(last))) and not self.tokens[last].possessive

    def is_place_or_date(self, at: int) -> bool:
        fold = self.fold(at)
        return fold in word_lists.MONTHS or fold in word_lists.PLACES or fold in word_lists.MACHINES

    def in_capitals(self, at: int) -> bool:
        return self.cased and self.tokens[at].capital

    def title_before(self, at: int) -> str | None:
        """Return the gender of the title before this word: m, f or "" for either; None without a title."""
        if not self.joined(at):
            return None
        token = self.tokens[at - 1]
        if token.fold not in word_lists.TITLES:
            return None
        # Some titles are also words ("don", "sr"): they count only with a point or a capital.
        if token.fold in word_lists.ONLY_WITH_POINT and not (token.pointed or (self.cased and token.capital)):
            return None
        return word_lists.TITLES[token.fold]

    def evidence(self, first: int, last: int) -> int:
        """Return the evidence for a name: 3 an action towards a client, 2 an action or possession of
        theirs, 1 a hint.
        """
        if first in self.announced:
            return 3
        before = self.fold(first - 1) if self.joined(first) else ""
        earlier = self.fold(first - 2) if before else ""
        if before in word_lists.BEFORE_NAME and not self._is_noun(first - 1):
            return 3
        if earlier in word_lists.BEFORE_NAME and (
            before in word_lists.CONNECTIVES or before in ("up", "back")
        ):
            return 3
        after = self._verb(last + 1) if self.joined(last + 1) else ""
        if self._owns(last) or self._is_owner(before, earlier) or self._acts(after):
            return 2
        return (
            1
            if before in word_lists.CONNECTIVES
            or after in word_lists.AFTER_NAME
            or after in word_lists.BUSINESS
            or self._is_home(first, last)
            else 0
        )

    def _owns(self, last: int) -> bool:
        """Return whether something of theirs follows, and not a title such as Robert's Rules."""
        titled = self.joined(last + 1) and self.in_capitals(last + 1) and not self.german
        return self.tokens[last].possessive and not titled

    def _verb(self, at: int) -> str:
        """Return the word; nothing for the conjunction "e", which without its accent looks like "è"."""
        return "" if self.tokens[at].text in ("e", "E") else self.fold(at)

    def _is_owner(self, before: str, earlier: str) -> bool:
        """Return whether a matter of this client precedes: the invoice of X, la caldaia di X."""
        return before in word_lists.OWNED_BY and earlier in word_lists.BUSINESS

    def _acts(self, after: str) -> bool:
        if after not in word_lists.AFTER_NAME:
            return False
        # Italian and Spanish nouns have an article, so a bare subject of "ha" is a name.
        return after not in word_lists.AUXILIARIES or self.language in ("it", "es")

    def follows_pronoun(self, first: int) -> bool:
        """Return whether a pronoun makes this word a verb: I hope, you will, the client will."""
        if not self.joined(first):
            return False
        before = self.fold(first - 1)
        if before in word_lists.CLIENTS and self.is_article(first - 2):
            return not self.in_capitals(first) and self.is_word(first)
        return before in word_lists.PRONOUNS and not self.is_article(first - 1)

    def _is_noun(self, at: int) -> bool:
        """Return whether an article makes this verb a noun: the call, a bill, the visit."""
        return self.is_article(at - 1) and self.fold(at) not in word_lists.CLIENTS

    def is_article(self, at: int) -> bool:
        fold = self.fold(at)
        if fold == "a":
            return self.language == "en"
        if fold == "i":
            return self.language == "it"
        if fold == "de":
            return self.language == "nl"
        return fold in word_lists.ARTICLES

    def after_article(self, first: int, last: int) -> bool:
        """Return whether an article precedes. In "the Smith invoice" the article belongs to the invoice."""
        if not self.joined(first) or self.fold(last + 1) in word_lists.BUSINESS or self._is_home(first, last):
            return False
        return self.is_article(first - 1) or self._is_adjective(first - 1)

    def _is_home(self, first: int, last: int) -> bool:
        """Return whether this is a home: the Hoffman place. A street has a capital: Hoffman Place."""
        return (
            self.joined(last + 1)
            and self.fold(last + 1) in word_lists.PREMISES
            and not self.in_capitals(last + 1)
            and self.is_article(first - 1)
        )

    def _is_adjective(self, at: int) -> bool:
        """Return whether this word stands between an article and a noun: a new brush, the red chip."""
        fold = self.fold(at)
        excluded = (word_lists.BEFORE_NAME, word_lists.CONNECTIVES, word_lists.TITLES)
        return (
            self.joined(at)
            and self.is_article(at - 1)
            and not self.in_capitals(at)
            and not any(fold in one for one in excluded)
        )

    def is_kin(self, first: int) -> bool:
        """Return whether this is a relative or friend of the speaker: my sister, Uncle Mark."""
        if not self.joined(first):
            return False
        before = self.fold(first - 1)
        if before in word_lists.KIN_TITLES:
            return True
        return before in word_lists.KIN and (
            self.fold(first - 2) in word_lists.OWN or self.is_article(first - 2)
        )

    def is_named_so(self, first: int) -> bool:
        """Return whether somebody gets this name: the baby is called Grace, unser Hund heißt Karl."""
        if not self.joined(first):
            return False
        before, earlier = self.fold(first - 1), self.fold(first - 2)
        if before in word_lists.BEFORE_NAME:  # si chiama, se llama; "chiama Carlo" is a call
            names = before == "called" and earlier in word_lists.BEING
            return names or (before in word_lists.NAMED_SO and earlier in ("si", "se", "s"))
        return before in word_lists.NAMED_SO

    def is_companion(self, first: int, last: int) -> bool:
        """Return whether the speaker does something together with this person: me and Mark, Petra und ich."""
        before = self.joined(first) and self.fold(first - 1) in word_lists.AND
        after = self.joined(last + 2) and self.fold(last + 1) in word_lists.AND
        return (before and self.fold(first - 2) in word_lists.MYSELF) or (
            after and self.fold(last + 2) in word_lists.MYSELF
        )

    def is_artist(self, last: int) -> bool:
        """Return whether music by this name is asked for: play Grace. Messages of clients are played, too."""
        commands = (self.fold(0), self.fold(1)) if self.fold(0) in ("please", "bitte") else (self.fold(0),)
        return (
            not word_lists.PLAYERS.isdisjoint(commands)
            and not self.tokens[last].possessive
            and not self.is_about_business()
        )

    def is_about_business(self) -> bool:
        return any(token.fold in word_lists.BUSINESS for token in self.tokens)

    def is_defined(self, last: int) -> bool:
        """Return whether a definition follows, as for things and places: X is a river."""
        return (
            self.joined(last + 1)
            and self.fold(last + 1) in word_lists.BEING
            and self.fold(last + 2) in word_lists.ARTICLES
        )

    def is_place_name(self, first: int, last: int) -> bool:
        """Return whether this is a thing or place named after a person: Smith Street, Lake Thompson."""
        after = self.joined(last + 1) and self.fold(last + 1) in word_lists.PLACE_NOUNS
        possessive = self.tokens[last].possessive and self.fold(last + 1) not in ("law", "effect")
        before = (
            self.joined(first)
            and self.fold(first - 1) in word_lists.PLACE_NOUNS
            and self.in_capitals(first - 1)
        )
        region = (
            self.joined(first)
            and self.fold(first - 1) in word_lists.OWNED_BY
            and self.fold(first - 2) in word_lists.REGIONS
        )
        before = before or region
        return (after and not possessive and not self._is_home(first, last)) or before

    def is_when_or_where(self, first: int) -> bool:
        before = self.fold(first - 1)
        return before in word_lists.WHEN or before in word_lists.WHERE

    def other_name_after(self, last: int, contact_names: "set[str]") -> bool:
        """Return whether the next word makes this another person: Priya Patel is not our Priya."""
        at = last + 1
        if not self.joined(at) or self.tokens[last].possessive or self.tokens[at].gap:
            return False
        fold = self.fold(at)
        if fold in word_lists.MONTHS or fold in word_lists.TITLES or fold in word_lists.DAYS:
            return False
        if self.in_capitals(at):
            # German writes all nouns with capitals, so a capital alone does not make the next word a name.
            return fold not in vocabulary().words if self.german else fold != "i"
        lists = vocabulary()
        return (fold in lists.names or fold in contact_names) and fold not in lists.words

    def other_name_before(self, first: int, contact_names: "set[str]") -> bool:
        """Return whether the previous word makes this another person: Peter Smith is not our Robert Smith."""
        at = first - 1
        if not self.joined(first) or self.tokens[at].possessive:
            return False
        fold, lists = self.fold(at), vocabulary()
        if fold in word_lists.TITLES or fold in word_lists.PARTICLES:
            return fold in word_lists.PARTICLES and self.in_capitals(at) and not self.tokens[at].starts
        if not self.in_capitals(at):
            return (fold in lists.given or fold in contact_names) and fold not in lists.words
        if len(fold) == 1:
            return self.is_initial(at)
        if fold in lists.given or fold in contact_names:
            return True
        excluded = (word_lists.BEFORE_NAME, word_lists.KIN, word_lists.AFTER_NAME, word_lists.CONNECTIVES)
        if any(fold in one for one in excluded):
            return False
        return fold not in lists.words or not (self.tokens[at].starts or self.german)
