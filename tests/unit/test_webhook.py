"""Webhooks: what is signed, what is sent, and which addresses are refused."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest

from rowlock import SettingsError
from rowlock.errors import NoticeFailed
from rowlock.observe import webhook

KEY = bytes(range(32))
BODY = b'{"type":"jobs.dead"}'
ID = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"


@dataclass
class Receiver:
    """A real server on loopback that keeps what it is sent."""

    port: int
    status: int = 204
    location: str | None = None
    stalled: threading.Event | None = None
    endless: bool = False
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/a?b=c"


def serve(context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            if receiver.stalled is not None:
                receiver.stalled.wait(20)
            self.send_response(receiver.status)
            if receiver.location is not None:
                self.send_header("Location", receiver.location)
            self.end_headers()
            try:
                while receiver.endless:
                    self.wfile.write(b"x" * 65_536)
            except OSError:  # nobody reads it
                pass

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None: ...  # a client that does not trust us

    with Server(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        receiver = Receiver(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield receiver
        finally:
            if receiver.stalled is not None:
                receiver.stalled.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    yield from serve()


def resolve_to(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Names have these addresses, one answer after the other; returns what was asked."""
    asked: list[str] = []
    rest = list(answers)

    async def getaddrinfo(_loop: object, host: str, port: int, **_: object) -> list[object]:
        asked.append(host)
        found = rest.pop(0) if len(rest) > 1 else rest[0]
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0))
            if ":" in address
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in found
        ]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return asked


def no_dialling(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that are not of this machine are only noted, also when the guard is broken; returns them."""
    dialled: list[str] = []

    async def dial(target: object, addresses: list[object], headers: object, body: object) -> int:
        dialled.extend(map(str, addresses))
        return 204

    monkeypatch.setattr(webhook, "_deliver", dial)
    return dialled


async def test_it_is_posted_as_json_and_signed_as_the_specification_says(receiver: Receiver) -> None:
    before = int(time.time())
    await webhook.post(receiver.url, KEY, ID, BODY, allow_private=True)
    ((path, headers, body),) = receiver.requests
    assert (path, body, headers["content-type"]) == ("/hooks/a?b=c", BODY, "application/json")
    assert headers["host"] == f"127.0.0.1:{receiver.port}"
    assert headers["webhook-id"] == ID
    assert before <= int(headers["webhook-timestamp"]) <= int(time.time())
    content = f"{ID}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(KEY, content, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


def test_the_signature_is_that_of_the_specifications_example() -> None:
    secret = webhook.decode_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = webhook.signed(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', 1614265330)
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize("status", [200, 201, 299])
async def test_any_2xx_is_accepted(receiver: Receiver, status: int) -> None:
    receiver.status = status
    await webhook.post(receiver.url, KEY, ID, BODY, allow_private=True)


@pytest.mark.parametrize("status", [400, 404, 410, 429, 500, 503])
async def test_anything_else_has_failed(receiver: Receiver, status: int) -> None:
    receiver.status = status
    with pytest.raises(NoticeFailed, match=f"answered {status}"):
        await webhook.post(receiver.url, KEY, ID, BODY, allow_private=True)


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.status, receiver.location = 307, receiver.url
    with pytest.raises(NoticeFailed, match=r"answered 307 .*not followed"):
        await webhook.post(receiver.url, KEY, ID, BODY, allow_private=True)
    assert len(receiver.requests) == 1


async def test_an_endless_answer_is_not_read(receiver: Receiver) -> None:
    receiver.status, receiver.endless = 200, True
    async with asyncio.timeout(60):
        await webhook.post(receiver.url, KEY, ID, BODY, allow_private=True)
    receiver.endless = False


async def test_no_answer_ends_in_time(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT_SECONDS", 0.2)
    receiver.stalled = threading.Event()
    with pytest.raises(NoticeFailed, match=r"no answer"):
        await webhook.post(receiver.url, KEY, ID, BODY, allow_private=True)


async def test_nobody_there_and_no_such_name_are_failures_that_name_no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://user:hunter2@127.0.0.1:{closed.getsockname()[1]}/s3cret"
        with pytest.raises(NoticeFailed, match="cannot be reached") as caught:
            await webhook.post(url, KEY, ID, BODY, allow_private=True)
    assert "s3cret" not in str(caught.value)
    assert "hunter2" not in str(caught.value)

    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", unknown)
    with pytest.raises(NoticeFailed, match="cannot be resolved"):
        await webhook.post("https://nowhere.test/", KEY, ID, BODY, allow_private=False)


SPELLINGS = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "127.0.0.1.",
    "0",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:0:0:1]",
    "localhost",
    "LOCALHOST",
]


@pytest.mark.parametrize("host", SPELLINGS)
async def test_loopback_is_not_reached_however_it_is_spelled(receiver: Receiver, host: str) -> None:
    with pytest.raises(NoticeFailed, match=r"private address|cannot be resolved|is not a URL"):
        await webhook.post(f"http://{host}:{receiver.port}/", KEY, ID, BODY, allow_private=False)
    assert receiver.requests == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "localhost"])
async def test_the_same_spellings_reach_it_where_that_is_allowed(receiver: Receiver, host: str) -> None:
    await webhook.post(f"http://{host}:{receiver.port}/", KEY, ID, BODY, allow_private=True)
    assert receiver.requests[0][1]["host"] == f"{host}:{receiver.port}"


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "192.168.1.1",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "fe80::1",
        "fe80::1%2",
        "fc00::1",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2001:0:7f00:1::1",
        "100::1",
    ],
)
def test_an_address_that_is_not_of_the_open_internet(address: str) -> None:
    assert not webhook.is_public(ip_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
)
def test_an_address_that_is(address: str) -> None:
    assert webhook.is_public(ip_address(address))


@pytest.mark.parametrize("answer", [["10.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["8.8.8.8", "::1"], ["::ffff:10.0.0.1"]])
async def test_one_private_address_of_a_name_is_enough(monkeypatch: pytest.MonkeyPatch, answer: list[str]) -> None:
    resolve_to(monkeypatch, answer)
    dialled = no_dialling(monkeypatch)
    with pytest.raises(NoticeFailed, match="private address"):
        await webhook.post("https://hooks.test/", KEY, ID, BODY, allow_private=False)
    assert dialled == []


async def test_a_name_that_changes_its_mind_is_not_asked_again(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The public answer is checked; what would be private the next time is never seen.
    asked = resolve_to(monkeypatch, ["8.8.8.8"], ["127.0.0.1"])
    dialled = no_dialling(monkeypatch)
    await webhook.post(f"http://hooks.test:{receiver.port}/", KEY, ID, BODY, allow_private=False)
    assert (asked, dialled, receiver.requests) == (["hooks.test"], ["8.8.8.8"], [])


async def test_the_connection_goes_to_the_address_that_was_checked_under_the_hosts_name(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "is_public", lambda address: str(address) == "127.0.0.1")
    asked = resolve_to(monkeypatch, ["127.0.0.1"], ["127.9.9.9"])
    await webhook.post(f"http://hooks.test:{receiver.port}/", KEY, ID, BODY, allow_private=False)
    assert receiver.requests[0][1]["host"] == f"hooks.test:{receiver.port}"
    assert asked[0] == "hooks.test"
    assert set(asked[1:]) <= {"127.0.0.1"}  # the dialler may look at the address itself, never at the name


async def test_an_address_that_refuses_is_followed_by_the_next(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, ["127.9.9.9", "127.0.0.1"], ["127.9.9.9"], ["127.0.0.1"])
    await webhook.post(f"http://hooks.test:{receiver.port}/", KEY, ID, BODY, allow_private=True)
    assert len(receiver.requests) == 1


async def test_no_proxy_of_the_environment_is_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    await webhook.post(receiver.url, KEY, ID, BODY, allow_private=True)
    assert len(receiver.requests) == 1


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate, with its key, of hooks.test, and of nobody else."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    made = tmp_path / "hooks.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=hooks.test -addext subjectAltName=DNS:hooks.test"
    )
    done = subprocess.run(
        [*command.split(), "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"], capture_output=True
    )
    assert done.returncode == 0, done.stderr
    made.write_text((tmp_path / "cert.pem").read_text() + (tmp_path / "key.pem").read_text())
    return made


@pytest.fixture
def secure(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Receiver, list[str | None]]]:
    """A TLS server that is trusted, and the names that clients asked it for."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    webhook._certificates.cache_clear()
    names: list[str | None] = []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    for receiver in serve(context):
        yield receiver, names
    webhook._certificates.cache_clear()


async def test_tls_is_verified_for_the_name_and_not_for_the_address(
    secure: tuple[Receiver, list[str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, names = secure
    resolve_to(monkeypatch, ["127.0.0.1"])
    await webhook.post(f"https://hooks.test:{receiver.port}/x", KEY, ID, BODY, allow_private=True)
    assert names == ["hooks.test"]
    assert receiver.requests[0][1]["host"] == f"hooks.test:{receiver.port}"
    for host in ("other.test", "127.0.0.1"):
        with pytest.raises(NoticeFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await webhook.post(f"https://{host}:{receiver.port}/x", KEY, ID, BODY, allow_private=True)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "hunter2hunter2hunter2",
        "whsec_",
        "whsec_!!!not base64!!!",
        "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
        base64.b64encode(b"x" * 32).decode(),
    ],
)
def test_a_secret_that_is_none_is_refused_without_being_told(secret: str) -> None:
    with pytest.raises(SettingsError, match=r"ROWLOCK_WEBHOOK_SECRET: must be whsec_.* 24 to 64") as caught:
        webhook.decode_secret(secret)
    assert secret in ("", "whsec_") or secret not in str(caught.value)


@pytest.mark.parametrize("size", [24, 64])
def test_a_secret_at_its_limits(size: int) -> None:
    assert webhook.decode_secret("whsec_" + base64.b64encode(b"x" * size).decode()) == b"x" * size


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.test/a",
        "ftp://hooks.test/",
        "https://",
        "https:///a",
        "http://[::1",
        "http://a b/",
        "http://x:99999/",
    ],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        webhook.check_url(url, allow_private=True)


def test_a_url_has_a_limit() -> None:
    start = "https://hooks.test/"
    webhook.check_url(start + "x" * (webhook.URL_LENGTH_MAX - len(start)), allow_private=False)
    with pytest.raises(ValueError, match="longer than 2000"):
        webhook.check_url(start + "x" * (webhook.URL_LENGTH_MAX - len(start) + 1), allow_private=False)


@pytest.mark.parametrize("host", [host for host in SPELLINGS if host.lower() != "localhost" and host != "127.0.0.1."])
def test_a_private_address_is_refused_at_start(host: str) -> None:
    with pytest.raises(ValueError, match=r"private address|is not a URL"):
        webhook.check_url(f"http://{host}/", allow_private=False)
    if not host.startswith("0177.0.0"):  # httpx takes no octal number among four
        webhook.check_url(f"http://{host}/", allow_private=True)


def test_a_place_shows_no_secret() -> None:
    assert webhook.place("https://u:hunter2@hooks.test:8443/T0/s3cret?token=x#y") == "https://hooks.test:8443/…"
    assert webhook.place("http://0177.0.0.1/s3cret") == "…"


def test_without_httpx_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(
        SettingsError, match=r"ROWLOCK_WEBHOOK_URLS: webhooks need httpx: pip install 'rowlock\[notify\]'"
    ):
        webhook.check_url("https://hooks.test/", allow_private=False)
