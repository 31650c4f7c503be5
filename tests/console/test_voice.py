"""Voice: a spoken WAV through the browser's microphone, the real recogniser, and an answer read aloud."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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
# Let the browser's own voice speak, note what it is given, and pause it after the first sentence.
_LISTEN = """
  window.said = [];
  const speak = SpeechSynthesis.prototype.speak;
  SpeechSynthesis.prototype.speak = function (utterance) {
    window.said.push(utterance.text);
    for (const name of ["start", "end", "error"])
      utterance.addEventListener(name, (event) => window.said.push(`${name} ${event.error ?? ""}`.trim()));
    if (window.said.length > 1) this.pause();
    speak.call(this, utterance);
  };
"""
# A browser looks for voices when a page first asks, and can speak after that.
_HAS_VOICES = "() => speechSynthesis.getVoices().some((voice) => voice.lang.startsWith('en'))"


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
    # On a busy machine the microphone loses parts of the sound, and the recogniser is less sure.
    served = starting(slow_assistant, AFORESAID_LEAST_CONFIDENCE_PERCENT="0")
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


@pytest.fixture(scope="module")
def speaking(playwright: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser with the voices of espeak-ng, whose sound goes nowhere."""
    if shutil.which("speech-dispatcher") is None:
        pytest.skip("no voice: install Debian's speech-dispatcher and speech-dispatcher-espeak-ng")
    with voices(tmp_path_factory.mktemp("voices")) as address:
        browser = playwright.chromium.launch(
            executable_path=find_browser(),
            args=["--no-sandbox", "--enable-speech-dispatcher"],
            env={**os.environ, "SPEECHD_ADDRESS": address},
        )
        yield browser
        browser.close()


@contextmanager
def voices(folder: Path) -> Iterator[str]:
    """Run a speech server of its own; yield its address."""
    (folder / ".libao").write_text("default_driver=null\n")
    (folder / "modules").mkdir()
    (folder / "modules" / "espeak-ng.conf").write_text("")
    (folder / "speechd.conf").write_text(
        f'LogDir "{folder}"\nAudioOutputMethod "libao"\nDefaultModule espeak-ng\n'
        'AddModule "espeak-ng" "sd_espeak-ng" "espeak-ng.conf"\n'
    )
    socket = folder / "socket"
    command = ["speech-dispatcher", "--run-single", "--timeout", "0", "--config-dir", str(folder)]
    command += ["--communication-method", "unix_socket", "--socket-path", str(socket)]
    command += ["--pid-file", str(folder / "pid")]
    with subprocess.Popen(command, env={**os.environ, "HOME": str(folder)}) as process:
        yield f"unix_socket:{socket}"
        process.terminate()


def test_an_answer_is_read_aloud_and_what_was_heard_is_kept(
    speaking: Any, starting: Starting, tmp_path: Path
) -> None:
    served = starting(slow_assistant)
    (tmp_path / "finish").touch()
    console = Console(speaking, served.address, None)
    console.page.add_init_script(_LISTEN)
    page = console.open()
    page.wait_for_function(_HAS_VOICES, polling=500, timeout=120_000)
    page.get_by_role("button", name="Start a conversation").click()
    page.get_by_role("button", name="Read answers aloud").click()
    page.get_by_role("textbox", name="Message").fill("Tell me a story")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.wait_for_function("() => window.said.includes('end')")
    # The page hears of the end first, and goes on with the next sentence.
    assert page.evaluate("window.said") == ["Once upon a time. ", "start", "The end.", "end"]
    page.get_by_role("button", name="Stop").click()
    heard = page.locator(".heard")
    expect(heard).to_contain_text("Heard up to here")
    expect(heard.locator("q")).to_have_text("Once upon a time.")
    console.watcher.check()
    console.close()


def test_a_browser_without_a_voice_says_so(browser: Any, starting: Starting, tmp_path: Path) -> None:
    served = starting(slow_assistant)
    (tmp_path / "finish").touch()
    console = Console(browser, served.address, None)
    page = console.open()
    page.get_by_role("button", name="Start a conversation").click()
    page.get_by_role("button", name="Read answers aloud").click()
    page.get_by_role("textbox", name="Message").fill("Tell me a story")
    page.keyboard.press("Enter")
    expect(page.get_by_text("This browser has no voice, so answers are not read aloud.")).to_be_visible()
    expect(page.get_by_text("The end.")).to_be_visible()
    expect(page.get_by_role("button", name="Read answers aloud")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    console.watcher.check()
    console.close()
