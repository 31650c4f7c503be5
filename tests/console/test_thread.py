"""The thread: talk, stream, interrupt, resume, mark."""

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import expect

from tests.console.browsing import until
from tests.console.conftest import Opening, Starting
from tests.console.serving import say, slow_assistant, turn
from tests.servers.waiting import LONGEST


def picture() -> str:
    """A red PNG of 40 by 40 pixels."""
    rows = b"".join(b"\0" + b"\xc0\x30\x30" * 40 for _ in range(40))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 40, 40, 8, 2, 0, 0, 0)
    parts = (
        b"\x89PNG\r\n\x1a\n",
        chunk(b"IHDR", header),
        chunk(b"IDAT", zlib.compress(rows)),
        chunk(b"IEND", b""),
    )
    return base64.b64encode(b"".join(parts)).decode()


def test_the_assistant_answers_and_remembers_after_a_restart(opening: Opening, starting: Starting) -> None:
    served = starting()
    console = opening(address=served.address, whose=None)
    page = console.page
    page.get_by_role("button", name="Start a conversation").click()
    page.get_by_role("textbox", name="Message").fill("Remember that I like leeks.")
    page.keyboard.press("Enter")
    expect(page.get_by_text("I will remember: I like leeks")).to_be_visible()
    expect(page.get_by_text("4 messages", exact=True)).to_be_visible()
    console.close()
    served.stop()
    served.start()
    page = opening(address=served.address, whose=None).page
    page.get_by_role("button", name="New conversation").click()
    page.get_by_role("textbox", name="Message").fill("What do I like?")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("You asked me to remember: “I like leeks”")).to_be_visible()


def test_everything_a_log_can_hold_is_shown(opening: Opening, api: httpx.Client) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": picture()}
    call = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "4 degrees"}
    one = turn(
        api,
        "one",
        say(
            "user",
            [{"type": "text", "text": "What is on this picture?"}, {"type": "image", "source": source}],
        ),
        say("assistant", [call]),
        say("user", [result]),
        say("assistant", "Four degrees."),
        dialect="anthropic",
    )
    words = "**Red**, and `4 degrees`.\n\n- one\n- two"
    turn(api, "one", say("user", "And now?"), say("assistant", words, agent_name="Painter"))
    turn(api, "one", say("user", "secret"), say("assistant", "Forgotten soon."))
    entries = api.get(f"/v1/conversations/{one}/messages").json()["entries"]
    api.post(f"/v1/conversations/{one}/redactions", json={"message_id": entries[-2]["message"]["message_id"]})
    page = opening(f"/thread/{one}").page
    expect(page.get_by_text("Calls weather")).to_be_visible()
    page.get_by_text("Calls weather").click()
    expect(page.locator(".fold pre", has_text='"city": "Oslo"')).to_be_visible()
    expect(page.get_by_text("Tool result")).to_be_visible()
    expect(page.get_by_text("Painter")).to_be_visible()
    expect(page.locator("strong", has_text="Red")).to_be_visible()
    expect(page.locator(".words li", has_text="two")).to_be_visible()
    expect(page.get_by_text("redacted", exact=True)).to_be_visible()
    expect(page.get_by_text("[redacted]")).to_be_visible()
    expect(page.get_by_text("Image sent")).to_be_visible()


def test_an_answer_streams_and_can_be_interrupted(opening: Opening, starting: Starting) -> None:
    served = starting(slow_assistant)
    page = opening(address=served.address, whose=None).page
    page.get_by_role("button", name="Start a conversation").click()
    page.get_by_role("textbox", name="Message").fill("Tell me a long story")
    page.keyboard.press("Enter")
    expect(page.locator(".streaming")).to_contain_text("word 3")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("interrupted", exact=True)).to_be_visible()
    expect(page.locator(".streaming")).to_have_count(0)


def test_a_killed_server_resumes_without_loss_or_repetition(
    opening: Opening, starting: Starting, tmp_path: Path
) -> None:
    served = starting(slow_assistant)
    console = opening(address=served.address, whose=None)
    console.watcher.expect("WebSocket", "ERR_", "Failed to load")
    page = console.page
    page.get_by_role("button", name="Start a conversation").click()
    page.get_by_role("textbox", name="Message").fill("Tell me a long story")
    page.keyboard.press("Enter")
    expect(page.locator(".streaming")).to_contain_text("word 3")
    served.kill()
    expect(page.get_by_text("reconnecting…")).to_be_visible()
    (tmp_path / "finish").touch()
    served.start()
    expect(page.get_by_text("The end.")).to_be_visible(timeout=60_000)
    expect(page.locator(".message.user", has_text="Tell me a long story")).to_have_count(1)
    expect(page.locator(".message.assistant")).to_have_count(1)
    with httpx.Client(base_url=served.address, timeout=LONGEST) as api:
        found = api.get("/v1/conversations").json()["conversations"][0]
    assert found["message_count"] == 2


def test_two_browsers_share_a_thread(opening: Opening, starting: Starting, tmp_path: Path) -> None:
    served = starting(slow_assistant)
    first = opening(address=served.address, whose=None).page
    first.get_by_role("button", name="Start a conversation").click()
    first.get_by_role("textbox", name="Message").wait_for()
    second = opening(
        first.evaluate("location.hash").removeprefix("#"), address=served.address, whose=None
    ).page
    expect(first.get_by_text("2 here")).to_be_visible()
    second.get_by_role("textbox", name="Message").type("So", delay=20)
    expect(first.get_by_text("Someone is typing")).to_be_visible()
    (tmp_path / "finish").touch()
    second.keyboard.press("Enter")
    for page in (first, second):
        expect(page.get_by_text("The end.")).to_be_visible()
        expect(page.locator(".message.user", has_text="So")).to_have_count(1)
    expect(first.get_by_text("is typing")).to_have_count(0)
    second.context.close()
    expect(first.get_by_text("live", exact=True)).to_be_visible()


def test_another_browser_shows_that_the_answer_is_on_its_way(
    opening: Opening, starting: Starting, tmp_path: Path
) -> None:
    served = starting(slow_assistant)
    first = opening(address=served.address, whose=None).page
    first.get_by_role("button", name="Start a conversation").click()
    first.get_by_role("textbox", name="Message").wait_for()
    place = first.evaluate("location.hash").removeprefix("#")
    watching = opening(place, address=served.address, whose=None).page
    expect(first.get_by_text("2 here")).to_be_visible()
    first.get_by_role("textbox", name="Message").fill("Tell me a long story")
    first.keyboard.press("Enter")
    expect(first.locator(".streaming")).to_contain_text("word 3")
    late = opening(place, address=served.address, whose=None).page
    for page in (watching, late):
        expect(page.locator(".being-answered")).to_contain_text("Tell me a long story")
        expect(page.get_by_text("The answer is on its way")).to_be_visible()
        expect(page.get_by_text("not answered")).to_have_count(0)
        expect(page.get_by_role("button", name="Ask again")).to_have_count(0)
    (tmp_path / "finish").touch()
    for page in (first, watching, late):
        expect(page.locator(".message.assistant:not(.streaming)")).to_contain_text("The end.")
        expect(page.locator(".message.user", has_text="Tell me a long story")).to_have_count(1)
        expect(page.get_by_text("The answer is on its way")).to_have_count(0)


def test_another_browser_asks_once_for_the_question(opening: Opening, starting: Starting) -> None:
    """The question is announced when it can be read, so nothing is asked again and again."""
    served = starting(slow_assistant)
    first = opening(address=served.address, whose=None).page
    first.get_by_role("button", name="Start a conversation").click()
    first.get_by_role("textbox", name="Message").wait_for()
    place = first.evaluate("location.hash").removeprefix("#")
    watching = opening(place, address=served.address, whose=None).page
    expect(first.get_by_text("2 here")).to_be_visible()
    asked: list[Any] = []

    def answer_nothing(route: Any) -> None:
        asked.append(route)
        route.fulfill(json={"open_turns": []})

    watching.route("**/open-turns", answer_nothing)
    first.get_by_role("textbox", name="Message").fill("Tell me a long story")
    first.keyboard.press("Enter")
    until(watching, lambda: bool(asked))
    expect(first.locator(".streaming")).to_contain_text("word 3")
    watching.wait_for_timeout(3000)
    assert len(asked) == 1


def test_the_end_of_a_thread_is_its_unanswered_question(opening: Opening, api: httpx.Client) -> None:
    pairs = ((say("user", f"question {n}"), say("assistant", "word " * 200)) for n in range(20))
    one = turn(api, "long", *(message for pair in pairs for message in pair))
    body = {"messages": [say("user", "Who pays? " * 40, message_id="q1")]}
    assert api.post(f"/v1/conversations/{one}/open-turns", json=body).is_success
    page = opening(f"/thread/{one}").page
    discard = page.get_by_role("button", name="Discard")
    expect(discard).to_be_in_viewport(ratio=1)
    left = "log => log.scrollHeight - log.scrollTop - log.clientHeight"
    until(page, lambda: page.locator(".log").evaluate(left) < 2)


def test_another_browser_shows_that_an_answer_failed(
    opening: Opening, starting: Starting, tmp_path: Path
) -> None:
    served = starting(slow_assistant)
    (tmp_path / "silent").touch()
    first = opening(address=served.address, whose=None).page
    first.get_by_role("button", name="Start a conversation").click()
    first.get_by_role("textbox", name="Message").fill("Tell me a long story")
    first.keyboard.press("Enter")
    expect(first.locator(".streaming")).to_be_visible()
    place = first.evaluate("location.hash").removeprefix("#")
    other = opening(place, address=served.address, whose=None).page
    expect(other.get_by_text("The answer is on its way")).to_be_visible()
    (tmp_path / "fail").touch()
    expect(first.get_by_role("alert")).to_contain_text("Your message is kept. Ask again, or discard it.")
    expect(other.locator(".unanswered")).to_contain_text("Tell me a long story")
    expect(other.get_by_text("The answer is on its way")).to_have_count(0)
    (tmp_path / "fail").unlink()
    (tmp_path / "finish").touch()
    other.get_by_role("button", name="Ask again").click()
    expect(other.get_by_text("The end.")).to_be_visible()
    expect(first.locator(".messages .message.assistant")).to_contain_text("The end.")
    expect(first.get_by_role("alert")).to_have_count(0)


def test_a_message_is_redacted_and_remembered(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "my locker code is 4711"), say("assistant", "Fine."))
    page = opening(f"/thread/{one}").page
    message = page.locator(".message.user")
    message.hover()
    message.get_by_role("button", name="Remember").click()
    expect(page.get_by_text("Remembered. It is on the Memory page.")).to_be_visible()
    assert [note["text"] for note in api.get("/v1/notes").json()["notes"]] == ["my locker code is 4711"]
    message.get_by_role("button", name="Redact").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("group")).to_contain_text("1 repetition")
    expect(dialog.get_by_role("checkbox", name="Note")).to_be_disabled()
    dialog.get_by_role("button", name="Redact this and 1 repetition").click()
    expect(message).to_contain_text("[redacted]")
    assert "4711" not in api.get(f"/v1/conversations/{one}/messages").text
    assert api.get("/v1/notes").json()["notes"] == []


def test_what_repeats_a_message_is_shown_and_goes_by_choice(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "the locker code is 4711"), say("assistant", "I keep 4711 in mind."))
    other = turn(api, "other", say("user", "4711 opened it"), say("assistant", "Good."))
    other_path = f"/v1/conversations/{other}/messages"
    console = opening(f"/thread/{one}")
    page = console.page
    message = page.locator(".message.user")
    message.hover()
    message.get_by_role("button", name="Redact").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("group")).to_contain_text("2 repetitions")
    expect(dialog.locator("li", has_text="4711 opened it")).to_contain_text("another conversation")
    everything = dialog.get_by_role("checkbox", name="All of them")
    everything.uncheck()
    expect(dialog.get_by_role("button", name="Redact", exact=True)).to_be_enabled()
    everything.check()
    dialog.get_by_role("checkbox", name="4711 opened it").uncheck()
    expect(everything).not_to_be_checked()
    console.screenshot("redact-1280-light")
    dialog.get_by_role("button", name="Redact this and 1 repetition").click()
    done = page.get_by_role("dialog", name="Forgotten")
    expect(done).to_contain_text("0 notes and the words of 2 messages in 1 conversation")
    with page.expect_download() as saved:
        done.get_by_role("button", name="Save the receipt").click()
    receipt = saved.value.path().read_text()
    assert '"messages": 2' in receipt
    assert "4711" not in receipt
    console.screenshot("forgotten-1280-light")
    done.get_by_role("button", name="Done").click()
    expect(page.get_by_text("[redacted]")).to_have_count(2)
    assert "4711" not in api.get(f"/v1/conversations/{one}/messages").text
    assert "4711 opened it" in api.get(other_path).text


def test_only_the_message_is_redacted_when_the_rest_cannot_be_searched(
    opening: Opening, api: httpx.Client
) -> None:
    one = turn(api, "one", say("user", "the locker code is 4711"), say("assistant", "Fine."))
    console = opening(f"/thread/{one}")
    console.watcher.expect("503")
    page = console.page
    page.route("**/v1/forgetting", lambda route: route.fulfill(status=503, json={"detail": "Away."}))
    message = page.locator(".message.user")
    message.hover()
    message.get_by_role("button", name="Redact").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("Away.")
    page.get_by_role("button", name="Redact only this").click()
    expect(page.locator(".message.user")).to_contain_text("[redacted]")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_reader_at_an_earlier_message_goes_to_the_end_when_they_write(
    opening: Opening, api: httpx.Client
) -> None:
    pairs = ((say("user", f"question {n}"), say("assistant", f"answer {n}")) for n in range(20))
    one = turn(api, "long", *(message for pair in pairs for message in pair))
    page = opening(f"/thread/{one}").page
    expect(page.get_by_text("answer 19", exact=True)).to_be_in_viewport()
    page.locator(".log").evaluate("log => { log.scrollTop = 0; log.dispatchEvent(new Event('scroll')) }")
    expect(page.locator(".log").get_by_text("question 0", exact=True)).to_be_in_viewport()
    said = say("assistant", "Something came meanwhile.")
    assert api.post(f"/v1/conversations/{one}/messages", json=said).is_success
    expect(page.get_by_text("Something came meanwhile.")).to_be_attached()
    expect(page.get_by_text("Something came meanwhile.")).not_to_be_in_viewport()
    page.get_by_role("textbox", name="Message").fill("hello there")
    page.keyboard.press("Enter")
    expect(page.locator(".messages .message.user", has_text="hello there")).to_be_in_viewport()


def test_what_is_written_and_answered_in_a_thread_is_read(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "hi"), say("assistant", "Hello."))
    page = opening(f"/thread/{one}").page
    page.get_by_role("textbox", name="Message").fill("thank you")
    page.keyboard.press("Enter")
    expect(page.get_by_text("You are welcome.")).to_be_visible()
    until(page, lambda: api.get(f"/v1/conversations/{one}").json()["unread_count"] == 0)
    page.get_by_role("link", name="Back").click()
    expect(page.locator(".conversation-title")).to_have_text("hi")
    expect(page.locator(".badge")).to_have_count(0)


def test_an_unanswered_question_can_be_asked_again_or_discarded(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "hello"), say("assistant", "Hi."))
    path = f"/v1/conversations/{one}/open-turns"
    for name in ("q1", "q2"):
        body = {"messages": [say("user", f"What is {name}?", message_id=name)]}
        assert api.post(path, json=body).is_success
    page = opening(f"/thread/{one}").page
    expect(page.get_by_text("not answered")).to_have_count(2)
    page.locator(".unanswered", has_text="What is q1?").get_by_role("button", name="Discard").click()
    expect(page.locator(".unanswered")).to_have_count(1)
    page.get_by_role("button", name="Ask again").click()
    expect(page.locator(".unanswered")).to_have_count(0)
    expect(page.locator(".message.user", has_text="What is q2?")).to_have_count(1)
    expect(page.locator(".streaming")).to_have_count(0)
    assert api.get(path).json()["open_turns"] == []


def test_a_late_list_of_open_turns_does_not_repeat_an_answered_question(
    opening: Opening, starting: Starting, tmp_path: Path
) -> None:
    served = starting(slow_assistant)
    page = opening(address=served.address, whose=None).page
    page.get_by_role("button", name="Start a conversation").click()
    page.get_by_role("textbox", name="Message").fill("Tell me a long story")
    page.keyboard.press("Enter")
    expect(page.locator(".streaming")).to_contain_text("word 3")
    seen: list[Any] = []
    held: list[tuple[Any, Any]] = []

    def hold_first(route: Any) -> None:
        seen.append(route)
        if len(seen) > 1:
            route.continue_()
        else:
            held.append((route, route.fetch()))

    page.route("**/open-turns", hold_first)
    page.reload()
    expect(page.locator(".streaming")).to_contain_text("word")
    until(page, lambda: bool(held))
    (tmp_path / "finish").touch()
    expect(page.locator(".messages .message.assistant:not(.streaming)")).to_contain_text("The end.")
    [(route, response)] = held
    assert len(response.json()["open_turns"]) == 1
    with page.expect_response("**/open-turns"):
        route.fulfill(response=response)
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    expect(page.locator(".message.user", has_text="Tell me a long story")).to_have_count(1)
    expect(page.locator(".unanswered")).to_have_count(0)


def test_older_messages_load_without_a_jump(opening: Opening, api: httpx.Client) -> None:
    for start in range(0, 150, 50):
        pairs = [
            m
            for n in range(start, start + 50)
            for m in (say("user", f"question {n}"), say("assistant", f"answer {n}"))
        ]
        one = turn(api, "long", *pairs)
    page = opening(f"/thread/{one}").page
    expect(page.get_by_text("answer 149", exact=True)).to_be_visible()
    page.locator(".log").evaluate("log => { log.scrollTop = 0 }")
    top = page.get_by_text("question 125", exact=True)
    before = top.bounding_box()
    page.get_by_role("button", name="Show earlier messages").click()
    expect(page.get_by_text("question 80", exact=True)).to_be_attached()
    after = top.bounding_box()
    assert before
    assert after
    assert abs(before["y"] - after["y"]) < 60
