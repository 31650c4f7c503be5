"""The steps of the deployment page, run in a clean folder, never end in a server that needs no key."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.server.test_process import _wait_for
from tests.servers.ports import free_port
from tests.servers.waiting import LONGEST

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "deploy.md"
UNIT = ROOT / "deploy" / "systemd" / "aforesaid.service"
PLACES = ("/var/lib/aforesaid", "/opt/aforesaid", "/etc/systemd/system")

SHIMS = {
    "useradd": "exit 0",
    "id": "exit 1",
    "install": 'if [ "$1" = -d ]; then mkdir -p "${@: -1}"; else cp "${@: -2}"; fi',
    "sudo": 'if [ "$1" = -u ]; then shift 2; exec env "$@"; else exec "$@"; fi',
    "systemctl": 'echo "$@" >> "$SYSTEMCTL"',
    "curl": "exit 0",
    "pip": "exit 0",
    "python3": 'mkdir -p "$3/bin" && cp "$SHIMS/pip" "$SHIMS/aforesaid" "$SHIMS/python" "$3/bin/"',
    "python": "exit 0",
    "aforesaid": f'exec {shlex.quote(sys.executable)} -m aforesaid "$@"',
}
"""What needs root, a network or systemd, for a folder instead of a machine."""


class Machine:
    """A folder that stands for the file system of a new machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("var/lib", "opt", "etc/systemd/system", "shims"):
            (root / folder).mkdir(parents=True)
        for name, script in SHIMS.items():
            shim = root / "shims" / name
            shim.write_text(f"#!/bin/bash\n{script}\n")
            shim.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AFORESAID_")}
        self.environ = kept | {
            "PATH": f"{root / 'shims'}:{kept['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "SHIMS": str(root / "shims"),
            "SYSTEMCTL": str(root / "systemctl"),
            "PROGRAM": f"{root}/opt/aforesaid",
            "STATE": f"{root}/var/lib/aforesaid",
            "UNITS": f"{root}/etc/systemd/system",
        }

    def here(self, text: str) -> str:
        for place in PLACES:
            text = text.replace(place, f"{self.root}{place}")
        return text

    def run(self, steps: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-c", self.here(steps)],
            cwd=ROOT,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )

    def prepare(self) -> None:
        """Everything that the script makes, without a key."""
        for folder in ("var/lib/aforesaid", "opt/aforesaid/bin"):
            (self.root / folder).mkdir(parents=True)
        shutil.copy(self.root / "shims" / "aforesaid", self.root / "opt" / "aforesaid" / "bin")

    @property
    def was_started(self) -> bool:
        return (self.root / "systemctl").exists()

    def service(self, *arguments: str, **environ: str) -> "subprocess.Popen[str]":
        """The process that systemd would start, as the unit says."""
        unit = self.here(UNIT.read_text("utf-8"))
        given = dict(line.split("=", 1) for line in re.findall(r"^Environment=(.*)$", unit, re.MULTILINE))
        (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        (folder,) = re.findall(r"^WorkingDirectory=(.*)$", unit, re.MULTILINE)
        return subprocess.Popen(
            [*shlex.split(command), *arguments],
            cwd=folder,
            env=self.environ | given | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def serving(self, **environ: str) -> Iterator[str]:
        port = free_port()
        process = self.service("--port", str(port), **environ)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(address, process)
            yield address
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def steps() -> str:
    section = PAGE.read_text("utf-8").partition("## One machine, with systemd")[2]
    return section.partition("```bash\n")[2].partition("```")[0]


def test_the_steps_end_in_a_server_that_wants_the_key_they_made(machine: Machine) -> None:
    done = machine.run(steps())
    assert done.returncode == 0, done.stderr
    assert machine.was_started
    key = next(line for line in done.stdout.splitlines() if line.startswith("ak_"))
    with machine.serving() as address:
        assert httpx.get(f"{address}/v1/conversations").status_code == 401
        headers = {"Authorization": f"Bearer {key}"}
        assert httpx.get(f"{address}/v1/conversations", headers=headers).status_code == 200


def test_a_second_run_keeps_data_and_keys(machine: Machine) -> None:
    assert "ak_" in machine.run(steps()).stdout
    again = machine.run(steps())
    assert again.returncode == 0, again.stderr
    assert "ak_" not in again.stdout
    assert "Keys exist already" in again.stdout


def test_a_step_that_fails_is_the_last(machine: Machine) -> None:
    """Without its folder no key can be made, and then nothing is started."""
    (machine.root / "shims" / "install").write_text("#!/bin/bash\nexit 0\n")
    done = machine.run(steps())
    assert done.returncode != 0
    assert not machine.was_started


def test_the_owner_must_be_named(machine: Machine) -> None:
    done = machine.run("deploy/systemd/install.sh")
    assert done.returncode != 0
    assert "owner" in done.stderr
    assert not machine.was_started


def test_without_a_key_the_service_does_not_start(machine: Machine) -> None:
    machine.prepare()
    _, errors = (process := machine.service("--port", "0")).communicate(timeout=LONGEST)
    assert process.returncode == 2, "systemd starts it again on every other status"
    assert "AFORESAID_REQUIRE_KEYS" in errors
    assert "aforesaid keys create" in errors
    assert "RestartPreventExitStatus=2" in UNIT.read_text("utf-8")


@pytest.mark.parametrize("file", ["docker/Dockerfile", "systemd/aforesaid.service"])
def test_every_file_that_starts_a_server_requires_keys(file: str) -> None:
    assert "AFORESAID_REQUIRE_KEYS=true" in (ROOT / "deploy" / file).read_text("utf-8")
