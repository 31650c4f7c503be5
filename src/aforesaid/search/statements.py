"""Tell what a message contributes: nothing, only a question, or a statement."""

import re
from collections.abc import Collection

from aforesaid.search.analysis import terms_of

# Words of messages that only acknowledge, in the languages of the stop words.
_ACKNOWLEDGING = frozenset(
    terms_of(
        "ok okay okey k yes yeah yep yup no nope nah sure right alright fine good great nice cool perfect "
        "thanks thank thx please welcome bye hello hi hey hm hmm mhm uh um oh ah wow exactly correct "
        "understood agreed done got it see course absolutely definitely awesome sounds "
        "ja nein doch gut genau danke bitte klar alles super prima hallo gern gerne "
        "nee goed dank bedankt "
        "oui non merci bien entendu accord salut bonjour si vale gracias bueno claro hola perfecto "
        "va bene grazie certo ciao perfetto sim obrigado obrigada claro certo tudo bem"
    )
)
# Longer texts say something.
_LONGEST = 60


def is_acknowledgement(text: str, terms: Collection[str]) -> bool:
    """Return whether a message says nothing about these terms or anything else, such as "OK"."""
    if len(text) > _LONGEST:
        return False
    own = terms_of(text)
    return _ACKNOWLEDGING.issuperset(own) and not any(term in terms for term in own)


_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
_QUESTION_MARKS = ("?", "？", ";")
# Share of a question's terms that are new, from which on it asks something else.
_NEW_SHARE = 0.5


def only_asks(text: str, terms: Collection[str]) -> bool:
    """Return whether a message is nothing but a question about these terms."""
    if not text.rstrip().endswith(_QUESTION_MARKS):
        return False
    sentences = [found[0].strip() for found in _SENTENCE.finditer(text)]
    if not all(one.endswith(_QUESTION_MARKS) or not terms_of(one) for one in sentences):
        return False
    own = set(terms_of(text))
    return len(own.difference(terms)) < _NEW_SHARE * len(own)
