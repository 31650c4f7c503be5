"""The audit trail: many processes write it, and every later change is detected."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.audit import AuditTrail, Event, audit_key_from_env, chain, check_trail, read_trail
from aforesaid.audit.chain import Chain, files_of
from aforesaid.errors import InvalidSetting, StoreClosed, StoreDamaged, StoreUnavailable
from tests.examples import examples

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = bytes(range(32))


def event(number: int = 0, **fields: object) -> Event:
    given = {"actor": "support", "source": "10.0.0.7", "action": "read", "owner": "erin", "count": number}
    return Event(at=NOON, **(given | fields))  # type: ignore[arg-type]


def write(path: Path, count: int, *, owner: str = "erin", **options: object) -> None:
    async def recorded() -> None:
        trail = AuditTrail(path, **options)  # type: ignore[arg-type]
        await trail.open()
        for number in range(count):
            await trail.record(event(number, owner=owner))
        await trail.close()

    asyncio.run(recorded())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def test_what_was_recorded_is_read_back_in_order_and_is_sound(path: Path) -> None:
    write(path, 20)
    assert [line.event for line in read_trail(path)] == [event(number) for number in range(20)]
    checked = check_trail(path)
    assert (checked.lines, checked.files, checked.problems) == (20, 1, ())
    assert checked.is_sound


def test_a_valid_line_of_another_trail_is_detected(path: Path) -> None:
    other = path.with_name("other.jsonl")
    write(path, 5)
    write(other, 5, owner="sam")
    lines, foreign = path.read_bytes().splitlines(), other.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:2], foreign[2], *lines[3:]]) + b"\n")
    problems = check_trail(path).problems
    assert [problem for problem in problems if "does not follow the previous line" in problem] == list(
        problems
    )
    assert len(problems) == 2, "neither the foreign line nor the one after it fits"


def test_a_trail_goes_on_where_it_was(path: Path) -> None:
    for _ in range(3):
        write(path, 5)
    assert [line.n for line in read_trail(path)] == list(range(1, 16))
    assert check_trail(path).is_sound


def test_an_empty_trail_is_sound_and_a_missing_one_is_an_error(path: Path) -> None:
    write(path, 0)
    assert check_trail(path).is_sound
    with pytest.raises(StoreUnavailable, match="no audit trail"):
        check_trail(path.with_name("other"))


def test_events_of_many_tasks_share_writes_and_none_is_lost(path: Path) -> None:
    async def together() -> None:
        trail = AuditTrail(path)
        await trail.open()
        await asyncio.gather(*(trail.record(event(number)) for number in range(500)))
        await trail.close()

    asyncio.run(together())
    assert sorted(line.count for line in read_trail(path)) == list(range(500))
    assert check_trail(path).is_sound


def test_who_is_cancelled_is_noted_all_the_same(path: Path) -> None:
    async def half_cancelled() -> None:
        trail = AuditTrail(path)
        await trail.open()
        tasks = [asyncio.ensure_future(trail.record(event(number))) for number in range(50)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await trail.record(event(99))
        await trail.close()

    asyncio.run(half_cancelled())
    assert len(list(read_trail(path))) == 51
    assert check_trail(path).is_sound


CHILD = """
import asyncio, sys
from datetime import UTC, datetime
from aforesaid.audit import AuditTrail, Event

async def main() -> None:
    trail = AuditTrail(sys.argv[1], largest_file=20_000)
    await trail.open()
    for number in range(100):
        at = datetime(2026, 3, 1, tzinfo=UTC)
        await trail.record(Event(at=at, actor=sys.argv[2], source="", action="read", count=number))
    await trail.close()

asyncio.run(main())
"""


@pytest.mark.slow
def test_several_processes_write_one_chain_which_is_sound_at_every_moment(path: Path) -> None:
    write(path, 1)
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CHILD, str(path)]
    children = [subprocess.Popen([*command, str(one)], env=environ) for one in range(3)]
    meanwhile: list[str] = []
    while None in [child.poll() for child in children]:
        meanwhile += check_trail(path).problems
    assert [child.wait(timeout=240) for child in children] == [0, 0, 0]
    assert meanwhile == []
    checked = check_trail(path)
    assert (checked.lines, checked.problems) == (301, ())
    assert checked.files > 1
    for one in range(3):
        assert [line.count for line in read_trail(path) if line.actor == str(one)] == list(range(100))


def test_what_is_written_while_a_trail_is_checked_is_no_part_of_the_check(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event begins a new file: the one that was the last has another name when the next is written."""
    write(path, 3, largest_file=1)
    more = iter([1])

    class Interrupted(Chain):
        def is_signed(self, line: bytes) -> bool:
            for count in more:
                write(path, count, largest_file=1)
            return super().is_signed(line)

    monkeypatch.setattr(chain, "Chain", Interrupted)
    checked = check_trail(path)
    assert (checked.lines, checked.problems) == (3, ())
    checked = check_trail(path)
    assert (checked.lines, checked.problems) == (4, ())


def test_a_copy_without_its_lock_can_be_checked(path: Path) -> None:
    write(path, 3)
    path.with_name("audit.jsonl.lock").unlink()
    assert check_trail(path).is_sound
    assert not path.with_name("audit.jsonl.lock").exists()


def test_the_chain_goes_on_across_files(path: Path) -> None:
    write(path, 100, largest_file=5_000)
    checked = check_trail(path)
    assert (checked.lines, checked.problems) == (100, ())
    files = files_of(path)
    assert len(files) > 3
    assert [line.n for line in read_trail(path)] == list(range(1, 101))
    files[1].rename(path.with_name("gone"))
    assert not check_trail(path).is_sound


# Every change is found

Lines = list[bytes]


def flipped(lines: Lines, at: int, within: int) -> Lines:
    line = bytearray(lines[at % len(lines)])
    line[within % len(line)] ^= 1 << (within % 7)
    return [*lines[: at % len(lines)], bytes(line), *lines[at % len(lines) + 1 :]]


def dropped(lines: Lines, at: int, within: int) -> Lines:
    first = at % len(lines)
    return lines[:first] + lines[first + 1 + within % 3 :]


def swapped(lines: Lines, at: int, within: int) -> Lines:
    one, other = at % len(lines), within % len(lines)
    if one == other:
        other = (one + 1) % len(lines)
    changed = list(lines)
    changed[one], changed[other] = lines[other], lines[one]
    return changed


def repeated(lines: Lines, at: int, within: int) -> Lines:
    return [*lines[: within % (len(lines) + 1)], lines[at % len(lines)], *lines[within % (len(lines) + 1) :]]


def cut(lines: Lines, at: int, within: int) -> Lines:
    return lines[: -(1 + at % len(lines))]


def torn(lines: Lines, at: int, within: int) -> Lines:
    text = b"".join(lines)
    return [text[: -(1 + at % (len(text) - 1))]]


def appended(lines: Lines, at: int, within: int) -> Lines:
    """A line that fits the chain: a reader without the key finds its hashes right."""
    import msgspec

    last = msgspec.json.decode(lines[-1])
    line, _ = Chain(None).line(event(at), n=last["n"] + 1, prev=last["hash"])
    return [*lines, line]


def rewritten(lines: Lines, at: int, within: int) -> Lines:
    """Rewrite everything from one line on: a reader without the key finds all hashes right."""
    import msgspec

    first = at % len(lines)
    prev = msgspec.json.decode(lines[first])["prev"]
    changed = lines[:first]
    for number in range(first, len(lines)):
        line, prev = Chain(None).line(event(number + 1000), n=number + 1, prev=prev)
        changed.append(line)
    return changed


MUTATIONS = [flipped, dropped, swapped, repeated, cut, torn, appended, rewritten]


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, KEY], ids=["unsigned", "signed"])
@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
@examples(60)
@given(count=st.integers(1, 12), at=st.integers(0, 10_000), within=st.integers(0, 10_000))
def test_every_change_is_found(
    tmp_path: Path,
    mutate: Callable[[Lines, int, int], Lines],
    key: bytes | None,
    count: int,
    at: int,
    within: int,
) -> None:
    path = tmp_path / "audit.jsonl"
    for file in tmp_path.iterdir():
        file.unlink()
    write(path, count, key=key, sync="never")
    lines = path.read_bytes().splitlines(keepends=True)
    changed = mutate(lines, at, within)
    if b"".join(changed) == b"".join(lines):
        return  # two of the same swapped
    path.write_bytes(b"".join(changed))
    assert not check_trail(path, key=key).is_sound


def test_a_signed_trail_cannot_be_made_right_again_without_its_key(path: Path) -> None:
    write(path, 5, key=KEY)
    assert check_trail(path, key=KEY).is_sound
    forged = path.with_name("forged")
    write(forged, 4)
    for name in ("", ".head"):
        Path(f"{path}{name}").write_bytes(Path(f"{forged}{name}").read_bytes())
    assert check_trail(path).is_sound
    assert not check_trail(path, key=KEY).is_sound
    assert not check_trail(path, key=bytes(32)).is_sound


def test_what_was_noted_elsewhere_proves_that_nothing_was_rolled_back(path: Path) -> None:
    write(path, 5)
    kept = {name: Path(f"{path}{name}").read_bytes() for name in ("", ".head")}
    write(path, 3)
    known = (8, check_trail(path).head)
    assert check_trail(path, known=known).is_sound
    for name, content in kept.items():
        Path(f"{path}{name}").write_bytes(content)
    assert check_trail(path).is_sound
    assert not check_trail(path, known=known).is_sound


@pytest.mark.parametrize("damage", [b"", b"{}", b" " * 512, b"garbage"])
def test_a_damaged_head_is_found(path: Path, damage: bytes) -> None:
    write(path, 3)
    head = path.with_name("audit.jsonl.head")
    head.write_bytes(damage)
    assert not check_trail(path).is_sound
    with pytest.raises(StoreDamaged, match="head"):
        write(path, 1)
    head.unlink()
    assert not check_trail(path).is_sound


@pytest.mark.parametrize("written", [0, 1, 2])
def test_lines_that_a_crash_swallowed_are_noted_by_the_next_writer(path: Path, written: int) -> None:
    """A writer announces what it will write. Ended in the middle, it leaves the announcement."""
    write(path, 3)
    chain = Chain(None)
    head_file = path.with_name("audit.jsonl.head")
    head = chain.read_head(head_file.read_bytes())
    lines, last = [], head.hash
    for number in range(2):
        line, last = chain.line(event(number), n=4 + number, prev=last)
        lines.append(line)
    import msgspec

    head_file.write_bytes(chain.head(msgspec.structs.replace(head, next_count=5, next_hash=last)))
    with path.open("ab") as file:
        file.write(b"".join(lines[:written]) + (lines[written][:40] if written < 2 else b""))
    assert not check_trail(path).is_sound
    write(path, 1)
    actions = [line.action for line in read_trail(path)]
    if written == 2:
        assert actions == ["read"] * 6
        assert check_trail(path).is_sound
    else:
        assert actions == ["read"] * (3 + written) + ["missing", "read"]
        problems = check_trail(path).problems
        assert len(problems) == 1
        assert "never written" in problems[0]


# Owners, keys, settings


def test_owners_can_be_kept_as_digests_only(path: Path) -> None:
    write(path, 2, key=KEY, hide_owners=True)
    assert b"erin" not in path.read_bytes()
    assert {line.owner for line in read_trail(path)} == {Chain(KEY).owner("erin")}
    with pytest.raises(InvalidSetting, match="key"):
        AuditTrail(path, hide_owners=True)


def test_files_are_for_their_owner_alone(path: Path) -> None:
    write(path, 1)
    assert {file.stat().st_mode & 0o077 for file in path.parent.iterdir()} == {0}


async def test_what_cannot_be_used_is_an_error(tmp_path: Path, path: Path) -> None:
    with pytest.raises(InvalidSetting, match="sync"):
        AuditTrail(path, sync="often")  # type: ignore[arg-type]
    trail = AuditTrail(tmp_path / "no" / "folder")
    with pytest.raises(StoreUnavailable, match="folder"):
        await trail.open()
    with pytest.raises(StoreClosed):
        await AuditTrail(path).record(event())


def test_the_key_comes_from_the_environment() -> None:
    import base64

    assert audit_key_from_env({}) is None
    assert audit_key_from_env({"AFORESAID_AUDIT_KEY": base64.b64encode(KEY).decode()}) == KEY
    with pytest.raises(InvalidSetting, match="AFORESAID_AUDIT_KEY") as caught:
        audit_key_from_env({"AFORESAID_AUDIT_KEY": "secret"})
    assert "secret" not in str(caught.value)
