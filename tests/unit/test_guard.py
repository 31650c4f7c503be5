"""A call of our code that blocks the event loop fails a test; tests themselves may block."""

import asyncio
from pathlib import Path

import pytest
from blockbuster import BlockingError

from aforesaid.transfer.folders import create_file


async def test_our_code_may_not_block_the_event_loop(tmp_path: Path) -> None:
    with pytest.raises(BlockingError), create_file(tmp_path / "file") as file:
        file.write(b"x" * 100_000)


async def test_our_code_may_block_a_thread_and_a_test_the_loop(tmp_path: Path) -> None:
    def write() -> None:
        with create_file(tmp_path / "file") as file:
            file.write(b"x" * 100_000)

    await asyncio.to_thread(write)
    assert len((tmp_path / "file").read_bytes()) == 100_000
