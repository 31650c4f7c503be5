"""Exact token counts, as OpenAI's models count, offline. Below: `packed`, `words`. Above: `models`.

Pattern and special tokens come from tiktoken's own constructors, the ranks from this package. Text
is ordinary text: what looks like a special token is counted as the characters that it is.

Where exactness ends: nowhere that tiktoken can go, and a little beyond. Its pattern engine gives up on
a million white-space characters in a row; here such a run is counted apart, to the same rule. Should
it give up on anything else, the text is counted in slices, and each cut may shift the count by a few
tokens; that is the only inexact path.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, get_args

from aforesaid.errors import AforesaidError, InvalidInput, MissingExtra, shown
from aforesaid.tokens.packed import Ranks, read_ranks
from aforesaid.tokens.words import Words, is_line

if TYPE_CHECKING:
    import tiktoken

EncodingName = Literal["cl100k_base", "o200k_base"]
ENCODINGS: tuple[EncodingName, ...] = get_args(EncodingName)

COUNTING_EXACTLY = "counting tokens exactly"
"""What needs tiktoken."""
LONG_RUN = 100_000
"""White-space runs from this length on are counted apart: a tenth of what the pattern engine can take."""
SLICE = 50_000
"""How many characters are counted at once after the pattern engine gave up on a text."""

# White space as the pattern engine defines it, which is not quite as Python does, without line ends.
_BLANKS = "\t\v\f \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_BLANK_BYTES = frozenset(re.sub("\u2000-\u200a", "".join(map(chr, range(0x2000, 0x200B))), _BLANKS).encode())


class ExactCounter:
    """Counts as tiktoken does. Loads its encoding at the first count, once per process; see `ready`."""

    def __init__(self, name: EncodingName) -> None:
        if name not in ENCODINGS:
            raise InvalidInput.not_in("encoding", name, ENCODINGS)
        self.name: str = name
        self._encoding: tiktoken.Encoding | None = None
        self._words: Words | None = None

    def __repr__(self) -> str:
        return f"ExactCounter({self.name!r})"

    def count_text(self, text: str) -> int:
        """How many tokens the text is."""
        if not isinstance(text, str):
            raise InvalidInput(f"only text has tokens; got {shown(text)}", field="text", value=text)
        encoding, words = self._encoding, self._words
        if encoding is None or words is None:
            encoding, words = self._load()
        if len(text) > LONG_RUN:
            return count_long(text, encoding)
        return words.total(text) if is_line(text) else len(encoding.encode_ordinary(text))

    def _load(self) -> "tuple[tiktoken.Encoding, Words]":
        self._encoding, self._words = encoding_of(self.name), words_of(self.name)
        return self._encoding, self._words


_words: dict[str, Words] = {}


def words_of(name: str) -> Words:
    """The words that were counted by an encoding, once per process."""
    encoding = encoding_of(name)
    return _words.setdefault(name, Words(lambda text: len(encoding.encode_ordinary(text))))


def count_long(text: str, encoding: "tiktoken.Encoding", *, long_run: int = LONG_RUN) -> int:
    """How many tokens a text is that may hold long white-space runs."""
    total = start = 0
    for run_start, run_end in _lone_runs(text, encoding, long_run):
        total += _count_or_slice(text[start:run_start], encoding)
        total += len(_blanks_of(encoding.name).encode_ordinary(text[run_start:run_end]))
        start = run_end
    return total + _count_or_slice(text[start:], encoding)


def _lone_runs(text: str, encoding: "tiktoken.Encoding", long_run: int) -> Iterator[tuple[int, int]]:
    """Where the pattern takes a long run of blanks as one piece, whatever stands around it.

    A match never goes on from anything else into a blank, so a run starts a piece. The piece ends
    in front of the last blank, which belongs to the word that follows, or where the text ends. A run
    in front of a line end is one piece with it, and no trouble; so is the end of the text where the
    pattern has a rule of its own for it, which takes the line ends before the run as well.
    """
    ends_whole = r"\s++$" in encoding._pat_str
    for run in re.finditer(rf"(?<![{_BLANKS}])[{_BLANKS}]{{{long_run},}}+(?![\r\n])", text):
        if run.end() < len(text):
            yield run.start(), run.end() - 1
        elif not ends_whole:
            yield run.span()


def _count_or_slice(text: str, encoding: "tiktoken.Encoding") -> int:
    try:
        return len(encoding.encode_ordinary(text))
    except BaseException as panic:
        # A panic in the engine is no Exception, and its class cannot be imported.
        if type(panic).__name__ != "PanicException":
            raise
    slices = (text[start : start + SLICE] for start in range(0, len(text), SLICE))
    return sum(len(encoding.encode_ordinary(piece)) for piece in slices)


_loaded: dict[str, "tiktoken.Encoding"] = {}
_loading = threading.Lock()


def encoding_of(name: str) -> "tiktoken.Encoding":
    """tiktoken's encoding of this name, made from the ranks in the package; once per process."""
    return _once(name, lambda: _build(name))


def _blanks_of(name: str) -> "tiktoken.Encoding":
    """The encoding without its pattern, for one piece of blanks: the tokens that can occur in one are few."""
    return _once(f"{name} blanks", lambda: _build_blanks(name))


def _once(key: str, build: Callable[[], "tiktoken.Encoding"]) -> "tiktoken.Encoding":
    if key not in _loaded:
        with _loading:
            if key not in _loaded:
                _loaded[key] = build()
    return _loaded[key]


def _build(name: str) -> "tiktoken.Encoding":
    encoding = require_tiktoken()(**_parameters(name))
    # The engine has its own copy. What counting never looks at again is 200,000 objects, some 24 MB.
    encoding._mergeable_ranks = {}
    _give_back()
    return encoding


def _give_back() -> None:
    """Hand what building took, and is free again, back to the system, where the C library can."""
    import ctypes

    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _build_blanks(name: str) -> "tiktoken.Encoding":
    ranks, _ = read_ranks(name)
    few = {token: rank for token, rank in ranks.items() if len(token) == 1 or _BLANK_BYTES.issuperset(token)}
    return require_tiktoken()(name, pat_str=r"\s+", mergeable_ranks=few, special_tokens={})


def _parameters(name: str) -> dict[str, Any]:
    """What tiktoken's own constructor says, with our ranks where it would fetch its own."""
    from tiktoken_ext import openai_public  # type: ignore[import-untyped]

    constructor: FunctionType = getattr(openai_public, name)
    # A copy of the function that sees another loader: the module itself, which others use, stays as it is.
    offline = FunctionType(
        constructor.__code__, {**constructor.__globals__, "load_tiktoken_bpe": _load_packaged(name)}
    )
    parameters: dict[str, Any] = offline()
    return parameters


def _load_packaged(name: str) -> Callable[..., Ranks]:
    def load(_address: str, expected_hash: str | None = None) -> Ranks:
        ranks, digest = read_ranks(name)
        if expected_hash is not None and expected_hash != digest:
            raise AforesaidError(f"the installed tiktoken has other ranks for {name} than this package")
        return ranks

    return load


def require_tiktoken() -> "type[tiktoken.Encoding]":
    """tiktoken's class of encodings, or an error that says how to get it."""
    try:
        from tiktoken import Encoding
    except ImportError as error:
        raise MissingExtra(COUNTING_EXACTLY, extra="tokens") from error
    return Encoding
