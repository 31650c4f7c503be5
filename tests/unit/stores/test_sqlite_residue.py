"""Deleted terms leave the pages of a SQLite file: the full-text index, and unused bytes of any page."""

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from aforesaid.stores.sqlite.connections import LockWait, connect, create, prepare
from aforesaid.stores.sqlite.scrubbing import (
    IndexRewrite,
    Level,
    PageFile,
    Scrubber,
    levels_of,
    merges_into_last,
    unused_regions,
)
from tests.random_words import random_word, words_in

OWNER = "0123456789abcde"
TERMS = (1, 3, 10, 40)
BATCHES = (1, 2, 5, 64, 200)


def new_file(path: Path) -> apsw.Connection:
    create(str(path))
    return prepare(str(path), synchronous="normal", wait=LockWait())


class Index:
    """The full-text table of a file, filled and emptied as the store does it, without the log behind it."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.db = new_file(path)
        self.random = random.Random(seed)
        self.live: dict[int, list[str]] = {}
        self.gone: set[str] = set()
        self._key = 0

    def add(self, count: int) -> None:
        with self.db:
            for _ in range(count):
                self._key += 1
                words = [self._word() for _ in range(self.random.choice(TERMS))]
                self.live[self._key] = words
                self.db.execute(
                    "INSERT INTO message_terms (rowid, terms) VALUES (?, ?)", (self._key, self._tagged(words))
                )

    def remove(self, count: int) -> None:
        with self.db:
            for key in self.random.sample(sorted(self.live), min(count, len(self.live))):
                words = self.live.pop(key)
                self.gone.update(words)
                self.db.execute(
                    "INSERT INTO message_terms (message_terms, rowid, terms) VALUES ('delete', ?, ?)",
                    (key, self._tagged(words)),
                )
                self.db.execute("UPDATE index_residue SET messages = messages + 1")

    def rewrite(self, *, meanwhile: bool = False) -> None:
        rewrite, more = IndexRewrite(), True
        while more:
            with self.db:
                following = rewrite.step(self.db)
            more = rewrite.advance(following)
            if meanwhile and more and self.random.random() < 0.2:
                self.add(1)
        assert rewrite.is_done

    def found(self) -> set[str]:
        return words_in(self.path.read_bytes(), self.gone)

    def _word(self) -> str:
        return random_word(self.random)

    def _tagged(self, words: list[str]) -> str:
        return " ".join(OWNER + word for word in words)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def index(path: Path, seed: int) -> Iterator[Index]:
    made = Index(path, seed)
    try:
        yield made
    finally:
        made.db.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_deleted_terms_leave_the_file(path: Path, seed: int) -> None:
    for made in index(path, seed):
        for _ in range(made.random.randint(5, 25)):
            if made.random.random() < 0.5:
                made.add(made.random.choice(BATCHES))
            elif made.live:
                made.remove(made.random.choice(BATCHES))
                made.rewrite(meanwhile=made.random.random() < 0.3)
                assert Scrubber(str(path)).scrub(seconds=60)
                assert made.found() == set()
                made.gone.clear()
        made.db.execute("INSERT INTO message_terms (message_terms) VALUES ('integrity-check')")
        assert made.db.execute("PRAGMA integrity_check").get == "ok"
        for key, words in made.live.items():
            match = made.db.execute(
                "SELECT rowid FROM message_terms WHERE message_terms MATCH ?", (OWNER + words[0],)
            )
            assert key in [row[0] for row in match]


def test_a_small_index_that_was_rewritten_often_still_forgets(path: Path) -> None:
    """FTS5 keeps deleted terms in a merge below levels that are empty by now."""
    for made in index(path, 0):
        for _ in range(80):
            made.add(2)
            made.add(2)
            made.remove(1)
            made.rewrite()
        assert Scrubber(str(path)).scrub(seconds=60)
        assert made.found() == set()


def test_a_step_that_was_undone_is_repeated(path: Path) -> None:
    for made in index(path, 1):
        made.add(300)
        made.remove(100)
        rewrite, more = IndexRewrite(), True
        while more:
            made.db.execute("BEGIN IMMEDIATE")
            rewrite.step(made.db)
            made.db.execute("ROLLBACK")
            with made.db:
                more = rewrite.advance(rewrite.step(made.db))
        assert Scrubber(str(path)).scrub(seconds=60)
        assert made.found() == set()


def test_what_was_deleted_during_a_rewrite_stays_counted(path: Path) -> None:
    for made in index(path, 2):
        made.add(10)
        made.remove(1)
        first = IndexRewrite()
        first.advance(first.step(made.db))
        made.rewrite()  # another process rewrites meanwhile, and settles the count
        made.remove(1)
        while first.advance(first.step(made.db)):
            pass
        made.rewrite()
        assert Scrubber(str(path)).scrub(seconds=60)
        assert made.found() == set()


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([], True),
        ([(0, 2)], True),
        ([(0, 2), (0, 0)], True),
        ([(0, 2), (0, 0), (0, 0)], False),
        ([(0, 1), (0, 1), (0, 0), (0, 0)], True),
        ([(2, 2), (0, 1), (0, 0)], False),
        ([(0, 0), (2, 2), (0, 1)], True),
    ],
)
def test_a_merge_below_empty_levels_does_not_count(levels: list[tuple[int, int]], expected: bool) -> None:
    assert merges_into_last([Level(*level) for level in levels]) is expected


def test_the_levels_of_a_new_index_are_read(path: Path) -> None:
    for made in index(path, 3):
        made.add(5)
        assert levels_of(made.db) == [Level(merging=0, segments=1)]


def with_dirty_pages(path: Path) -> apsw.Connection:
    """A connection to a file with deleted text in unused bytes, as SQLite leaves it."""
    db = connect(str(path), synchronous="normal")
    db.execute("CREATE TABLE IF NOT EXISTS scratch (id INTEGER PRIMARY KEY, text BLOB)")
    chance = random.Random(5)
    for _ in range(4000):
        key = chance.randrange(60)
        db.execute("DELETE FROM scratch WHERE id = ?", (key,))
        if chance.random() < 0.5:
            db.execute(
                "INSERT INTO scratch VALUES (?, ?)", (key, chance.randbytes(chance.choice((80, 700, 1500))))
            )
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with closing(PageFile(str(path))) as file:
        assert file.dirty_pages() != [], "SQLite leaves nothing behind any more: this module may go"
    return db


def dirty_pages(path: Path) -> list[int]:
    with closing(PageFile(str(path))) as file:
        return file.dirty_pages()


def test_unused_bytes_are_cleared_and_rows_are_not(path: Path) -> None:
    new_file(path).close()
    with closing(with_dirty_pages(path)) as db:
        rows = db.execute("SELECT * FROM scratch").fetchall()
        assert Scrubber(str(path)).scrub(seconds=60)
        assert dirty_pages(path) == []
        assert db.execute("SELECT * FROM scratch").fetchall() == rows
        assert db.execute("PRAGMA integrity_check").get == "ok"
        assert Path(f"{path}-wal").stat().st_size == 0


def test_pages_in_the_memory_of_others_do_not_bring_them_back(path: Path) -> None:
    new_file(path).close()
    with closing(with_dirty_pages(path)) as db:
        db.execute("SELECT * FROM scratch").fetchall()  # this connection has all pages in memory now
        assert Scrubber(str(path)).scrub(seconds=60)
        db.execute("UPDATE scratch SET text = text")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert dirty_pages(path) == []


def test_a_file_that_others_write_is_cleared_without_damage(path: Path) -> None:
    """A writer gets in between whenever it can; what it writes is whole."""
    new_file(path).close()
    with closing(with_dirty_pages(path)) as db, closing(connect(str(path), synchronous="normal")) as other:
        chance = random.Random(7)
        for number in range(40):
            other.execute("UPDATE scratch SET text = ? WHERE id = ?", (chance.randbytes(900), number))
            assert Scrubber(str(path)).scrub(seconds=60)
            assert other.execute("PRAGMA integrity_check").get == "ok"
        assert db.execute("PRAGMA integrity_check").get == "ok"


def test_a_page_that_is_no_page_of_a_tree_has_no_unused_bytes() -> None:
    assert unused_regions(memoryview(bytes(4096)), 4096) == []
    for kind in (2, 5, 10, 13):
        for seed in range(200):
            page = bytes([kind]) + random.Random(seed).randbytes(4095)
            for start, end in unused_regions(memoryview(page), 4096):
                assert 0 < start <= end <= 4096
