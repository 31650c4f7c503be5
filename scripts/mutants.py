"""Check that the tests detect defects: apply forty mutations to `src`, one at a time, and run the tests.

    python scripts/mutants.py [--only NUMBER …] [--quick] [--workers 3] [--table FILE]

Each mutation changes one line in a temporary copy of the repository. The tests of the mutated package run
first, then the whole suite, until a test fails. The exit code is 1 if a mutation survives, and 2 if the text
of a mutation is not in its file exactly once. docs/decisions/0028-test-tiers.md records the results.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", ".bench")
NOT_IN_A_COPY = ("tests/integration/test_name.py", "tests/unit/test_mutants.py")
"""They need git, and unchanged source."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Mutation(NamedTuple):
    """Replace `old` by `new` in `file`, below src/aforesaid. The tests in `first` run before all others."""

    file: str
    old: str
    new: str
    first: str


class Outcome(NamedTuple):
    """The first test that failed, if any, and the seconds until then."""

    test: str | None
    seconds: float


MUTATIONS = [
    Mutation("_internal/bounded.py", "self.used > self.limit", "self.used >= self.limit", "unit/internal"),
    Mutation("agents/loop.py", "may_call=step < self._max_steps", "may_call=True", "unit/agents"),
    Mutation("agents/views.py", "theirs.get(result.call_id, False)", "False", "unit/agents"),
    Mutation("audit/chain.py", "elif line.prev != self._last:", "elif False:", "unit/audit/test_trail.py"),
    Mutation(
        "cli/retention.py",
        "(conversation_id is None) == (older_than is None)",
        "False",
        "integration/cli/test_retention.py",
    ),
    Mutation("contacts/csv_import.py", ' or "").casefold()', ' or "")', "unit/contacts"),
    Mutation(
        "contacts/identification.py",
        "if posting.grade == EXACT:",
        "if True:",
        "unit/contacts/test_identification.py",
    ),
    Mutation(
        "contexts.py",
        "len(snapshot.documents) == FIRST_PAGE.limit",
        "False",
        "unit/notes/test_contexts.py",
    ),
    Mutation(
        "contracts/documents.py",
        "expected is not None and actual != expected",
        "False",
        "contract/stores/test_memory.py",
    ),
    Mutation(
        "dialects/call_ids.py",
        "while (name := self._numbered(stem, number)) in self._reserved:",
        "while (name := self._numbered(stem, number)) in ():",
        "unit/dialects/test_call_ids.py",
    ),
    Mutation(
        "dialects/tombstones.py",
        "tags=tags, speech=None, tokens={}",
        "tags=tags, tokens={}",
        "unit/dialects/test_tombstones.py",
    ),
    Mutation(
        "encryption.py",
        "encrypt(nonce, data, bound)",
        'encrypt(nonce, data, b"")',
        "unit/retention/test_archives.py unit/layers",
    ),
    Mutation(
        "intake/messages.py", 'self._images != "placeholder" or', "True or", "unit/memory/test_images.py"
    ),
    Mutation(
        "layers/audited.py",
        '"denied" if isinstance(error, NotFound) else "failed"',
        '"failed"',
        "contract/layers/test_audited.py",
    ),
    Mutation(
        "layers/cached/memory.py",
        "self._clock() - cached.cached_at >= self._ttl",
        "False",
        "contract/layers/test_cached.py",
    ),
    Mutation(
        "layers/encrypted/heads.py",
        "self.first <= sequence < self.end",
        "self.first <= sequence <= self.end",
        "unit/layers/test_sealed_order.py",
    ),
    Mutation(
        "layers/resilient/connection.py",
        "self._failures >= self._threshold",
        "self._failures > self._threshold",
        "unit/layers/test_breaker.py",
    ),
    Mutation("layers/resilient/operations.py", "TAG in there.message.tags", "True", "unit/layers"),
    Mutation("memory/records.py", "record.last_activity < since", "False", "unit/memory/test_manager.py"),
    Mutation(
        "memory/turns.py",
        "if error is None and self._messages:",
        "if self._messages:",
        "unit/memory/test_manager.py",
    ),
    Mutation(
        "model/conversations.py",
        "record.expires_at <= now",
        "record.expires_at < now",
        "contract/stores/test_memory.py",
    ),
    Mutation("notes/records.py", "self.expires_at <= now", "self.expires_at < now", "unit/notes"),
    Mutation(
        "protocol/documents.py", "abs(value) < 2**53", "abs(value) < 2**99", "unit/protocol/test_problems.py"
    ),
    Mutation(
        "remote/attempts.py",
        "outcome.retryable and (call.repeatable or not outcome.may_have_arrived)",
        "outcome.retryable",
        "unit/remote",
    ),
    Mutation(
        "retention/rules.py", 'in ("tags", "channel") if', 'in ("tags",) if', "unit/retention/test_rules.py"
    ),
    Mutation(
        "retention/erasure.py",
        "document.updated_at <= moment and",
        "",
        "unit/retention integration/retention/test_receipts.py",
    ),
    Mutation(
        "search/dates.py",
        "self.first <= moment <= self.last",
        "self.first <= moment < self.last",
        "unit/search",
    ),
    Mutation("search/bm25.py", "(frequency + 0.5))", "(messages + 0.5))", "unit/search/test_ranking.py"),
    Mutation(
        "server/auth/authenticator.py",
        "self._clock() >= cached.until",
        "False",
        "integration/server/test_tokens.py",
    ),
    Mutation(
        "server/routes/messages.py",
        "found.data[:_DIGEST] != digest",
        "False",
        "integration/server/test_idempotency.py",
    ),
    Mutation("settings/groups.py", "self.ttl_days > LONGEST_TTL.days", "False", "unit/test_settings.py"),
    Mutation(
        "spoken_answers.py",
        "word_end(spoken, heard) if heard < len(spoken) else heard",
        "heard",
        "unit/voice",
    ),
    Mutation(
        "stores/postgres/rows.py", "len(encoded) <= LONGEST_KEY and", "", "contract/stores/test_postgres.py"
    ),
    Mutation(
        "stores/redis/lua/append.lua",
        "if is_conflict and (fresh > 0 or #messages == 0) then",
        "if false then",
        "contract/stores/test_redis.py",
    ),
    Mutation(
        "stores/sqlite/database.py",
        "while done == REINDEX_BATCH:",
        "while False:",
        "unit/stores/test_sqlite_search.py unit/search",
    ),
    Mutation("summaries/service.py", "until + AHEAD - start", "until - start", "unit/summaries"),
    Mutation("telemetry/exposition.py", 'if family.across == "max":', "if False:", "integration/telemetry"),
    Mutation("tokens/counters.py", "LOWEST <= correction <= HIGHEST", "True", "unit/tokens/test_estimate.py"),
    Mutation("transfer/archives/files.py", "sha256_of(payload) != archive.sha256 or", "", "unit/retention"),
    Mutation("windows/build.py", 'if piece.part != "rest":', "if True:", "unit/windows"),
]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=int, nargs="*", metavar="NUMBER", help="numbers of mutations")
    parser.add_argument("--workers", type=int, default=3, help="processes of the whole suite")
    parser.add_argument("--table", type=Path, help="append the rows of a Markdown table to this file")
    parser.add_argument("--quick", action="store_true", help="run the likely tests only")
    options = parser.parse_args()
    missing = [one for one in MUTATIONS if occurrences(one) != 1]
    for mutation in missing:
        print(f"not in {mutation.file} exactly once: {mutation.old}")
    if missing:
        return 2
    survived = 0
    for number, mutation in enumerate(MUTATIONS, 1):
        if options.only and number not in options.only:
            continue
        outcome = check(mutation, 0 if options.quick else options.workers)
        survived += outcome.test is None
        row = _row(number, mutation, outcome)
        print(row, flush=True)
        if options.table is not None:
            with options.table.open("a", encoding="utf-8") as file:
                file.write(f"{row}\n")
    return 1 if survived else 0


def check(mutation: Mutation, workers: int) -> Outcome:
    """Run the likely tests, then all tests unless `workers` is 0, with the mutation applied."""
    started = time.monotonic()
    with _mutated(mutation) as copy:
        first = [f"tests/{path}" for path in mutation.first.split()]
        test = _first_failure(copy, "-n", "0", *first)
        if test is None and workers:
            test = _first_failure(copy, "-n", str(workers))
    return Outcome(test, time.monotonic() - started)


@contextmanager
def _mutated(mutation: Mutation) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="aforesaid-mutant-") as folder:
        copy = Path(folder) / "aforesaid"
        shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
        source = _source(copy, mutation)
        source.write_text(source.read_text("utf-8").replace(mutation.old, mutation.new), "utf-8")
        yield copy


def occurrences(mutation: Mutation) -> int:
    source = _source(ROOT, mutation)
    return source.read_text("utf-8").count(mutation.old) if source.exists() else 0


def _source(root: Path, mutation: Mutation) -> Path:
    return root / "src" / "aforesaid" / mutation.file


def _first_failure(copy: Path, *arguments: str) -> str | None:
    """Run pytest until a test fails, and return the test."""
    ignored = [f"--ignore={file}" for file in NOT_IN_A_COPY]
    command = [sys.executable, "-m", "pytest", "-x", "-q", *ignored, *arguments]
    # The environment's interpreter has this repository installed; the copy has to come first.
    environment = os.environ | {"PYTHONPATH": f"{copy / 'src'}:{copy}"}
    done = subprocess.run(
        [*command, "--randomly-seed", "20260301"],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    failed = FAILED.search(done.stdout)
    return failed[1] if failed else f"pytest ended with {done.returncode}"


def _row(number: int, mutation: Mutation, outcome: Outcome) -> str:
    result = "**survived**" if outcome.test is None else f"`{outcome.test.removeprefix('tests/')}`"
    new = f"`{mutation.new}`" if mutation.new else "(removed)"
    return f"| {number} | `{mutation.file}` | `{mutation.old}` → {new} | {result} |"


if __name__ == "__main__":
    sys.exit(main())
