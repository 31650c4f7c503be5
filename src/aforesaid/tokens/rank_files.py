"""The rank files: the tokens of an encoding, as the package contains them.

A rank file is xz over: 32 bytes, the SHA-256 of the original `.tiktoken` file; 4 bytes, the number of
tokens, big-endian; the length of each token in rank order, a byte each; the tokens. Separate lengths
compress better and read faster than a length before each token. `scripts/pack_ranks.py` writes these
files.
"""

import hashlib
from base64 import b64decode, b64encode
from itertools import accumulate, pairwise

from aforesaid.errors import AforesaidError

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
