"""The page on the WebSocket and the frames are the same."""

import json
import re
from pathlib import Path

from aforesaid.protocol.live import CLOSE_CODES, INCOMING_TYPES, read_frame
from aforesaid.protocol.live_base import Outgoing
from aforesaid.server.limits import LiveLimits
from aforesaid.settings import ServerConfig

PAGE = (Path(__file__).parents[4] / "docs/reference/websocket.md").read_text("utf-8")
SENT, RECEIVED = (part for part in PAGE.split("## What you ")[1:])
EXAMPLE = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_frame_that_is_sent_is_shown_and_is_one() -> None:
    shown = set()
    for example in EXAMPLE.findall(SENT):
        read_frame(example)
        shown.add(json.loads(example)["type"])
    assert shown == set(INCOMING_TYPES)


def test_every_frame_that_is_received_is_shown_with_its_fields() -> None:
    kinds = {str(kind.__struct_config__.tag): kind for kind in Outgoing.__subclasses__()}
    shown = set()
    for example in EXAMPLE.findall(RECEIVED):
        frame = json.loads(example)
        kind = kinds[frame.pop("type")]
        assert frame.keys() <= set(kind.__struct_fields__), example
        shown.add(str(kind.__struct_config__.tag))
    assert shown == set(kinds)


def test_every_close_code_is_described() -> None:
    for code in CLOSE_CODES:
        assert f"| {code} |" in PAGE, code


def test_the_limits_are_those_of_the_server() -> None:
    limits = LiveLimits()
    for words in (
        f"{limits.frame_bytes // 1024} KB",
        f"{limits.audio_frame_bytes // 1024**2} MB; {limits.audio_bytes // 1024**2} MB",
        f"{limits.frames_per_second:.0f} (`AFORESAID_LIVE_RATE`), and {limits.burst} at once",
        f"after {limits.refused_frames:,} of them",
        f"| {ServerConfig().rate_ask} (",
        f"| {ServerConfig().rate_write:,} (",
        f"| {limits.turns_waiting} |",
        f"| {limits.watches} |",
        f"| {limits.connections_per_key} (",
        f"| {limits.connections:,} (",
        f"| {limits.heartbeat_seconds:.0f} s, then",
        f"| {limits.hello_seconds:.0f} s |",
        f"unread for {limits.stall_seconds:.0f} seconds",
        f"every {limits.recheck_seconds:.0f} seconds",
    ):
        assert words in PAGE, words
