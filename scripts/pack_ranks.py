"""Make the rank files of the package from tiktoken's own `.tiktoken` files.

    python scripts/pack_ranks.py DIRECTORY

DIRECTORY holds `cl100k_base.tiktoken` and `o200k_base.tiktoken`, plain or as `.xz`. Each is checked
against the SHA-256 that the installed tiktoken expects, and what was written is read back and
compared with it, before anything is kept.
"""

import hashlib
import lzma
import sys
from pathlib import Path
from types import FunctionType

from tiktoken_ext import openai_public  # type: ignore[import-untyped]

from aforesaid.tokens.exact import ENCODINGS, as_tiktoken_file, pack, unpack

RANKS = Path(__file__).parent.parent / "src" / "aforesaid" / "tokens" / "ranks"


def main(directory: Path) -> None:
    for name in ENCODINGS:
        plain = tiktoken_file(directory, name)
        check(name, plain)
        packed = pack(plain)
        ranks, _ = unpack(packed)
        check(name, as_tiktoken_file(ranks))
        (RANKS / f"{name}.ranks.xz").write_bytes(packed)
        sys.stdout.write(f"{name}: {len(ranks)} tokens, {len(packed)} bytes\n")


def tiktoken_file(directory: Path, name: str) -> bytes:
    """The `.tiktoken` file of an encoding, unpacked."""
    plain = directory / f"{name}.tiktoken"
    return plain.read_bytes() if plain.exists() else lzma.decompress(Path(f"{plain}.xz").read_bytes())


def check(name: str, plain: bytes) -> None:
    """Stop unless this is the file that tiktoken expects."""
    if hashlib.sha256(plain).hexdigest() != expected_hash(name):
        sys.exit(f"{name}: this is not the file that the installed tiktoken expects")


def expected_hash(name: str) -> str:
    """The SHA-256 in tiktoken's constructor, which hands it to its loader."""
    seen: list[str] = []

    def load(_address: str, expected_hash: str) -> dict[bytes, int]:
        seen.append(expected_hash)
        return {}

    constructor: FunctionType = getattr(openai_public, name)
    FunctionType(constructor.__code__, {**constructor.__globals__, "load_tiktoken_bpe": load})()
    return seen[0]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
