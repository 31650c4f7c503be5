"""How well and how fast clients are identified: `python -m benchmarks.clients`.

The sentences and contacts are our own (`tests/acceptance/clients`). They fall into a development half, which
the rules were tuned on, and a held-out half, which they were not, by a hash of the sentence.
"""

import asyncio
import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

import aforesaid
from aforesaid.contacts import word_lists
from aforesaid.contacts.identification import identify
from aforesaid.contacts.name_index import NameIndex
from aforesaid.model.clock import system_clock
from aforesaid.model.contacts import ClientMatch, Contact
from aforesaid.model.ids import new_id

DATA = Path(__file__).parent.parent / "tests" / "acceptance" / "clients"


class Tally(Struct, kw_only=True):
    """How a half came out."""

    sentences: int = 0
    naming_one: int = 0
    answered: int = 0
    right: int = 0
    several: int = 0
    several_right: int = 0
    nobody: int = 0
    nobody_right: int = 0
    false_names: int = 0
    """Sentences without a client for which one was identified."""

    @property
    def precision(self) -> float:
        return self.right / self.answered if self.answered else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.naming_one if self.naming_one else 1.0


def half_of(text: str) -> str:
    """The half that a sentence belongs to, by the first byte of its SHA-256."""
    return "development" if hashlib.sha256(text.encode()).digest()[0] % 2 == 0 else "held-out"


def contact(fields: dict[str, Any]) -> Contact:
    now = system_clock()
    given = fields | {"nicknames": tuple(fields.get("nicknames", ()))}
    return Contact(id=new_id(), created_at=now, updated_at=now, **given)


def load() -> tuple[NameIndex, list[dict[str, Any]]]:
    contacts = json.loads((DATA / "contacts.json").read_text("utf-8"))
    sentences = json.loads((DATA / "sentences.json").read_text("utf-8"))
    return NameIndex(contact(fields) for fields in contacts), sentences


LANGUAGES = ("en", "de", "it", "es")


def load_spoken() -> tuple[NameIndex, list[dict[str, Any]]]:
    """Return the set of short sentences in four languages, with corrections and misheard names.

    Each line has the client, the candidates joined by " + ", or "-"; then the sentence, after "~" if heard.
    """
    names = (DATA / "spoken" / "contacts.txt").read_text("utf-8").splitlines()
    sentences: list[dict[str, Any]] = []
    for language in LANGUAGES:
        for line in (DATA / "spoken" / f"{language}.tsv").read_text("utf-8").splitlines():
            label, text = line.split("\t")
            named: dict[str, Any] = {} if label == "-" else {"client": label}
            if " + " in label:
                named = {"candidates": label.split(" + ")}
            heard = text.startswith("~")
            sentences.append({"text": text.lstrip("~"), "by_ear": heard, "language": language} | named)
    return NameIndex(contact({"name": name}) for name in names), sentences


def load_nobody() -> tuple[NameIndex, list[dict[str, Any]]]:
    """Return sentences that name no client, though they have words or names of the contacts of `load_spoken`:
    idioms, famous people, relatives, pets, places.
    """
    people, _ = load_spoken()
    lines = (DATA / "nobody.tsv").read_text("utf-8").splitlines()
    told = (line.split("\t") for line in lines)
    return people, [
        {"text": text.lstrip("~"), "by_ear": text.startswith("~"), "language": language}
        for language, text in told
    ]


def judge(index: NameIndex, sentences: list[dict[str, Any]], *, shown: bool = False) -> Tally:
    tally = Tally()
    for sentence in sentences:
        match = identify(sentence["text"], index, by_ear=sentence.get("by_ear", False))
        good = _count(tally, sentence, match)
        if shown and not good:
            print(f"  {_told(match)} <- {sentence}")
    return tally


def _count(tally: Tally, sentence: dict[str, Any], match: ClientMatch | None) -> bool:
    client = None if match is None or match.client is None else match.client.name
    tally.sentences += 1
    tally.answered += client is not None
    if "client" in sentence:
        tally.naming_one += 1
        tally.right += client == sentence["client"]
        return bool(client == sentence["client"])
    if "candidates" in sentence:
        named = set() if match is None else {one.contact.name for one in match.candidates}
        good = client is None and set(sentence["candidates"]) <= named
        tally.several += 1
        tally.several_right += good
        return good
    tally.nobody += 1
    tally.false_names += client is not None
    tally.nobody_right += match is None
    return client is None


def _told(match: ClientMatch | None) -> str:
    if match is None:
        return "nobody"
    listed = [f"{one.contact.name} {one.confidence}" for one in match.candidates]
    return f"{'one' if match.client else 'several'} {listed}"


def many(count: int) -> list[Contact]:
    """Generated contacts: common given and family names put together, and made-up family names."""
    chance = random.Random(7)
    given = sorted(word_lists.FEMALE | word_lists.MALE)
    family = sorted(word_lists.FAMILY)
    made_up = [
        chance.choice(family) + chance.choice(("berg", "son", "mann", "ez", "ova", "stra"))
        for _ in range(4000)
    ]
    return [
        contact({"name": f"{chance.choice(given)} {chance.choice((*family, *made_up))}".title()})
        for _ in range(count)
    ]


def speed(sentences: list[dict[str, Any]], count: int) -> tuple[float, list[float]]:
    """Seconds to build the index of so many contacts; milliseconds for each sentence, the best of three."""
    contacts = many(count)
    begun = time.perf_counter()
    index = NameIndex(contacts)
    built = time.perf_counter() - begun
    return built, sorted(min(_timed(sentence["text"], index) for _ in range(3)) for sentence in sentences)


def _timed(text: str, index: NameIndex) -> float:
    begun = time.perf_counter()
    identify(text, index)
    return (time.perf_counter() - begun) * 1000


async def longest_blocks(count: int) -> dict[str, float]:
    """Return the longest time, in milliseconds of the event loop's thread, that importing so many contacts
    and making their index keep the event loop from other work.
    """
    names = [one.name for one in many(count)]
    blocks: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/memory.db"
        async with aforesaid.open(url) as memory, _watched(blocks, "import"):
            await memory.of("erin").clients.import_csv("\n".join(("name", *names)))
        async with aforesaid.open(url) as memory, _watched(blocks, "index"):
            erin = memory.of("erin")
            record = await erin.get_or_create_conversation("kitchen")
            await erin.add_message(record.id, "user", f"Please call {names[0]} about the invoice")
            await erin.contact_resources.queue.wait_until_idle()
    return blocks


@asynccontextmanager
async def _watched(blocks: dict[str, float], name: str) -> AsyncIterator[None]:
    """Note the longest time between two turns of the event loop."""

    async def watch() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            blocks[name] = max(blocks.get(name, 0.0), 1000 * (now - last))
            last = now

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


def _print(half: str, tally: Tally) -> None:
    print(
        f"{half}: {tally.sentences} sentences; "
        f"precision {tally.precision:.3f} ({tally.right} of {tally.answered}), "
        f"recall {tally.recall:.3f} ({tally.right} of {tally.naming_one}), candidates instead of a guess "
        f"{tally.several_right} of {tally.several}, no candidates {tally.nobody_right} of {tally.nobody}, "
        f"false names {tally.false_names}"
    )


def main() -> None:
    for name, (index, sentences) in (
        ("names", load()),
        ("spoken", load_spoken()),
        ("nobody", load_nobody()),
    ):
        print(f"{name}: {len(index)} contacts, {len(sentences)} sentences")
        for half in ("development", "held-out"):
            own = [sentence for sentence in sentences if half_of(sentence["text"]) == half]
            _print(half, judge(index, own, shown=half == "development" and "--errors" in sys.argv))
    built, took = speed(sentences, 10_000)
    print(
        f"10,000 contacts: index {built:.2f} s; a sentence {took[len(took) // 2]:.2f} ms in the middle, "
        f"{took[len(took) * 99 // 100]:.2f} ms at 99 %, {took[-1]:.2f} ms at most"
    )
    blocks = asyncio.run(longest_blocks(30_000))
    print(
        "30,000 contacts keep the event loop busy for at most "
        + ", ".join(f"{block:.0f} ms ({name})" for name, block in blocks.items())
    )


if __name__ == "__main__":
    main()
