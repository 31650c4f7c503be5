"""Exact token counts of OpenAI's models, offline.

Pattern and special tokens come from tiktoken's constructors, the ranks from this package. Special tokens
in a text are counted as ordinary characters.

Counts equal tiktoken's. Its regex engine fails on a million consecutive white-space characters; such a run
is counted separately by the same rule. If the engine fails on another text, the text is counted in slices,
and each cut may change the count by a few tokens. That is the only inexact path.

A line is counted word by word, with cached counts. An encoding splits a text into pieces by a pattern and
encodes each alone. In a line of words separated by single spaces, only the first character of a piece can be
a space. So the line has as many tokens as its words, each with its preceding space. Most words repeat. A
lookup avoids the encoding's tables, which exceed the processor's cache, and avoids releasing the interpreter
lock.
"""

import hashlib
import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import accumulate, pairwise
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, get_args

from aforesaid.errors import AforesaidError, InvalidInput, MissingExtra, shown

if TYPE_CHECKING:
    import tiktoken


# The rank files: the tokens of an encoding, as the package contains them.
#
# A rank file is xz over: 32 bytes, the SHA-256 of the original `.tiktoken` file; 4 bytes, the number of
# tokens, big-endian; the length of each token in rank order, a byte each; the tokens. Separate lengths
# compress better and read faster than a length before each token. `scripts/pack_ranks.py` writes these
# files.


Ranks = dict[bytes, int]

_DIGEST = 32
_COUNT = 4


def read_ranks(name: str) -> tuple[Ranks, str]:
    """Return the packaged ranks of an encoding, and the SHA-256 of their original file."""
    from importlib.resources import files

    packed = files("aforesaid.tokens").joinpath("ranks", f"{name}.ranks.xz")
    return unpack(packed.read_bytes())


def pack(tiktoken_file: bytes) -> bytes:
    """Convert a `.tiktoken` file to a rank file."""
    import lzma

    tokens = _tokens_in_rank_order(tiktoken_file)
    digest = hashlib.sha256(tiktoken_file).digest()
    count = len(tokens).to_bytes(_COUNT, "big")
    plain = digest + count + bytes(map(len, tokens)) + b"".join(tokens)
    return lzma.compress(plain, preset=9 | lzma.PRESET_EXTREME)


def unpack(packed: bytes) -> tuple[Ranks, str]:
    """Return the ranks of a rank file, and the SHA-256 of the original `.tiktoken` file."""
    import lzma

    plain = lzma.decompress(packed)
    head = _DIGEST + _COUNT
    first = head + int.from_bytes(plain[_DIGEST:head], "big")
    ends = accumulate(plain[head:first], initial=first)
    ranks = {plain[start:end]: rank for rank, (start, end) in enumerate(pairwise(ends))}
    return ranks, plain[:_DIGEST].hex()


def as_tiktoken_file(ranks: Ranks) -> bytes:
    """Return the ranks in tiktoken's format: a token in base64 and its rank per line."""
    return b"".join(b"%s %d\n" % (b64encode(token), rank) for token, rank in ranks.items())


def _tokens_in_rank_order(tiktoken_file: bytes) -> list[bytes]:
    tokens = []
    for expected, line in enumerate(tiktoken_file.splitlines()):
        token, rank = line.split()
        if int(rank) != expected:
            raise AforesaidError(f"rank {expected} is missing: found {int(rank)} in its place")
        tokens.append(b64decode(token))
    return tokens


LONGEST_CACHED = 40
MOST_CACHED = 50_000


class WordCounter:
    """Counts lines with cached counts of their words."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._first = _CountCache(count)
        self._others = _CountCache(lambda word: count(f" {word}"))

    def total(self, line: str) -> int:
        """Return the count of a line that satisfies `is_plain_line`."""
        first, *others = line.split(" ")
        return self._first[first] + sum(map(self._others.__getitem__, others))


class _CountCache(dict[str, int]):
    """A bounded cache of word counts that skips very long words."""

    def __init__(self, count: Callable[[str], int]) -> None:
        super().__init__()
        self._count = count

    def __missing__(self, word: str) -> int:
        count = self._count(word)
        if len(word) <= LONGEST_CACHED:
            # Clearing everything is cheaper per lookup than LRU bookkeeping.
            if len(self) >= MOST_CACHED:
                self.clear()
            self[word] = count
        return count


def is_plain_line(text: str) -> bool:
    """Return whether the only white space is single spaces."""
    return text.isprintable() and "  " not in text


EncodingName = Literal["cl100k_base", "o200k_base"]
ENCODINGS: tuple[EncodingName, ...] = get_args(EncodingName)

# The feature that requires tiktoken.
COUNTING_EXACTLY = "counting tokens exactly"
# White-space runs from this length are counted separately: a tenth of the regex engine's limit.
LONG_RUN = 100_000
# Characters per slice after the regex engine failed.
SLICE = 50_000

# White space as defined by the regex engine, which differs slightly from Python's, without line ends.
_BLANKS = "\t\v\f \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_BLANK_BYTES = frozenset(re.sub("\u2000-\u200a", "".join(map(chr, range(0x2000, 0x200B))), _BLANKS).encode())


class ExactCounter:
    """Counts like tiktoken. Loads its encoding on the first count, once per process; see `models.ready`."""

    def __init__(self, name: EncodingName) -> None:
        if name not in ENCODINGS:
            raise InvalidInput.not_in("encoding", name, ENCODINGS)
        self.name: str = name
        self._encoding: tiktoken.Encoding | None = None
        self._word_counter: WordCounter | None = None

    def __repr__(self) -> str:
        return f"ExactCounter({self.name!r})"

    def count_text(self, text: str) -> int:
        """Return the number of tokens."""
        if not isinstance(text, str):
            raise InvalidInput(f"only text has tokens; got {shown(text)}", field="text", value=text)
        encoding, word_counter = self._encoding, self._word_counter
        if encoding is None or word_counter is None:
            encoding, word_counter = self._load()
        if len(text) > LONG_RUN:
            return count_long(text, encoding)
        return word_counter.total(text) if is_plain_line(text) else len(encoding.encode_ordinary(text))

    @property
    def is_loaded(self) -> bool:
        """Whether this process has the encoding's tables."""
        return self.name in _word_counter

    def _load(self) -> "tuple[tiktoken.Encoding, WordCounter]":
        self._encoding, self._word_counter = encoding_of(self.name), word_counter_of(self.name)
        return self._encoding, self._word_counter


_word_counter: dict[str, WordCounter] = {}


def word_counter_of(name: str) -> WordCounter:
    """Return the cached word counts of an encoding, one per process."""
    encoding = encoding_of(name)
    return _word_counter.setdefault(name, WordCounter(lambda text: len(encoding.encode_ordinary(text))))


def count_long(text: str, encoding: "tiktoken.Encoding", *, long_run: int = LONG_RUN) -> int:
    """Count a text that may contain long white-space runs."""
    total = start = 0
    for run_start, run_end in _lone_runs(text, encoding, long_run):
        total += _count_or_slice(text[start:run_start], encoding)
        total += len(_blank_encoding(encoding.name).encode_ordinary(text[run_start:run_end]))
        start = run_end
    return total + _count_or_slice(text[start:], encoding)


def _lone_runs(text: str, encoding: "tiktoken.Encoding", long_run: int) -> Iterator[tuple[int, int]]:
    """Yield the long runs of blanks that the pattern matches as one piece in any context.

    A match never continues from another character into a blank, so a run starts a piece. The piece ends
    before the last blank, which belongs to the following word, or at the end of the text. A run before a
    line end forms one piece with it and is safe. So is the end of the text if the pattern has its own rule
    for it, which includes the preceding line ends.
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
        # A Rust panic derives from BaseException, and its class cannot be imported.
        if type(panic).__name__ != "PanicException":
            raise
    slices = (text[start : start + SLICE] for start in range(0, len(text), SLICE))
    return sum(len(encoding.encode_ordinary(piece)) for piece in slices)


_loaded: dict[str, "tiktoken.Encoding"] = {}
_loading = threading.Lock()


def encoding_of(name: str) -> "tiktoken.Encoding":
    """Return tiktoken's encoding, built from the packaged ranks once per process."""
    return _once(name, lambda: _build(name))


def _blank_encoding(name: str) -> "tiktoken.Encoding":
    """Return an encoding without its pattern, for runs of blanks; it needs only few tokens."""
    return _once(f"{name} blanks", lambda: _build_blanks(name))


def _once(key: str, build: Callable[[], "tiktoken.Encoding"]) -> "tiktoken.Encoding":
    if key not in _loaded:
        with _loading:
            if key not in _loaded:
                _loaded[key] = build()
    return _loaded[key]


def _build(name: str) -> "tiktoken.Encoding":
    encoding = require_tiktoken()(**_parameters(name))
    # The engine has its own copy. Dropping these 200,000 objects frees about 24 MB.
    encoding._mergeable_ranks = {}
    _release_memory()
    return encoding


def _release_memory() -> None:
    """Return freed memory to the operating system, where the C library supports it."""
    import ctypes

    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _build_blanks(name: str) -> "tiktoken.Encoding":
    ranks, _ = read_ranks(name)
    blank_ranks = {
        token: rank for token, rank in ranks.items() if len(token) == 1 or _BLANK_BYTES.issuperset(token)
    }
    return require_tiktoken()(name, pat_str=r"\s+", mergeable_ranks=blank_ranks, special_tokens={})


def _parameters(name: str) -> dict[str, Any]:
    """Call tiktoken's constructor with the packaged ranks instead of a download."""
    from tiktoken_ext import openai_public  # type: ignore[import-untyped]

    constructor: FunctionType = getattr(openai_public, name)
    # Copy the function with another loader in its globals, instead of patching the shared module.
    offline = FunctionType(
        constructor.__code__, {**constructor.__globals__, "load_tiktoken_bpe": _load_packaged(name)}
    )
    parameters: dict[str, Any] = offline()
    return parameters


def _load_packaged(name: str) -> Callable[..., Ranks]:
    def load(_address: str, expected_hash: str | None = None) -> Ranks:
        ranks, digest = read_ranks(name)
        if expected_hash is not None and expected_hash != digest:
            raise AforesaidError(f"the ranks of the installed tiktoken for {name} differ from this package's")
        return ranks

    return load


def require_tiktoken() -> "type[tiktoken.Encoding]":
    """Return tiktoken's `Encoding` class. Raise `MissingExtra` if it is not installed."""
    try:
        from tiktoken import Encoding
    except ImportError as error:
        raise MissingExtra(COUNTING_EXACTLY, extra="tokens") from error
    return Encoding
