"""Reduce English words to stems: "painted", "painting" and "paints" share one.

Porter's algorithm of 1980, with its steps in order: plurals, -ed and -ing, y, then the long suffixes
depending on the remaining length. A table of irregular forms comes first, so that "where did she go" finds "I
went".
"""

from collections.abc import Mapping, Sequence

from aforesaid._internal.patterns import lazy_pattern

_VOWELS = frozenset("aeiou")
# A shorter word has no removable ending.
_SHORTEST = 3


def stem(word: str) -> str:
    """Return the stem of a lower-case word in ASCII letters."""
    if len(word) < _SHORTEST:
        return word
    word = _without_plural(_REGULAR.get(word, word))
    word = _without_past(word)
    word = _with_i_for_y(word)
    word = _swapped(word, _DOUBLE_SUFFIXES, least=1)
    word = _swapped(word, _SINGLE_SUFFIXES, least=1)
    word = _without_last_suffix(word)
    return _tidied(word)


def _without_plural(word: str) -> str:
    if not word.endswith("s"):
        return word
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word if word.endswith("ss") else word[:-1]


def _without_past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix) and _has_vowel(word[: -len(suffix)]):
            return _completed(word[: -len(suffix)])
    return word


def _completed(word: str) -> str:
    """What is left of "conflat(ed)", "hopp(ing)" or "fil(ing)", made a word again."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _ends_doubled(word) and word[-1] not in "lsz":
        return word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_short(word) else word


def _with_i_for_y(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and _has_vowel(word[:-1]) else word


def _swapped(word: str, suffixes: Mapping[str, Sequence[tuple[str, str]]], *, least: int) -> str:
    """The word with its suffix replaced, where enough of it stands before."""
    for suffix, instead in suffixes.get(word[-2:-1], ()):
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return rest + instead if _measure(rest) >= least else word
    return word


def _without_last_suffix(word: str) -> str:
    for suffix in _LAST_SUFFIXES:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            fits = suffix != "ion" or rest.endswith(("s", "t"))
            return rest if fits and _measure(rest) > 1 else word
    return word


def _tidied(word: str) -> str:
    """Without a silent e and without a doubled l at the end."""
    if word.endswith("e"):
        rest = word[:-1]
        size = _measure(rest)
        if size > 1 or (size == 1 and not _ends_short(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


_VOWELS_THEN_CONSONANTS = lazy_pattern("v+c+")


def _measure(word: str) -> int:
    """How many times vowels are followed by consonants."""
    return len(_VOWELS_THEN_CONSONANTS.findall(_shape(word)))


def _shape(word: str) -> str:
    """The word as v and c: a y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in _VOWELS or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _ends_doubled(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word).endswith("c")


def _ends_short(word: str) -> bool:
    """Consonant, vowel, consonant, as in "hop"; a final w, x or y does not count."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


# By the letter before the last, the longest first.
_DOUBLE_SUFFIXES = {
    "a": (("ational", "ate"), ("tional", "tion")),
    "c": (("enci", "ence"), ("anci", "ance")),
    "z": (("izer", "ize"),),
    "l": (("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous")),
    "o": (("ization", "ize"), ("ation", "ate"), ("ator", "ate")),
    "s": (("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous")),
    "t": (("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")),
    "g": (("logi", "log"),),
}

_SINGLE_SUFFIXES = {
    "t": (("icate", "ic"), ("iciti", "ic")),
    "v": (("ative", ""),),
    "z": (("alize", "al"),),
    "a": (("ical", "ic"),),
    "u": (("ful", ""),),
    "s": (("ness", ""),),
}

_LAST_SUFFIXES = (
    *(
        "ement",
        "ance",
        "ence",
        "able",
        "ible",
        "ment",
        "ant",
        "ent",
        "ism",
        "ate",
        "iti",
        "ous",
        "ive",
        "ize",
    ),
    *("ion", "al", "er", "ic", "ou"),
)


_IRREGULAR = """
become: became; begin: began begun; bite: bit bitten; blow: blew blown; break: broke broken; bring: brought;
build: built; buy: bought; catch: caught; choose: chose chosen; come: came; deal: dealt; dig: dug;
draw: drew drawn; dream: dreamt; drink: drank drunk; drive: drove driven; eat: ate eaten; fall: fell fallen;
feed: fed; feel: felt; fight: fought; find: found; fly: flew flown; forget: forgot forgotten;
forgive: forgave forgiven; freeze: froze frozen; get: got gotten; give: gave given; go: went gone;
grow: grew grown; hang: hung; hear: heard; hide: hid hidden; hold: held; keep: kept; know: knew known;
lead: led; learn: learnt; leave: left; lend: lent; lose: lost; make: made; mean: meant; meet: met; pay: paid;
ride: rode ridden; ring: rang rung; rise: rose risen; run: ran; say: said; see: saw seen; sell: sold;
send: sent; shake: shook shaken; shine: shone; shoot: shot; show: shown; sing: sang sung; sink: sank sunk;
sit: sat; sleep: slept; speak: spoke spoken; spend: spent; stand: stood; steal: stole stolen; stick: stuck;
strike: struck; swear: swore sworn; sweep: swept; swim: swam swum; take: took taken; teach: taught;
tear: tore torn; tell: told; think: thought; throw: threw thrown; understand: understood; wake: woke woken;
wear: wore worn; win: won; write: wrote written; child: children; person: people; man: men; woman: women;
foot: feet; tooth: teeth; mouse: mice; wife: wives; life: lives; knife: knives; leaf: leaves; shelf: shelves
"""


def _regular_forms() -> dict[str, str]:
    entries = (entry.split(":") for entry in _IRREGULAR.split(";"))
    return {form: word.strip() for word, forms in entries for form in forms.split()}


_REGULAR = _regular_forms()
