"""Recognize what a question asks for, and which messages can answer it, by a few words of seven languages.

A question for a quantity or a time is answered by a message with a number. A request for advice depends on
what the person prefers or demands. A question about an earlier answer asks for the assistant's words.
"""

from msgspec import Struct

from aforesaid._internal.patterns import lazy_pattern
from aforesaid.search.analysis import terms_of

# Flags of a message.
NUMBER = 1
WISH = 2
QUESTION = 4

_WISHES = frozenset(
    terms_of(
        "always never prefer preference favorite favourite love like enjoy hate allergic rather please "
        "usually interested "
        "immer nie niemals lieber bevorzuge bevorzugt liebling mag hasse allergisch gerne bitte meistens "
        "altijd nooit liever voorkeur favoriet haat graag "
        "toujours jamais prefere prefers aime adore deteste allergique "
        "siempre nunca prefiero prefiere favorito favorita encanta odio alergico alergica "
        "sempre mai preferisco preferisce preferito preferita adoro odio allergico allergica "
        "prefiro prefere odeio alergica"
    )
)

_QUANTITY = lazy_pattern(
    r"\b(how (many|much|long|old|often|far)|when|what (time|date|percent|year)"
    r"|wie (viel|viele|lange|alt|oft|weit)|wann|um wie viel"
    r"|hoe (veel|lang|oud|vaak|ver)|hoeveel|wanneer"
    r"|combien|quand|quelle (heure|date|annee)"
    r"|cu[aá]nt[oa]s?|cu[aá]ndo|qu[eé] (hora|fecha|a[nñ]o)"
    r"|quant[oaie]|quando|che ora"
    r"|quantos|quantas|que horas)\b"
)
_REQUEST = lazy_pattern(
    r"\b(can you|could you|suggest|recommend|help me|how (can|should|do|would) i|what should"
    r"|any (tips|ideas|advice)|show me|what are some|walk me|explain"
    r"|kannst du|k[oö]nntest du|empfiehl|empfehl\w*|vorschl\w*|hilf mir|wie (kann|soll|sollte) ich|was soll"
    r"|zeig mir|erkl[aä]r\w*"
    r"|kun je|zou je|aanraden|stel .* voor|help mij|hoe (kan|moet) ik|laat .* zien|leg .* uit"
    r"|peux-tu|pourrais-tu|pouvez-vous|sugg[eè]re|recommande|aide-moi|comment (puis-je|faire|dois-je)"
    r"|montre-moi|explique"
    r"|puedes|podr[ií]as|sugi[eé]re|recomi[eé]nda|ay[uú]dame|c[oó]mo (puedo|debo)|mu[eé]strame"
    r"|puoi|potresti|sugger\w*|consigli\w*|aiutami|come (posso|devo)|mostrami|spiega\w*"
    r"|podes|poderia|sugere|recomenda|ajuda-me|como (posso|devo)|mostra-me)\b"
)
_ASSISTANT = lazy_pattern(
    r"\b(did you|have you|had you|remind me"
    r"|(?<!can )(?<!could )(?<!would )(?<!will )you (said|mention|recommend|suggest|told|gave|provid|list"
    r"|creat|wrote|advis|explain|shar|propos|describ|outlin|walk|help|show)\w*"
    r"|your (advice|suggestion|recommendation|answer|list|explanation|response)"
    r"|hast du|du (gesagt|empfohlen|vorgeschlagen|erkl[aä]rt)|dein\w* (rat|vorschlag|antwort|empfehlung)"
    r"|heb je|je (zei|aanraadde|voorstelde)|jouw (advies|antwoord|voorstel)"
    r"|as-tu|tu (m'as|as) |avez-vous|ta (r[eé]ponse|suggestion)|ton conseil"
    r"|me (dijiste|recomendaste|sugeriste|diste)|tu (respuesta|consejo|sugerencia)"
    r"|mi hai|la tua (risposta|proposta)|il tuo consiglio"
    r"|me (disseste|recomendaste|sugeriste)|a tua (resposta|sugest[aã]o))\b"
)


class Cues(Struct, frozen=True, kw_only=True):
    """What a question asks for."""

    quantity: bool = False
    """A number or a time."""
    request: bool = False
    """Advice or help."""
    assistant: bool = False
    """The assistant's words."""
    is_question: bool = False


def cues_of(question: str) -> Cues:
    """Recognize what the question asks for."""
    lower = question.lower()
    return Cues(
        quantity=_QUANTITY.search(lower) is not None,
        request=_REQUEST.search(lower) is not None,
        assistant=_ASSISTANT.search(lower) is not None,
        is_question=_asks(question),
    )


def flags_of(text: str, role: str) -> int:
    """Return the flags of a message: it contains a number, states a person's wish, ends with a question."""
    number = NUMBER if any(map(str.isdigit, text)) else 0
    wish = WISH if role == "user" and not _WISHES.isdisjoint(terms_of(text)) else 0
    return number | wish | (QUESTION if _asks(text) else 0)


def _asks(text: str) -> bool:
    return text.rstrip().endswith(("?", "？"))
