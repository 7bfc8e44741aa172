"""TLS and secrets: what is believed, what is refused, and that no secret is ever shown."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.health.support import answers, engine_page, sends, stub_server
from tests.support.cli import trtkit
from trtllm_kit.health.access import ANYBODY, Access, NoSecret, authorization
from trtllm_kit.health.builtin import scrape as judge_scrape
from trtllm_kit.health.snapshot import Outcome, Target
from trtllm_kit.health.sources.http_get import get
from trtllm_kit.health.sources.prometheus_text import scrape
from trtllm_kit.health.verdict import State

SECRET = "s3cr3t-t0ken"
PROFILE = "cpu-rehearsal-simulated"


def certificate(folder: Path, name: str, days: int = 2) -> Path:
    """Make a key and a certificate of its own for a name, in one file; it ends in so many days."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("SKIPPED FOR LACK OF A TOOL: no openssl")
    key, asked, cert, more = (folder / part for part in ("key.pem", "asked.csr", "cert.pem", "more.cnf"))
    more.write_text(f"subjectAltName=DNS:{name}\n")
    words = [openssl, "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"]
    subprocess.run([*words, "-keyout", str(key), "-out", str(asked)], check=True, capture_output=True)
    words = [openssl, "x509", "-req", "-in", str(asked), "-signkey", str(key), "-days", str(days)]
    subprocess.run([*words, "-extfile", str(more), "-out", str(cert)], check=True, capture_output=True)
    both = folder / f"{name}.pem"
    both.write_text(key.read_text() + cert.read_text())
    return both


@pytest.fixture(scope="module")
def localhost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a certificate for localhost."""
    return certificate(tmp_path_factory.mktemp("tls"), "localhost")


@pytest.fixture
def secure_page(localhost: Path) -> Iterator[str]:
    """Serve a page over TLS; yields its URL by the name of the certificate."""
    with served_with(localhost) as url:
        yield url


@contextmanager
def served_with(certified: Path) -> Iterator[str]:
    """Serve a page over TLS with a certificate for localhost; yields its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certified)

    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(plain, server_side=True) as connection:
                    connection.recv(65536)
                    answers(engine_page())(connection)
            except OSError:
                continue

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"https://localhost:{listener.getsockname()[1]}/metrics"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_a_certificate_of_a_trusted_authority_is_good(secure_page: str, localhost: Path) -> None:
    """With its authority named the page is read."""
    assert Outcome.OK is scrape(secure_page, 3.0, access=Access(ca_file=str(localhost))).outcome


def test_a_certificate_of_nobody_is_critical_with_the_reason(secure_page: str) -> None:
    """A certificate that nobody trusted signed is CRITICAL, and says why."""
    snapshot = scrape(secure_page, 3.0)
    finding = judge_scrape(Target(secure_page), (snapshot,))
    assert (Outcome.CERTIFICATE, State.CRITICAL) == (snapshot.outcome, finding.state)
    assert "self-signed certificate" in finding.message.replace("self signed", "self-signed")


def test_a_certificate_that_has_ended_is_critical_with_the_reason(tmp_path: Path) -> None:
    """One that is trusted and was good until yesterday is CRITICAL, and the advice is to renew it."""
    ended = certificate(tmp_path, "localhost", days=-1)
    with served_with(ended) as url:
        snapshot = scrape(url, 3.0, access=Access(ca_file=str(ended)))
    finding = judge_scrape(Target(url), (snapshot,))
    assert (State.CRITICAL, True) == (finding.state, "certificate has expired" in finding.message)
    assert finding.advice.startswith("renew the certificate")


def test_a_certificate_of_another_name_is_critical(secure_page: str, localhost: Path) -> None:
    """A certificate for localhost is not good for the number of the same machine."""
    snapshot = scrape(secure_page.replace("localhost", "127.0.0.1"), 3.0, access=Access(ca_file=str(localhost)))
    assert Outcome.CERTIFICATE is snapshot.outcome
    assert "127.0.0.1" in snapshot.reason


def test_trust_that_cannot_be_read_is_unknown(secure_page: str, tmp_path: Path) -> None:
    """A file of authorities that is not there, or holds none, says nothing of the server, and is the reason."""
    (tmp_path / "empty.pem").write_text("nothing")
    for name in ("none.pem", "empty.pem"):
        snapshot = scrape(secure_page, 3.0, access=Access(ca_file=str(tmp_path / name)))
        finding = judge_scrape(Target(secure_page), (snapshot,))
        assert (Outcome.NO_SECRET, State.UNKNOWN) == (snapshot.outcome, finding.state)
        assert name in finding.message
        assert "--ca" in finding.advice


@pytest.mark.parametrize("serve", [answers(engine_page()), sends(b""), sends(b"\x15\x03\x01\x00\x02\x02\x28")])
def test_a_server_without_tls_is_no_crash(serve: object) -> None:
    """Https to a port that speaks something else is a broken connection."""
    with stub_server(serve) as url:  # type: ignore[arg-type]
        outcome = get(url.replace("http:", "https:"), 3.0).outcome
    assert outcome in {Outcome.BROKEN, Outcome.TIMEOUT}


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("bearer_file", f"{SECRET}\n", f"Bearer {SECRET}"),
        ("basic_file", "user:pass word\n", "Basic dXNlcjpwYXNzIHdvcmQ="),
    ],
)
def test_a_secret_from_a_file_is_sent(kind: str, text: str, expected: str, tmp_path: Path) -> None:
    """The header of a token, and of a user and password."""
    (tmp_path / "secret").write_text(text)
    seen: list[bytes] = []
    with stub_server(answers(engine_page()), seen) as url:
        get(url, 2.0, access=Access(**{kind: str(tmp_path / "secret")}))
    assert f"Authorization: {expected}\r\n".encode() in seen[0]


def test_a_secret_from_the_environment_is_for_targets_alone() -> None:
    """The variables are read where a target is asked for, and for nobody else."""
    environment = {"TRTKIT_BEARER_TOKEN": SECRET}
    assert f"Bearer {SECRET}" == authorization(Access(environment=True), environment)
    assert "" == authorization(Access(), environment) == authorization(ANYBODY, environment)


@pytest.mark.parametrize("text", ["", "two words", "a\x00b", "tök"])
def test_a_token_that_is_none_is_refused_without_showing_it(text: str, tmp_path: Path) -> None:
    """What cannot stand in a header is no token; the message names the file and not what is in it."""
    (tmp_path / "secret").write_text(text)
    with pytest.raises(NoSecret) as raised:
        authorization(Access(bearer_file=str(tmp_path / "secret")), {})
    assert not text or text not in str(raised.value)


def test_a_login_that_is_no_text_is_refused() -> None:
    """Bytes that are no UTF-8 in the variable are no user and password."""
    with pytest.raises(NoSecret, match="no text in UTF-8"):
        authorization(Access(environment=True), {"TRTKIT_BASIC_AUTH": "u:\udcff"})


def test_a_secret_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    """Without its token the question is not asked."""
    seen: list[bytes] = []
    with stub_server(answers(engine_page()), seen) as url:
        answer = get(url, 2.0, access=Access(bearer_file=str(tmp_path / "none")))
    assert (Outcome.NO_SECRET, []) == (answer.outcome, seen)


def test_no_secret_is_shown_or_kept(tmp_path: Path, own_state: Path) -> None:
    """Neither output, nor state, nor what is compiled holds the token; pages beside the target do not get it."""
    (tmp_path / "token").write_text(SECRET)
    seen: list[bytes] = []
    with stub_server(answers(engine_page()), seen) as url, stub_server(answers("a 1\n"), seen) as beside:
        arguments = ("check-health", "-p", PROFILE, "--url", url, "--beside", beside, "--bearer", tmp_path / "token")
        shown = "".join(ran.out + ran.err for ran in (trtkit(*arguments, *more) for more in ((), ("--json",), ("-v",))))
    kept = "".join(file.read_text() for file in own_state.iterdir())
    assert SECRET not in shown + kept
    asked_with = [request for request in seen if SECRET.encode() in request]
    assert asked_with
    assert len(asked_with) < len(seen)
