"""Exact counters count what tiktoken counts: on any text, at any size, without a network."""

import asyncio
import random
import subprocess
import sys
import threading
import time

import pytest
import tiktoken

from aforesaid.contracts import TokenCounter
from aforesaid.errors import InvalidInput, MissingExtra
from aforesaid.tokens import ExactCounter, exact, ready

SCRIPTS = (
    (0x20, 0x7F),
    (0xA0, 0x250),
    (0x300, 0x370),  # combining marks
    (0x370, 0x400),
    (0x400, 0x530),
    (0x590, 0x600),
    (0x600, 0x700),
    (0x900, 0x980),
    (0xE00, 0xE80),
    (0x1100, 0x1200),
    (0x1E00, 0x2000),
    (0x2000, 0x2070),
    (0x2190, 0x2C00),
    (0x3040, 0x3100),
    (0x4E00, 0xA000),
    (0xAC00, 0xD7A4),
    (0xE000, 0xE100),  # private use
    (0xFE00, 0xFE10),  # variation selectors
    (0xFF00, 0xFFF0),
    (0x10000, 0x10100),
    (0x1D400, 0x1D800),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x20100),
)
BLANKS = " \t\n\r\v\f\x1c\x85\xa0\u1680\u2003\u2028\u3000"
WORDS = (
    *("the", "I'll", "we're", "DON'T", "café", "naïve", "Straße", "привет", "你好", "こんにちは", "안녕"),
    *("مرحبا", "नमस्ते", "สวัสดี", "def", "return;", "{}", "[]", "=>", "!=", "//", "camelCase", "HTTPServer"),
    *("<|endoftext|>", "<|im_start|>", "12345", "3.14", "2024-01-01", "👨\u200d👩\u200d👧", "🇩🇪", "❤️"),
    "    if x:\n\t\treturn y\r\n",
    "'s",
    "'LL",
    "/",
    "\n\n",
    "\ud83d",
)


def random_text(rng: random.Random) -> str:
    return "".join(_random_stretch(rng) for _ in range(rng.randint(1, 8)))


def _random_stretch(rng: random.Random) -> str:
    match rng.randrange(5):
        case 0:
            return "".join(rng.choices(BLANKS, k=rng.randint(1, 6)))
        case 1:
            low, high = rng.choice(SCRIPTS)
            return "".join(chr(rng.randrange(low, high)) for _ in range(rng.randint(1, 12)))
        case 2:
            return rng.choice(BLANKS + "aA1é漢!=\u0301😀") * rng.choice((1, 2, 3, 7, 40, 200))
        case 3:
            return "".join(rng.choices("abcdefghijklmnopqrstuvwxyzABCXYZ", k=rng.choice((5, 30, 300))))
        case _:
            return rng.choice((" ", "")).join(rng.choices(WORDS, k=rng.randint(1, 10)))


def assert_equal_on(texts: int, reference: tiktoken.Encoding, *, seed: int) -> None:
    counter, rng = ExactCounter(reference.name), random.Random(seed)  # type: ignore[arg-type]
    for _ in range(texts):
        text = random_text(rng)
        assert counter.count_text(text) == len(reference.encode_ordinary(text)), repr(text)


def test_equals_tiktoken_on_random_text(reference: tiktoken.Encoding) -> None:
    assert_equal_on(2_000, reference, seed=1)


@pytest.mark.exhaustive
def test_equals_tiktoken_on_a_hundred_thousand_random_texts(reference: tiktoken.Encoding) -> None:
    assert_equal_on(100_000, reference, seed=2)


def random_line(rng: random.Random) -> str:
    """Anything printable with single spaces between: words, numbers, contractions, signs, scripts, marks."""
    signs = "".join(map(chr, range(33, 127)))
    chunks = (
        rng.choice(WORDS),
        rng.choice(
            ("'s", "'LL", "don't", "I'M", "x'tT", "3.14", "1234567", "e\u0301", "\u0301", "/", "...", "#")
        ),
        "".join(rng.choices(signs, k=rng.randint(1, 9))),
        "".join(chr(rng.randrange(*rng.choice(SCRIPTS))) for _ in range(rng.randint(1, 6))),
        "".join(rng.choices("abcXYZ019", k=rng.randint(1, 60))),
    )
    line = " ".join(rng.choices(chunks, k=rng.randint(1, 8)))
    return rng.choice(("", " ")) + line + rng.choice(("", " "))


def assert_words_agree(texts: int, reference: tiktoken.Encoding, *, seed: int) -> None:
    counted, rng, lines = exact.word_counter_of(reference.name), random.Random(seed), 0
    for _ in range(texts):
        line = random_line(rng)
        if exact.is_plain_line(line):
            lines += 1
            assert counted.total(line) == len(reference.encode_ordinary(line)), repr(line)
    assert lines > texts / 2


def test_words_add_up_to_what_tiktoken_counts(reference: tiktoken.Encoding) -> None:
    assert_words_agree(5_000, reference, seed=4)


@pytest.mark.exhaustive
def test_words_add_up_in_many_texts(reference: tiktoken.Encoding) -> None:
    assert_words_agree(30_000, reference, seed=5)


@pytest.mark.parametrize("text", ["a  b", "a\nb", "a\tb", "a\u00a0b", "a\u3000b", "\x1ca", "a\u2028b"])
def test_other_white_space_makes_no_line(text: str) -> None:
    assert not exact.is_plain_line(text)


def test_words_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "MOST_CACHED", 10)
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text)

    counted = exact.WordCounter(count)
    assert counted.total("door door the door") == 18
    assert asked == ["door", " door", " the"]
    assert counted.total(" ".join(chr(97 + n) * 3 for n in range(26))) == 26 * 3 + 25
    asked.clear()
    assert counted.total("first " + "x" * 1_000) == counted.total("first " + "x" * 1_000) == 1_006
    assert asked == ["first", " " + "x" * 1_000, " " + "x" * 1_000]
    assert counted.total("x door") == 6
    assert " door" in asked, "the words met first made room for others"


def test_long_runs_are_cut_where_the_pattern_cuts(reference: tiktoken.Encoding) -> None:
    """With runs of three held to be long, cutting decides the count of nearly every text."""
    rng, cut = random.Random(3), 0
    for _ in range(2_000):
        text = _blank_heavy(rng)
        cut += any(True for _ in exact._lone_runs(text, reference, 3))
        assert exact.count_long(text, reference, long_run=3) == len(reference.encode_ordinary(text)), repr(
            text
        )
    assert cut > 1_000


@pytest.mark.exhaustive
def test_long_runs_are_cut_where_the_pattern_cuts_in_a_hundred_thousand_texts(
    reference: tiktoken.Encoding,
) -> None:
    rng = random.Random(4)
    for _ in range(100_000):
        text = _blank_heavy(rng)
        assert exact.count_long(text, reference, long_run=3) == len(reference.encode_ordinary(text)), repr(
            text
        )


def _blank_heavy(rng: random.Random) -> str:
    stretches = (
        "".join(rng.choices(BLANKS, weights=[9, 4] + [1] * 11, k=rng.randint(0, 9))) for _ in range(6)
    )
    return "".join(stretch + rng.choice((*WORDS, "a", "1", "!", "\u0301", "")) for stretch in stretches)


SIMPLE = ("a", " ", "\n", "é", "漢", "aB漢1 \n")


@pytest.mark.slow
@pytest.mark.parametrize("unit", SIMPLE)
def test_a_long_run(unit: str, reference: tiktoken.Encoding) -> None:
    assert_equal_on_a_run_of(unit, reference, size=2 * exact.LONG_RUN, seconds=4)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "unit", [*SIMPLE, "A", "😀", "=", "1", " \t", "\t", "\u3000", "\xa0", "a ", "\u0301", "' ", "\n "]
)
def test_a_megabyte(unit: str, reference: tiktoken.Encoding) -> None:
    """tiktoken can encode it, if only just: its engine takes 999,998 blanks and not one more."""
    assert_equal_on_a_run_of(unit, reference, size=999_990, seconds=20)


def assert_equal_on_a_run_of(unit: str, reference: tiktoken.Encoding, *, size: int, seconds: float) -> None:
    text = (unit * size)[:size]
    began = time.process_time()
    count = _counter(reference).count_text(text)
    assert time.process_time() - began < seconds
    assert count == len(reference.encode_ordinary(text))


@pytest.mark.parametrize(
    ("unit", "tail"),
    [
        (" ", "x"),
        pytest.param(" ", "", marks=pytest.mark.exhaustive),
        pytest.param("\t", "!", marks=pytest.mark.exhaustive),
        pytest.param("\u3000", "漢", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.slow
def test_more_blanks_than_tiktoken_can_take(unit: str, tail: str, reference: tiktoken.Encoding) -> None:
    """The engine gives up, but what the pattern says is clear: all blanks but the last are one piece."""
    alone = 1_200_000 - len(tail)
    expected = len(reference._encode_single_piece(unit * alone))
    expected += len(reference.encode_ordinary(unit + tail)) if tail else 0
    assert _counter(reference).count_text(unit * 1_200_000 + tail) == expected


@pytest.mark.slow
def test_a_panic_in_the_engine_is_no_crash(references: dict[str, tiktoken.Encoding]) -> None:
    """Without the care for long runs: the engine does give up, and a count comes nevertheless."""
    o200k, text = references["o200k_base"], " " * 1_000_000
    with pytest.raises(BaseException, match="StackOverflow"):
        o200k.encode_ordinary(text)
    sliced = exact._count_or_slice(text, o200k)
    assert sliced == pytest.approx(_counter(o200k).count_text(text), abs=1_000_000 / exact.SLICE * 2)


def test_other_interruptions_come_through(references: dict[str, tiktoken.Encoding]) -> None:
    class Interrupted(tiktoken.Encoding):
        def encode_ordinary(self, text: str) -> list[int]:
            raise KeyboardInterrupt

    interrupted = Interrupted("x", pat_str=".", mergeable_ranks={b"x": 0}, special_tokens={})
    with pytest.raises(KeyboardInterrupt):
        exact._count_or_slice("text", interrupted)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["\ud83d", "a\udc00b", "\ud83d\ude00", "\udfff" * 200_000, "é\ud800 x" * 50_000]
)
def test_half_of_a_surrogate_pair_counts_as_tiktoken_replaces_it(
    text: str, reference: tiktoken.Encoding
) -> None:
    assert _counter(reference).count_text(text) == len(reference.encode_ordinary(text))


def test_special_tokens_in_text_are_ordinary_text(reference: tiktoken.Encoding) -> None:
    text = "<|endoftext|>"
    assert _counter(reference).count_text(text) == len(reference.encode(text, disallowed_special=())) > 1


def test_nothing_costs_nothing(reference: tiktoken.Encoding) -> None:
    assert _counter(reference).count_text("") == 0


def test_what_the_engine_has_copied_is_let_go(reference: tiktoken.Encoding) -> None:
    """Ranks are 200,000 objects, and counting does not look at them."""
    assert exact.encoding_of(reference.name)._mergeable_ranks == {}


def test_pattern_and_special_tokens_are_those_of_tiktoken(reference: tiktoken.Encoding) -> None:
    ours = exact.encoding_of(reference.name)
    assert ours._pat_str == reference._pat_str
    assert ours._special_tokens == reference._special_tokens
    assert exact._parameters(reference.name)["mergeable_ranks"] == reference._mergeable_ranks


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", exact.ENCODINGS)
def test_loads_without_a_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_loaded", {})
    assert ExactCounter(name).count_text("hello world") == 2  # type: ignore[arg-type]


def test_the_module_of_tiktoken_stays_as_it_was() -> None:
    from tiktoken.load import load_tiktoken_bpe
    from tiktoken_ext import openai_public  # type: ignore[import-untyped]

    exact._build("cl100k_base")
    assert openai_public.load_tiktoken_bpe is load_tiktoken_bpe


def _watch_builds(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads in which encodings are built from now on."""
    builders: list[threading.Thread] = []
    build = exact._build

    def watched(name: str) -> tiktoken.Encoding:
        builders.append(threading.current_thread())
        return build(name)

    monkeypatch.setattr(exact, "_build", watched)
    return builders


def test_threads_that_meet_load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_loaded", {})
    loaders = _watch_builds(monkeypatch)
    counters = [ExactCounter("cl100k_base") for _ in range(8)]
    threads = [threading.Thread(target=counter.count_text, args=("x",)) for counter in counters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaders) == 1


async def test_ready_loads_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_loaded", {})
    loaders = _watch_builds(monkeypatch)
    counter = ExactCounter("cl100k_base")
    await asyncio.gather(ready(counter), ready(counter))
    assert counter.count_text("hello world") == 2
    assert len(loaders) == 1
    assert loaders[0] is not threading.current_thread()


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cl100k_base, o200k_base; got 'p50k_base'"):
        ExactCounter("p50k_base")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [None, b"bytes", 7, ["a"]])
def test_what_is_not_text_is_refused(text: object) -> None:
    with pytest.raises(InvalidInput, match="only text has tokens"):
        ExactCounter("cl100k_base").count_text(text)  # type: ignore[arg-type]


def test_without_tiktoken_the_error_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_loaded", {})
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(MissingExtra, match=r"pip install 'aforesaid\[tokens\]'"):
        ExactCounter("o200k_base").count_text("x")


def test_importing_and_making_counters_does_not_import_tiktoken() -> None:
    code = (
        "import sys, aforesaid.tokens as t; t.ExactCounter('o200k_base'); sys.exit('tiktoken' in sys.modules)"
    )
    paths = {"PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=paths, check=False).returncode == 0


def _counter(reference: tiktoken.Encoding) -> TokenCounter:
    return ExactCounter(reference.name)  # type: ignore[arg-type]
