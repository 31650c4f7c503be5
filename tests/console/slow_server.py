"""Serve with an assistant that answers word by word, until the file `finish` is in the working folder.

With the file `silent` it says nothing yet; the file `fail` makes it fail.
"""

import asyncio
import sys
from itertools import count
from pathlib import Path

from aforesaid import cli
from aforesaid.agents import configured
from aforesaid.contracts import Ask, OnText, Reply
from aforesaid.errors import AgentError
from aforesaid.model.messages import Message

PAUSE = 0.02


class Narrator:
    """Tells a story that ends when it may."""

    name = "narrator"
    dialect = "plain"

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        words = "Once upon a time. "
        for number in count():
            if Path("fail").exists():
                raise AgentError("the model is away")
            piece = "The end." if Path("finish").exists() else f"word {number} "
            words += piece
            if on_text is not None and not Path("silent").exists():
                on_text(piece)
            if piece == "The end.":
                break
            await asyncio.sleep(PAUSE)
        return Reply(messages=(Message(role="assistant", content=words),))

    async def close(self) -> None:
        """Nothing to release."""


if __name__ == "__main__":
    configured.agent_for = lambda config: Narrator()
    sys.argv = ["aforesaid", "serve", *sys.argv[1:]]
    cli.main()
