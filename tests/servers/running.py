"""Servers and proxies as processes of their own, on free ports."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from tests.servers import programs
from tests.servers.ports import free_port
from tests.servers.waiting import LONGEST, listens

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


class Process:
    """A program that answers on an address."""

    def __init__(self, command: Sequence[str], address: str, log: Path, **environ: str) -> None:
        self.command = list(command)
        self.address = address
        self.log = log
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self, *, path: str = "/ready", is_up: Callable[[int], bool] = lambda status: status == 200
    ) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AFORESAID_")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, cwd=self.log.parent, env=clean | self._environ, stdout=log, stderr=log
            )
        self.wait(path, is_up)

    def wait(self, path: str, is_up: Callable[[int], bool]) -> None:
        until = time.monotonic() + LONGEST
        while time.monotonic() < until:
            assert self._process is not None
            assert self._process.poll() is None, f"it ended:\n{self.log.read_text()}"
            if listens(self.address):
                with suppress(httpx.TransportError):
                    if is_up(httpx.get(f"{self.address}{path}", timeout=5, verify=False).status_code):
                        return
            time.sleep(0.02)
        raise AssertionError(f"it does not answer:\n{self.log.read_text()}")

    def send(self, kind: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(kind)

    def ended(self) -> int:
        """Wait for the end; return the exit status."""
        assert self._process is not None
        return self._process.wait(timeout=LONGEST)

    def stop(self, kind: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None and self._process.poll() is None:
            self.send(kind)
            try:
                self._process.wait(timeout=LONGEST)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


def server(folder: Path, url: str, *arguments: str, **environ: str) -> Process:
    """`aforesaid serve`, not started."""
    port = free_port()
    command = [sys.executable, "-m", "aforesaid", "serve", "--url", url, "--port", str(port), *arguments]
    return Process(
        command,
        f"http://127.0.0.1:{port}",
        folder / f"server-{port}.log",
        PYTHONPATH=str(ROOT / "src"),
        **environ,
    )


def new_key(url: str, *arguments: str) -> str:
    """Create a key with the command line."""
    made = keys("create", *arguments, url=url)
    found = re.search(r"ak_\w+_[\w-]+", made)
    assert found, made
    return found[0]


def keys(*arguments: str, url: str) -> str:
    """Run `aforesaid keys`; return what it prints."""
    made = subprocess.run(
        [sys.executable, "-m", "aforesaid", "keys", *arguments, "--url", url],
        capture_output=True, text=True, check=True, timeout=LONGEST, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    return made.stdout + made.stderr


# Proxies with the shipped configuration, for servers on this machine and without a public name


NGINX = """
daemon off; error_log {root}/error.log; pid {root}/nginx.pid; worker_processes 1;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
    {server}
}}
"""


DEPLOY_PAGE = ROOT / "docs" / "how-to" / "deploy.md"
LOCATIONS = re.compile(r"^ *location ~\* .*\n *location / .*\n", re.MULTILINE)


def under_a_path(text: str) -> str:
    """nginx's shipped file with the locations that the deployment page names for a path."""
    locations = DEPLOY_PAGE.read_text("utf-8").partition("```nginx\n")[2].partition("```")[0]
    changed, count = LOCATIONS.subn(lambda _: locations, text)
    assert (bool(locations), count) == (True, 1)
    return changed


def nginx_configuration(port: int, addresses: Sequence[str], root: Path, *, path: str = "") -> str:
    """The shipped file with other addresses, names and certificates; everything else stays."""
    text = (DEPLOY / "nginx" / "aforesaid.conf").read_text("utf-8")
    text = under_a_path(text) if path else text
    servers = re.findall(r"^ *server 10\.0\.0\.\d+:8765([^;]*);\n", text, re.MULTILINE)
    assert len(servers) == 2
    ours = "".join(f"    server {each.removeprefix('http://')}{servers[0]};\n" for each in addresses)
    text = re.sub(
        r"(^ *server 10\.0\.0\.\d+:8765[^;]*;\n)+", lambda _: ours, text, count=1, flags=re.MULTILINE
    )
    text = text.replace("/etc/ssl/memory.example.org", str(root / "proxy-tls"))
    assert "listen 443 ssl" in text
    return text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace(
        "memory.example.org", "localhost"
    )


def certificate(root: Path) -> None:
    """A certificate for this machine."""
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=localhost",
            "-keyout", str(root / "proxy-tls.key"), "-out", str(root / "proxy-tls.pem"),
        ],
        check=True, capture_output=True, timeout=LONGEST,
    )  # fmt: skip


@contextmanager
def nginx(root: Path, addresses: Sequence[str], *, path: str = "") -> Iterator[str]:
    port = free_port()
    certificate(root)
    server = nginx_configuration(port, addresses, root, path=path)
    yield from _running(nginx_with(root, server, f"https://127.0.0.1:{port}{path}"))


BARE = "server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {address}; }} }}"


@contextmanager
def bare_nginx(root: Path, addresses: Sequence[str]) -> Iterator[str]:
    """nginx as somebody configures it without our file: it adds no header."""
    port = free_port()
    server = BARE.format(port=port, address=addresses[0])
    yield from _running(nginx_with(root, server, f"http://127.0.0.1:{port}"))


def nginx_with(root: Path, server: str, address: str) -> Process:
    (root / "nginx.conf").write_text(NGINX.format(root=root, server=server))
    command = [str(programs.nginx()), "-c", str(root / "nginx.conf"), "-p", str(root)]
    return Process(command, address, root / "nginx.log")


@contextmanager
def caddy(root: Path, addresses: Sequence[str], *, path: str = "") -> Iterator[str]:
    port = free_port()
    text = (DEPLOY / "caddy" / "Caddyfile").read_text("utf-8")
    assert "memory.example.org {" in text
    assert "reverse_proxy 10.0.0.11:8765 10.0.0.12:8765 {" in text
    ours = " ".join(each.removeprefix("http://") for each in addresses)
    text = text.replace("memory.example.org {", f"http://127.0.0.1:{port}, http://localhost:{port} {{")
    text = text.replace("10.0.0.11:8765 10.0.0.12:8765", ours)
    if path:
        # As the deployment page says.
        head, _, rest = text.partition(" {\n\t#")
        text = f"{head} {{\n\thandle_path {path}/* {{\n\t#{rest.rstrip()}\n}}\n"
    (root / "Caddyfile").write_text("{\n\tadmin off\n}\n" + text)
    command = [str(programs.caddy()), "run", "--config", str(root / "Caddyfile"), "--adapter", "caddyfile"]
    proxy = Process(
        command,
        f"http://127.0.0.1:{port}{path}",
        root / "caddy.log",
        XDG_DATA_HOME=str(root),
        XDG_CONFIG_HOME=str(root),
    )
    yield from _running(proxy)


HAPROXY = """
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    # A busy machine answers a check late; a server that stops answers it at once, with 503.
    timeout check 60s
    option redispatch
    retries 3
    # A server that refuses the connection has not seen the request: try another one.
    retry-on conn-failure
    default-server check inter 1s fall 1 rise 1
frontend all
    bind 127.0.0.1:{port}
    default_backend servers
backend servers
    option httpchk GET /ready
{servers}
"""


@contextmanager
def haproxy(root: Path, addresses: Sequence[str]) -> Iterator[str]:
    port = free_port()
    lines = (f"    server s{n} {each.removeprefix('http://')}" for n, each in enumerate(addresses))
    (root / "haproxy.cfg").write_text(HAPROXY.format(port=port, servers="\n".join(lines)))
    command = [str(programs.haproxy()), "-db", "-f", str(root / "haproxy.cfg")]
    yield from _running(Process(command, f"http://127.0.0.1:{port}", root / "haproxy.log"))


def _running(proxy: Process) -> Iterator[str]:
    proxy.start()
    try:
        yield proxy.address
    finally:
        proxy.stop()


PROXIES = {"nginx": nginx, "caddy": caddy}
