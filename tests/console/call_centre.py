"""Write four weeks of a dental practice into a store, for the charts of the insights page.

Run it in the project's environment, before the server starts: `python call_centre.py URL`.
"""

import asyncio
import random
import sys
from datetime import UTC, datetime, timedelta

import aforesaid
from aforesaid.model.messages import Message

OWNER = "practice"
WEEKS = 4
AGENTS = ("reception", "billing")
PERSON = "mara"
QUESTIONS = (
    "Can I move my appointment to another day?",
    "My invoice shows the cleaning twice.",
    "When are you open on Saturday?",
    "My tooth hurts since yesterday, is there a free slot?",
)


class MovableClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.time


async def main(url: str) -> None:
    clock, draw = MovableClock(), random.Random(7)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    async with aforesaid.open(url, ttl=None, clock=clock) as memory:
        manager = memory.of(OWNER)
        for days in range(7 * WEEKS, 0, -1):
            day = today - timedelta(days=days)
            busy = 1 if day.weekday() >= 5 else 4 + days % 3
            for number in range(busy):
                clock.time = day + timedelta(hours=8 + 2 * number, minutes=draw.randrange(50))
                await conversation(manager, clock, draw, f"{days}-{number}")


async def conversation(
    manager: aforesaid.ConversationManager, clock: MovableClock, draw: random.Random, name: str
) -> None:
    """Store a conversation: a question, a wait, an answer by an agent or a person, and sometimes more."""
    agent, channel = draw.choice(AGENTS), draw.choice(("text", "text", "voice", "phone", "email"))
    session = await manager.append_to_session(name, [_asked(name, clock)], channel=channel)
    made = session.conversation.id
    await manager.set_participant(made, PERSON, name="Mara", kind="person")
    for turn in range(draw.randint(1, 3)):
        question = [] if not turn else [_asked(name, clock)]
        by_person = draw.random() < 0.25
        clock.time += timedelta(seconds=draw.choice((90, 240, 900) if by_person else (2, 3, 5, 8, 20)))
        who = (PERSON, None) if by_person else (None, agent)
        answer = Message(
            role="assistant", content="An answer.", timestamp=clock.time, author=who[0], agent_name=who[1]
        )
        await manager.append(made, [*question, answer])
        clock.time += timedelta(minutes=draw.randint(1, 9))
    if draw.random() < 0.7:
        await manager.update_metadata(made, status="resolved")
    if draw.random() < 0.1:
        clock.time += timedelta(minutes=20)
        await manager.update_metadata(made, status="open")


def _asked(name: str, clock: MovableClock) -> Message:
    words = QUESTIONS[sum(map(ord, name)) % len(QUESTIONS)]
    return Message(role="user", content=words, timestamp=clock.time)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
