"""`make test-console`: find a browser or install one, run the tests, and say so if there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.console.browsing import find_browser

HERE = Path(__file__).parent
VOICE = ("speech-dispatcher", "speech-dispatcher-espeak-ng")
NO_BROWSER = """
NOT RUN: the tests of the web console. There is no browser, and none could be installed.
Install Chromium (Debian: `apt-get install chromium`), or name a browser in CHROMIUM, then run
`make test-console`."""


def install_browser() -> str | None:
    """Install Debian's Chromium where that is allowed, else Playwright's; return its path."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        attempt = ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"]
        if subprocess.run(attempt, check=False).returncode == 0:
            return find_browser()
    attempt = [sys.executable, "-m", "playwright", "install", "chromium"]
    if subprocess.run(attempt, check=False).returncode == 0:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as driver:
            path: str = driver.chromium.executable_path
        return path
    return None


def install_voice() -> None:
    """Install a voice where that is allowed. Without one, a test is skipped and the run says so."""
    if shutil.which("speech-dispatcher") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        attempt = ["apt-get", "install", "--yes", "--no-install-recommends", *VOICE]
        subprocess.run(attempt, check=False)


def main() -> int:
    browser = find_browser() or install_browser()
    install_voice()
    if browser is None:
        sys.stdout.write(NO_BROWSER + "\n")
        return 0
    environment = {**os.environ, "CHROMIUM": browser}
    command = [sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini"), str(HERE), *sys.argv[1:]]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
