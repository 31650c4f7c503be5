"""Spoken answers: the text to speak, and how much of an interrupted answer the user heard."""

import re
import unicodedata

from msgspec.structs import replace

from aforesaid._internal.patterns import lazy_pattern
from aforesaid._internal.sentences import CLOSING, sentence_ends
from aforesaid.contracts import ConversationStore, Entry
from aforesaid.dialects import meaning_of
from aforesaid.errors import ConversationNotFound, InvalidInput, MessageNotFound, RevisionConflict, shown
from aforesaid.model.ids import parse_uuid
from aforesaid.model.messages import Message, Speech

# The spoken form of an answer: without markup, cut at a sentence end.
#
# The log contains the full text. The spoken form omits headings, emphasis marks and tables, and ends at a
# sentence end within the limit.


# The most characters: about a minute of speech. The rest can be read.
SPOKEN_LIMIT = 800


def spoken_form(text: str, *, limit: int = SPOKEN_LIMIT) -> str:
    """Return the text to speak, cut at a sentence end within the limit."""
    return cut_at_sentence(without_markup(text), limit)


# Markup

_FENCE = lazy_pattern(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_COMMENT = lazy_pattern(r"<!--.*?-->", re.DOTALL)
_TAG = lazy_pattern(r"</?[a-zA-Z][\w-]*(?:\s[^<>\n]*)?/?>")
_IMAGE = lazy_pattern(r"!\[([^\]\n]*)\]\([^)\n]*\)")
_LINK = lazy_pattern(r"\[([^\]\n]+)\]\([^)\n]*\)|\[([^\]\n]+)\]\[[^\]\n]*\]")
_FOOTNOTE = lazy_pattern(r"\[\^[^\]\n]+\]:?")
_ADDRESS = lazy_pattern(
    r"<?\b(?:https?://|www\.)(?:www\.)?([\w.-]*\w)(?:[/?#:][^\s<>)\]]*[\w/=&-])?>?", re.IGNORECASE
)
_CODE = lazy_pattern(r"(`+)(.+?)\1")
_STRONG = lazy_pattern(r"(\*\*|__|~~)(?=\S)(.+?)(?<=\S)\1", re.DOTALL)
_EMPHASIS = lazy_pattern(
    r"(?<![\w*])(\*)(?=[^\s*])([^*\n]+?)(?<=[^\s*])\1(?![\w*])|(?<!\w)(_)(?=\S)([^_\n]+?)\3(?!\w)"
)
_ESCAPED = lazy_pattern(r"\\([\\`*_{}\[\]()#+\-.!|>~])")
_RULE = lazy_pattern(r"^[ \t]*(?:[-*_=][ \t]*){3,}$")
_HEADING = lazy_pattern(r"^[ \t]*#{1,6}[ \t]+(.*?)[ \t]*#*$")
_ITEM = lazy_pattern(r"^[ \t]*(?:[-*+•‣◦]|(\d{1,3})[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(.*)$")
_QUOTE = lazy_pattern(r"^[ \t]*(?:>[ \t]?)+")
_TABLE_RULE = lazy_pattern(r"^[ \t]*\|?[ \t:|-]*-[ \t:|-]*\|[ \t:|-]*$")
_BLANKS = lazy_pattern(r"[ \t\r\f\v\u00a0]+")

_ENDS = ".!?…。！？؟।:;,，、；："
_OPENING = ' \n"“‘«([（「『'


def without_markup(text: str) -> str:
    """Remove Markdown and HTML; return one line for each paragraph."""
    spoken = _FENCE.sub("\n", _storable(text))  # code is not spoken
    spoken = _TAG.sub("", _COMMENT.sub("", spoken))
    spoken = _LINK.sub(_label, _IMAGE.sub(r"\1", _FOOTNOTE.sub("", spoken)))
    spoken = _ADDRESS.sub(r"\1", spoken)
    lines = [_spoken_line(line) for line in spoken.split("\n")]
    return "\n".join(_BLANKS.sub(" ", line).strip() for line in lines if line.strip())


def _storable(text: str) -> str:
    """Remove characters that stores refuse and voices cannot speak: control characters and lone
    surrogates.
    """
    return "".join(
        character for character in text if character in "\n\t" or unicodedata.category(character) not in _MUTE
    )


_MUTE = ("Cc", "Cs", "Cn", "Co")


def _label(link: re.Match[str]) -> str:
    return link[1] or link[2]


def _spoken_line(line: str) -> str:
    if _RULE.match(line) or _TABLE_RULE.match(line):
        return ""
    line = _QUOTE.sub("", line)
    if heading := _HEADING.match(line):
        return _ended(_plain_words(heading[1]))
    if item := _ITEM.match(line):
        number = f"{item[1]}. " if item[1] else ""
        return number + _ended(_plain_words(item[2]))
    if line.strip().startswith("|"):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        return _ended(_plain_words(", ".join(cell for cell in cells if cell)))
    return _plain_words(line)


def _plain_words(line: str) -> str:
    """Remove the marks of emphasis and code. Escaped and single marks stay."""
    escaped: list[str] = []

    def extract(found: re.Match[str]) -> str:
        escaped.append(found[1])
        return "\x00"

    line = _CODE.sub(r"\2", _ESCAPED.sub(extract, line))
    while (plainer := _EMPHASIS.sub(_inside, _STRONG.sub(r"\2", line))) != line:
        line = plainer
    return re.sub("\x00", lambda _: escaped.pop(0), line)


def _inside(emphasis: re.Match[str]) -> str:
    return emphasis[2] or emphasis[4]


def _ended(line: str) -> str:
    """Add a full stop, so that the voice pauses at a line end."""
    bare = line.rstrip(f" {CLOSING}")
    return line if not bare or bare[-1] in _ENDS else f"{line.rstrip()}."


# Cutting

_CLAUSE_END = lazy_pattern(r"[,;:](?=\s)|\s[–—-](?=\s)|[，、；：]")


def cut_at_sentence(text: str, limit: int = SPOKEN_LIMIT) -> str:
    """Return the text up to the last sentence end within the limit.

    If the first sentence is longer, cut after a clause or a word and add an ellipsis. Cut inside a word only
    if it fills the whole limit.
    """
    if len(text) <= limit:
        return text
    ends = [end for end in sentence_ends(text) if end <= limit]
    if ends:
        return text[: ends[-1]].rstrip()
    length = max(0, limit - 1)
    clauses = [
        found.start() for found in _CLAUSE_END.finditer(text) if length // 2 <= found.start() <= length
    ]
    cut = clauses[-1] if clauses else word_end(text, length) or _whole_characters(text, length)
    # A mark before the ellipsis would read as the end of a sentence.
    return f"{text[:cut].rstrip(_OPENING).rstrip('.,;:')}…"


def word_end(text: str, at: int) -> int:
    """Return where the last whole word up to this place ends; 0 when there is none."""
    at = max(0, min(at, len(text)))
    while 0 < at < len(text) and _parts_word(text, at):
        at -= 1
    return len(text[:at].rstrip())


def _parts_word(text: str, at: int) -> bool:
    """Whether a cut here splits a word, or a number or an address with dots."""
    left, right = text[at - 1], text[at]
    if _joins(right) or left == "\u200d":
        return True
    if right in _INNER:
        return left.isalnum() and text[at + 1 : at + 2].isalnum() and not _is_unspaced(left)
    if left in _INNER:
        return right.isalnum() and text[at - 2 : at - 1].isalnum() and not _is_unspaced(right)
    return _in_word(left) and _in_word(right)


_INNER = ".,:/@'’-_&"


def _in_word(character: str) -> bool:
    """Whether the character is part of a word. Scripts without spaces can be cut anywhere."""
    return (character.isalnum() or _joins(character)) and not _is_unspaced(character)


def _is_unspaced(character: str) -> bool:
    """Whether the script has no spaces: Chinese, Japanese, Thai, Lao, Khmer, Burmese."""
    point = ord(character)
    return (
        0x0E00 <= point <= 0x0EFF
        or 0x1000 <= point <= 0x109F
        or 0x1780 <= point <= 0x17FF
        or (0x2E80 <= point <= 0xA4CF or 0xF900 <= point <= 0xFAFF or 0x20000 <= point <= 0x3FFFF)
    )


def _joins(character: str) -> bool:
    """Whether the character combines with the previous one: an accent, a joiner, a variation selector."""
    return unicodedata.category(character) in ("Mn", "Mc", "Me") or character in "\u200d\ufe0f"


def _whole_characters(text: str, at: int) -> int:
    """Return the place, or the nearest one before it that does not split a combined character."""
    while 0 < at < len(text) and (_joins(text[at]) or text[at - 1] == "\u200d"):
        at -= 1
    return at


# Heard part


def heard_length(spoken: str, heard: str) -> int | None:
    """Return how many characters of `spoken` these words cover, ignoring spaces and marks; None if they
    differ.

    A partial last word does not count.
    """
    found_words = list(_WORD.finditer(spoken))
    words = [found[0].casefold() for found in _WORD.finditer(heard)]
    texts = [found[0].casefold() for found in found_words[: len(words)]]
    if words and words != texts and words[:-1] == texts[:-1] and texts[-1].startswith(words[-1]):
        words.pop()
    if words != texts[: len(words)]:
        return None
    return _with_marks(spoken, found_words[len(words) - 1].end()) if words else 0


def _with_marks(text: str, at: int) -> int:
    """Return the place after the marks that follow a word."""
    while at < len(text) and not (text[at].isspace() or text[at].isalnum() or text[at] in _OPENING):
        at += 1
    return at


_WORD = lazy_pattern(r"\w+")


def heard_after(spoken: str, played: float, length: float) -> int:
    """Estimate how many characters were heard after a part of the playing time, in whole words."""
    if length <= 0 or played >= length:
        return len(spoken)
    return word_end(spoken, int(len(spoken) * max(0.0, played) / length))


# Record how much of a spoken answer the user heard. The log keeps the answer as it was generated.


async def note_interruption(
    store: ConversationStore, conversation_id: str, message_id: str, *, heard: int | str, spoken: str | None
) -> Message:
    """Store with the answer what was spoken of it and where the user interrupted."""
    while True:
        record = await store.get(conversation_id)
        if record is None:
            raise ConversationNotFound(parse_uuid(conversation_id, field="conversation_id"))
        entry = await store.entry(record.id, message_id)
        interrupted = _with_interruption(record.id, message_id, entry, heard=heard, spoken=spoken)
        if entry is not None and interrupted == entry.message:
            return interrupted
        try:
            # Only if nothing changed since the read: the write must not undo a redaction.
            done = await store.replace(record.id, interrupted, expected_revision=record.revision)
        except RevisionConflict:
            continue
        return done.message


def _with_interruption(
    conversation_id: str, message_id: str, entry: Entry | None, *, heard: int | str, spoken: str | None
) -> Message:
    if entry is None or entry.unreadable is not None:
        raise MessageNotFound(conversation_id, message_id)
    message = entry.message
    words = meaning_of(message).text
    if message.role != "assistant" or not words.strip():
        raise InvalidInput(
            f"message_id must be that of an answer with text; got {shown(message_id)}",
            field="message_id",
            value=message_id,
        )

    given = spoken_form(words) if spoken is None else spoken
    cut = _characters(given, heard)
    speech = replace(
        message.speech or Speech(), spoken=given, heard=None if given and cut == len(given) else cut
    )
    return message.with_(speech=speech)


def _characters(spoken: str, heard: int | str) -> int:

    if isinstance(heard, str):
        length = heard_length(spoken, heard)
        if length is None:
            raise InvalidInput(
                f"heard must be the beginning of what was spoken; got {shown(heard)}",
                field="heard",
                value=heard,
            )
        return length
    if isinstance(heard, bool) or not isinstance(heard, int) or not 0 <= heard <= len(spoken):
        raise InvalidInput(
            f"heard must be words, or a number of characters from 0 to {len(spoken)}; got {shown(heard)}",
            field="heard",
            value=heard,
        )
    return word_end(spoken, heard) if heard < len(spoken) else heard
