"""The rank files: what an encoding knows, as the package carries it. Below: nothing. Above: `exact`.

A rank file is xz over: 32 bytes, the SHA-256 of the `.tiktoken` file that it was made from; 4 bytes,
the number of tokens, big-endian; the length of each token in rank order, a byte each; the tokens.
Lengths apart from tokens compress better and read faster than each length in front of its token.
`scripts/pack_ranks.py` writes them.
"""

import hashlib
from base64 import b64decode, b64encode
from itertools import accumulate, pairwise

from aforesaid.errors import AforesaidError

Ranks = dict[bytes, int]

_DIGEST = 32
_COUNT = 4


def read_ranks(name: str) -> tuple[Ranks, str]:
    """The ranks of an encoding from the package, and the SHA-256 of the file that they came from."""
    from importlib.resources import files

    packed = files("aforesaid.tokens").joinpath("ranks", f"{name}.ranks.xz")
    return unpack(packed.read_bytes())


def pack(tiktoken_file: bytes) -> bytes:
    """The rank file of a `.tiktoken` file."""
    import lzma

    tokens = _tokens_in_rank_order(tiktoken_file)
    digest = hashlib.sha256(tiktoken_file).digest()
    count = len(tokens).to_bytes(_COUNT, "big")
    plain = digest + count + bytes(map(len, tokens)) + b"".join(tokens)
    return lzma.compress(plain, preset=9 | lzma.PRESET_EXTREME)


def unpack(packed: bytes) -> tuple[Ranks, str]:
    """The ranks in a rank file, and the SHA-256 of the `.tiktoken` file that it was made from."""
    import lzma

    plain = lzma.decompress(packed)
    head = _DIGEST + _COUNT
    first = head + int.from_bytes(plain[_DIGEST:head], "big")
    ends = accumulate(plain[head:first], initial=first)
    ranks = {plain[start:end]: rank for rank, (start, end) in enumerate(pairwise(ends))}
    return ranks, plain[:_DIGEST].hex()


def as_tiktoken_file(ranks: Ranks) -> bytes:
    """The ranks as tiktoken distributes them: a token in base64 and its rank, line by line."""
    return b"".join(b"%s %d\n" % (b64encode(token), rank) for token, rank in ranks.items())


def _tokens_in_rank_order(tiktoken_file: bytes) -> list[bytes]:
    tokens = []
    for expected, line in enumerate(tiktoken_file.splitlines()):
        token, rank = line.split()
        if int(rank) != expected:
            raise AforesaidError(f"rank {expected} is missing: found {int(rank)} in its place")
        tokens.append(b64decode(token))
    return tokens
