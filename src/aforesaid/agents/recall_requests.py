"""Parse what a user wants of the recall agent: a few English forms. Other text is a question to search for,
or a statement to keep.
"""

import re
from typing import Literal

from msgspec import Struct

Kind = Literal[
    "greet",
    "thank",
    "leave",
    "help",
    "remember",
    "forget",
    "delete",
    "remind",
    "drop",
    "list",
    "find",
    "tell",
]
"""`find` looks up earlier messages, `delete` redacts them, `drop` ends the topic, `tell` is a statement;
`remember`, `forget` and `list` concern notes.
"""

Speaker = Literal["user", "assistant"]
_SPEAKERS: dict[str, Speaker] = {"i": "user", "you": "assistant"}

# Characters of a text that are parsed.
MAX_PARSED_CHARS = 20_000


class RecallRequest(Struct, frozen=True, kw_only=True):
    """A parsed request."""

    kind: Kind
    about: str = ""
    speaker: Speaker | None = None
    """The speaker that the question names."""
    wants_questions: bool = False
    """Whether the question is about the user's earlier questions rather than statements."""
    asks_for_words: bool = False
    """Whether the question is about what a participant said or asked."""


def parse_request(text: str) -> RecallRequest:
    """Parse a user's text."""
    spoken = _PLEASE.sub("", " ".join(text[:MAX_PARSED_CHARS].split()))
    bare = spoken.rstrip(" .!?")
    for pattern, kind in _FORMS:
        if found := pattern.fullmatch(bare):
            return RecallRequest(kind=kind, about=(found.groupdict().get("about") or "").strip())
    if found := _ASKS_FOR_WORDS.match(spoken):
        speaker = _SPEAKERS.get(found["who"].lower())
        wants_questions = speaker != "assistant" and found["verb"].lower().startswith("ask")
        return RecallRequest(
            kind="find",
            about=_topic(spoken[found.end() :]),
            speaker=speaker,
            wants_questions=wants_questions,
            asks_for_words=True,
        )
    if is_question(spoken):
        return RecallRequest(kind="find", about=_topic(spoken))
    return RecallRequest(kind="tell", about=spoken)


def is_question(text: str) -> bool:
    """Tell whether the text is a question."""
    return text.rstrip().endswith(("?", "？")) or bool(_QUESTION.match(text))


def asks_for_words(text: str) -> bool:
    """Tell whether the text asks what a participant said or asked before."""
    return bool(_ASKS_FOR_WORDS.match(_PLEASE.sub("", " ".join(text[:MAX_PARSED_CHARS].split()))))


def _topic(words: str) -> str:
    """Return the topic of a question without its question words."""
    return _FILLER.sub("", words).strip(" .!?,")


_PLEASE = re.compile(
    r"^(?:(?:hey|ok|okay|so|well|please|kindly)[,\s]+|(?:can|could|would|will) you (?:please )?)*",
    re.IGNORECASE,
)
_NAME = r"(?:[,\s]+(?:there|again|aforesaid|assistant|everyone|all))?"


def _form(pattern: str, kind: Kind) -> tuple[re.Pattern[str], Kind]:
    return re.compile(pattern, re.IGNORECASE), kind


_FORMS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    _form(rf"(?:hi|hello|hey|hiya|good (?:morning|afternoon|evening|day)|greetings){_NAME}", "greet"),
    _form(r"(?:thanks|thank you|cheers)(?: (?:a lot|so much|very much))?", "thank"),
    _form(r"(?:bye|goodbye|good ?night|see you(?: (?:later|soon|tomorrow))?)", "leave"),
    _form(r"(?:help|what can (?:you do|i (?:ask|say))|who are you|what are you)", "help"),
    _form(r"(?:never ?mind|forget (?:it|that)|drop it)", "drop"),
    _form(
        r"(?:remember|note(?: down)?|make a note|keep in mind|don'?t forget|do not forget|bear in mind)"
        r"(?: ?: ?| (?:that |this:? |of |for me:? |for me that )?)(?P<about>\S.*)",
        "remember",
    ),
    _form(
        r"(?:delete|erase|remove|forget) (?:everything|all|anything|every ?thing) (?:that )?"
        r"(?:i|we) (?:ever )?(?:said|told you|wrote|mentioned) (?:about|on) (?P<about>\S.*)",
        "delete",
    ),
    _form(r"remind me (?:\S+ ){0,4}?to (?P<about>\S.*)", "remind"),
    _form(
        r"forget (?:about |that |what (?:i|you) (?:said|noted|know) about |the notes? (?:about|on) |"
        r"everything about )?(?P<about>\S.*)",
        "forget",
    ),
    _form(
        r"(?:what (?:do|did) you (?:know|remember|note|have noted)(?: about (?:me|us|my home|our home))?"
        r"|what have you noted|what are my notes|(?:list|show)(?: me)?(?: all)? (?:the |my |your )?notes)",
        "list",
    ),
    _form(
        r"(?:search|look for|look up|find|show me|recall)(?: (?:for|what (?:i|we|you) said about))? "
        r"(?P<about>\S.*)",
        "find",
    ),
)

_ASKS_FOR_WORDS = re.compile(
    r"(?:what|when|where|why|how often|how|did|do you (?:remember|know) (?:what|when|if|whether|that)|have"
    r"|tell me what|tell me when)\s+(?:exactly\s+)?(?:did |have |had |do )?(?P<who>i|we|you)\s+"
    r"(?:ever |already )?(?P<verb>say|said|tell|told|mention|mentioned|talk|talked|speak|spoke|ask|asked"
    r"|write|wrote|discuss|discussed|answer|answered)\b(?:\s+(?:to )?(?:you|me))?"
    r"(?:\s+(?:about|on|of|for|regarding))?",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"(?:what|when|where|who|whom|whose|which|why|how|is|are|was|were|am|do|does|did|have|has|had|can|could|should"
    r"|would|will|shall|may|tell me|remind me)\b",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"^(?:tell me|remind me|do you (?:know|remember)|what(?:'s)?|when|where|who|why|how)\b"
    r"(?:\s+(?:is|was|are|were|do|did|does|about|of|happened|happens|went on|was going on)\b)*\s*",
    re.IGNORECASE,
)
