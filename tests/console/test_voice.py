"""Voice: a spoken WAV through the browser's microphone, the real recogniser, and an answer read aloud."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.browsing import Console, find_browser
from tests.console.conftest import Starting
from tests.console.serving import BIN, ROOT, slow_assistant

SENTENCE = "what is the weather in the garden"
_SYNTHESISE = """
import sys, wave
from tests.synthesis import say
spoken = say(sys.argv[1])
rate = spoken.format.rate
with wave.open(sys.argv[2], "wb") as file:
    file.setnchannels(1); file.setsampwidth(2); file.setframerate(rate)
    file.writeframes(spoken.data + bytes(2 * rate * 6))
"""

# True once something was said and then a second of silence came, in tenths of a second as the meter shows.
_SAID = """() => {
  const level = document.querySelector(".level")?.value ?? 0;
  window.loud ||= level > 0.1;
  window.quiet = level < 0.02 ? (window.quiet ?? 0) + 1 : 0;
  return window.loud && window.quiet > 12;
}"""
_VOICE = """
  window.said = [];
  const voices = [{ name: "Test", lang: "en", default: true }];
  Object.defineProperty(window, "speechSynthesis", { value: {
    getVoices: () => voices, cancel: () => {},
    speak: (utterance) => { window.said.push(utterance.text);
      const place = { utterance, charIndex: 9, name: "word" };
      utterance.dispatchEvent(new SpeechSynthesisEvent("boundary", place)); },
  } });
"""


@pytest.fixture(scope="module")
def listening(playwright: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser whose microphone hears the sentence."""
    wav = tmp_path_factory.mktemp("voice") / "sentence.wav"
    command = [str(BIN / "python"), "-c", _SYNTHESISE, SENTENCE, str(wav)]
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "PATH": "/usr/bin:/bin"}
    subprocess.run(command, check=True, cwd=ROOT, env=environment, timeout=120)
    browser = playwright.chromium.launch(
        executable_path=find_browser(),
        args=[
            "--no-sandbox",
            "--use-fake-ui-for-media-stream",
            "--use-fake-device-for-media-stream",
            f"--use-file-for-fake-audio-capture={wav}%noloop",
        ],
    )
    yield browser
    browser.close()


@pytest.mark.timeout(600)
def test_a_spoken_question_is_transcribed_answered_and_marked(
    listening: Any, starting: Starting, tmp_path: Path
) -> None:
    served = starting(slow_assistant)
    (tmp_path / "finish").touch()
    console = Console(listening, served.address, None)
    console.context.grant_permissions(["microphone"])
    page = console.open()
    page.get_by_role("button", name="Start a conversation").click()
    page.get_by_role("button", name="Speak", exact=True).click()
    page.wait_for_function(_SAID, polling=100, timeout=60_000)
    page.get_by_role("button", name="Done").click()
    question = page.locator(".message.user")
    expect(question).to_contain_text("garden", timeout=240_000)
    expect(question).to_contain_text("spoken")
    expect(page.get_by_text("The end.")).to_be_visible()
    console.screenshot("voice-1280-light")
    console.watcher.check()
    console.close()


def test_a_recording_can_be_discarded(listening: Any, starting: Starting) -> None:
    served = starting(slow_assistant)
    console = Console(listening, served.address, None)
    console.context.grant_permissions(["microphone"])
    page = console.open()
    page.get_by_role("button", name="Start a conversation").click()
    page.get_by_role("button", name="Speak", exact=True).click()
    page.get_by_role("button", name="Discard the recording").click()
    expect(page.get_by_role("button", name="Speak", exact=True)).to_be_visible()
    expect(page.locator(".message")).to_have_count(0)
    console.watcher.check()
    console.close()


def test_an_answer_is_read_aloud_and_what_was_heard_is_kept(
    browser: Any, starting: Starting, tmp_path: Path
) -> None:
    served = starting(slow_assistant)
    (tmp_path / "finish").touch()
    console = Console(browser, served.address, None)
    # Chromium on a server has no voices: this one speaks up to the ninth character and goes on.
    console.page.add_init_script(_VOICE)
    page = console.open()
    page.get_by_role("button", name="Start a conversation").click()
    page.get_by_role("button", name="Read answers aloud").click()
    page.get_by_role("textbox", name="Message").fill("Tell me a story")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.wait_for_function("() => window.said.length === 1")
    assert page.evaluate("window.said[0]").startswith("Once upon a time.")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Heard up to here")).to_be_visible()
    console.watcher.check()
    console.close()
