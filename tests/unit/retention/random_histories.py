"""Play random histories on a store with files, and search the raw files for every word that was removed.

python -m tests.unit.retention.random_histories [--histories 1000] [--first 0] [--store sqlite|file]

Every word is random, so that one occurrence in a file is a finding. A search index may store the rest of a
word after the letters that it shares with the word before it, and the stem of a word instead of the word: so
words have random cores before an ending, and the files are searched for the last letters of the cores.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aforesaid
from aforesaid.memory.manager import ConversationManager
from tests.random_words import random_word, words_in

ENDINGS = ("", "s", "ed", "ing", "ation", "ly")
LENGTHS = (1, 3, 8, 20, 60, 250)
OWNERS = ("erin", "bob", "ada")


class ConversationWords:
    """A conversation of the history, and the words in it by message."""

    def __init__(self, owner: str, conversation_id: str) -> None:
        self.owner = owner
        self.id = conversation_id
        self.beside: list[str] = []
        self.said: dict[str, list[str]] = {}

    @property
    def words(self) -> list[str]:
        return [*self.beside, *(word for words in self.said.values() for word in words)]


class History:
    """One random history. `play` returns a description of the first finding, or None."""

    def __init__(self, seed: int, folder: Path, store: str = "sqlite") -> None:
        self._random = random.Random(seed)
        self._folder = folder
        self._url = f"sqlite:///{folder}/memory.db" if store == "sqlite" else f"file://{folder}/memory.json"
        self._talks: list[ConversationWords] = []
        self._gone: set[str] = set()
        self._step = "nothing"

    async def play(self) -> str | None:
        async with aforesaid.open(
            self._url, retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=None)
        ) as memory:
            for number in range(self._random.randint(4, 25)):
                if await self._played_step(memory, number) and (found := self._found()):
                    return found
        self._step = "closing"
        return self._found()

    async def _played_step(self, memory: aforesaid.Memory, number: int) -> bool:
        """Take one step; returns whether it removed anything."""
        if not self._talks or self._random.random() < 0.15:
            await self._begin(memory)
            return False
        talk = self._random.choice(self._talks)
        steps: dict[str, tuple[int, Step]] = {
            "say": (6, self._say),
            "say much": (3, self._say_much),
            "search": (2, self._search),
            "redact": (4, self._redact),
            "clear": (1, self._clear),
            "delete": (1, self._delete),
            "erase a conversation": (2, self._erase),
            "erase an owner": (1, self._erase_owner),
        }
        (name,) = self._random.choices(list(steps), [weight for weight, _ in steps.values()])
        self._step = f"step {number}, {name}"
        before = len(self._gone)
        await steps[name][1](memory.of(talk.owner), talk)
        return len(self._gone) > before

    async def _begin(self, memory: aforesaid.Memory) -> None:
        owner = self._random.choice(OWNERS)
        words = [self._word() for _ in range(3)]
        manager = memory.of(owner)
        record = await manager.get_or_create_conversation(words[0])
        await manager.update_metadata(record.id, subject=words[1], tags=[words[2]])
        talk = ConversationWords(owner, record.id)
        talk.beside += words
        self._talks.append(talk)

    async def _say(self, manager: ConversationManager, talk: ConversationWords) -> None:
        words = [self._word() for _ in range(self._random.choice(LENGTHS))]
        message_id = f"{self._random.getrandbits(64):x}"
        text = " ".join(word + self._random.choice(ENDINGS) for word in words)
        await manager.add_message(talk.id, "user", text, message_id=message_id)
        talk.said[message_id] = words

    async def _say_much(self, manager: ConversationManager, talk: ConversationWords) -> None:
        for _ in range(self._random.randint(5, 70)):
            await self._say(manager, talk)

    async def _search(self, manager: ConversationManager, talk: ConversationWords) -> None:
        await manager.search_history(self._random.choice(talk.words))

    async def _redact(self, manager: ConversationManager, talk: ConversationWords) -> None:
        for message_id in self._random.sample(sorted(talk.said), min(len(talk.said), 3)):
            await manager.redact(talk.id, message_id)
            self._gone.update(talk.said.pop(message_id))

    async def _clear(self, manager: ConversationManager, talk: ConversationWords) -> None:
        await manager.clear_history(talk.id)
        self._gone.update(word for words in talk.said.values() for word in words)
        talk.said.clear()

    async def _delete(self, manager: ConversationManager, talk: ConversationWords) -> None:
        await manager.delete_conversation(talk.id)
        self._forget([talk])

    async def _erase(self, manager: ConversationManager, talk: ConversationWords) -> None:
        assert (await manager.erase(talk.id)).remains == ()
        self._forget([talk])

    async def _erase_owner(self, manager: ConversationManager, talk: ConversationWords) -> None:
        assert (await manager.erase()).remains == ()
        self._forget([one for one in self._talks if one.owner == talk.owner])

    def _forget(self, talks: list[ConversationWords]) -> None:
        self._gone.update(word for talk in talks for word in talk.words)
        self._talks = [talk for talk in self._talks if talk not in talks]

    def _word(self) -> str:
        return random_word(self._random)

    def _found(self) -> str | None:
        files = [path for path in self._folder.rglob("*") if path.is_file()]
        found = {word: path.name for path in files for word in words_in(path.read_bytes(), self._gone)}
        return f"after {self._step}: {len(found)} words, {sorted(found.items())[:3]}" if found else None


Step = Callable[[ConversationManager, ConversationWords], Coroutine[Any, Any, None]]


def played(seed: int, store: str = "sqlite") -> str | None:
    """Play one history in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(History(seed, Path(folder), store).play())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--store", choices=("sqlite", "file"), default="sqlite")
    options = parser.parse_args()
    findings = 0
    for seed in range(options.first, options.first + options.histories):
        if found := played(seed, options.store):
            findings += 1
            print(f"history {seed}: {found}", flush=True)
        if (played_so_far := seed - options.first + 1) % 100 == 0:
            print(f"{played_so_far} of {options.histories} histories, {findings} with findings", flush=True)
    print(f"{options.histories} histories, {findings} with findings")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
