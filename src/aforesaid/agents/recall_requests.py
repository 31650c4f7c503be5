"""What somebody wants of the recall agent: from their words to a wish. Pure; English. Above: recall.

There is no model here, so this knows a few forms and takes everything else for what it most likely is: a
question to look something up by, or a statement that is kept.
"""

import re
from typing import Literal

from msgspec import Struct

Kind = Literal["greet", "thank", "leave", "help", "remember", "forget", "drop", "list", "find", "tell"]
"""To greet, thank or leave; to be told what can be asked; to make, forget or list notes; to drop the matter;
to find what was said; to tell something."""

Speaker = Literal["user", "assistant"]
_SPEAKERS: dict[str, Speaker] = {"i": "user", "you": "assistant"}

LONGEST_READ = 20_000
"""Characters of what was said that are looked at for its form."""


class RecallRequest(Struct, frozen=True, kw_only=True):
    """What is wanted, and about what."""

    kind: Kind
    about: str = ""
    whose: Speaker | None = None
    """Whose words are asked for, where the question says it."""
    asked: bool = False
    """Whether it is about what the user asked, and not about what was said."""


def parse_request(text: str) -> RecallRequest:
    """The wish in what somebody said."""
    said = _PLEASE.sub("", " ".join(text[:LONGEST_READ].split()))
    bare = said.rstrip(" .!?")
    for pattern, kind in _FORMS:
        if found := pattern.fullmatch(bare):
            return RecallRequest(kind=kind, about=(found.groupdict().get("about") or "").strip())
    if found := _SAID.match(said):
        whose = _SPEAKERS.get(found["who"].lower())
        asked = whose != "assistant" and found["verb"].lower().startswith("ask")
        return RecallRequest(kind="find", about=_topic(said[found.end() :]), whose=whose, asked=asked)
    if is_question(said):
        return RecallRequest(kind="find", about=_topic(said))
    return RecallRequest(kind="tell", about=said)


def is_question(text: str) -> bool:
    """Whether an answer is expected."""
    return text.rstrip().endswith(("?", "？")) or bool(_ASKING.match(text))


def asks_for_words(text: str) -> bool:
    """Whether it asks what somebody said or asked before."""
    return bool(_SAID.match(_PLEASE.sub("", " ".join(text[:LONGEST_READ].split()))))


def _topic(words: str) -> str:
    """What a question is about, without the words that only ask."""
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

_SAID = re.compile(
    r"(?:what|when|where|why|how often|how|did|do you (?:remember|know) (?:what|when|if|whether|that)|have"
    r"|tell me what|tell me when)\s+(?:exactly\s+)?(?:did |have |had |do )?(?P<who>i|we|you)\s+"
    r"(?:ever |already )?(?P<verb>say|said|tell|told|mention|mentioned|talk|talked|speak|spoke|ask|asked"
    r"|write|wrote|discuss|discussed|answer|answered)\b(?:\s+(?:to )?(?:you|me))?"
    r"(?:\s+(?:about|on|of|for|regarding))?",
    re.IGNORECASE,
)
_ASKING = re.compile(
    r"(?:what|when|where|who|whom|whose|which|why|how|is|are|was|were|am|do|does|did|have|has|had|can|could|should"
    r"|would|will|shall|may|tell me|remind me)\b",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"^(?:tell me|remind me|do you (?:know|remember)|what(?:'s)?|when|where|who|why|how)\b"
    r"(?:\s+(?:is|was|are|were|do|did|does|about|of)\b)*\s*",
    re.IGNORECASE,
)
