"""One bounded GET, against servers that behave badly."""

from __future__ import annotations

import resource
import socket
import time

import pytest

from tests.health.support import answers, drips, floods, free_port, sends, stub_server
from trtllm_kit.health.snapshot import Outcome
from trtllm_kit.health.sources.http_get import get

TIMEOUT = 0.4
SLACK = 0.6


def test_a_good_answer_is_complete() -> None:
    """Status 200 gives the body and no reason."""
    with stub_server(answers("a 1\n")) as url:
        answer = get(url, 2.0)
    assert (Outcome.OK, "", 200, b"a 1\n") == (answer.outcome, answer.reason, answer.status, answer.body)


def test_a_chunked_answer_is_put_together() -> None:
    """Chunks are joined."""
    with stub_server(
        sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na \r\n2\r\n1\n\r\n0\r\n\r\n")
    ) as url:
        assert b"a 1\n" == get(url, 2.0).body


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    """The oldest framing is read too."""
    with stub_server(sends(b"HTTP/1.0 200 OK\nServer: old\n\na 1\n")) as url:
        assert b"a 1\n" == get(url, 2.0).body


def test_an_answer_in_single_bytes_is_put_together() -> None:
    """How the answer is cut into packets does not matter."""

    def serve(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\na 1\r\n1\r\n\n\r\n0\r\n\r\n":
            connection.sendall(bytes([byte]))

    with stub_server(serve) as url:
        assert b"a 1\n" == get(url, 2.0).body


def test_the_request_asks_for_the_text_format() -> None:
    """The request names path, query, host and the one format that is read."""
    seen: list[bytes] = []
    with stub_server(answers("a 1\n"), seen) as url:
        get(f"{url}?x=1", 2.0)
    assert seen[0].startswith(b"GET /metrics?x=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"Accept: text/plain;version=0.0.4\r\n" in seen[0]


def test_a_closed_port_refuses() -> None:
    """Nothing that listens is REFUSED."""
    assert Outcome.REFUSED is get(f"http://127.0.0.1:{free_port()}/metrics", 2.0).outcome


def test_a_refusal_counts_more_than_another_address_that_fails_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with two addresses of which one refuses and the other cannot be reached is REFUSED."""
    stream = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
    addresses = [(*stream, ("127.0.0.1", free_port())), (*stream, ("255.255.255.255", 80))]
    for order in (addresses, addresses[::-1]):
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, order=order, **__: order)
        assert Outcome.REFUSED is get("http://two-addresses/metrics", 2.0).outcome
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses[1:])
    assert Outcome.BROKEN is get("http://one-address/metrics", 2.0).outcome


def test_a_look_up_that_hangs_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's look-up has no time-out; ours has."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(2) or [])
    start = time.monotonic()
    assert Outcome.NO_ADDRESS is get("http://slow-name/metrics", TIMEOUT).outcome
    assert time.monotonic() - start < TIMEOUT + SLACK


def test_a_length_beyond_the_bound_is_refused_before_it_is_sent() -> None:
    """Nothing is waited for when the head already says that the answer is too large."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 209715200\r\n\r\n")
        time.sleep(2)

    with stub_server(serve) as url:
        assert Outcome.TOO_MUCH is get(url, 1.0).outcome


@pytest.mark.parametrize(
    ("serve", "outcome", "status"),
    [
        (answers("busy", status="500 Internal Server Error"), Outcome.HTTP_ERROR, 500),
        (answers("", status="503 Service Unavailable"), Outcome.HTTP_ERROR, 503),
        (answers("", status="404 Not Found"), Outcome.HTTP_ERROR, 404),
        (answers("", status="302 Found", head="Location: http://127.0.0.1/elsewhere\r\n"), Outcome.HTTP_ERROR, 302),
        (answers("a 1\n", status="204 No Content"), Outcome.HTTP_ERROR, 204),
        (sends(b""), Outcome.BROKEN, None),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\na 1\n"), Outcome.BROKEN, None),
        (sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\na 1\n"), Outcome.BROKEN, None),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), Outcome.GARBAGE, None),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n"), Outcome.GARBAGE, None),
        (sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"), Outcome.GARBAGE, None),
        (sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\na 1\n"), Outcome.GARBAGE, None),
        (sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"), Outcome.GARBAGE, None),
        (sends(b"HTTP/1.1 200 " + b"x" * 200_000), Outcome.GARBAGE, None),
        (answers("a 1\n", head="Content-Encoding: gzip\r\n"), Outcome.GARBAGE, None),
        (sends(b"HTTP/1.1 100 Continue\r\n\r\n"), Outcome.HTTP_ERROR, 100),
        (sends(b"SSH-2.0-OpenSSH_9.2\r\n"), Outcome.GARBAGE, None),
        (sends(b"HTTP/1.1 abc\r\n\r\n"), Outcome.GARBAGE, None),
        (sends(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n"), Outcome.GARBAGE, None),
    ],
)
def test_a_bad_answer_is_data(serve: object, outcome: Outcome, status: int | None) -> None:
    """Every bad answer has its outcome and reason; nothing is raised and no redirect is followed."""
    with stub_server(serve) as url:  # type: ignore[arg-type]
        answer = get(url, 2.0)
    assert (outcome, status) == (answer.outcome, answer.status)
    assert answer.reason
    assert b"" == answer.body


@pytest.mark.parametrize(
    "serve",
    [
        lambda connection: time.sleep(3),
        drips(b""),
        drips(b"HTTP/1.1 200 OK\r\nX-Slow: "),
        drips(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
        drips(b"HTTP/1.1 200 OK\r\n\r\n"),
    ],
    ids=["silent", "slow-status", "slow-head", "slow-body", "slow-endless"],
)
def test_everything_that_is_slow_ends_at_the_deadline(serve: object) -> None:
    """Silence and slow loris in the status line, the head or the body end within the time-out."""
    start = time.monotonic()
    with stub_server(serve) as url:  # type: ignore[arg-type]
        answer = get(url, TIMEOUT)
        elapsed = time.monotonic() - start
    assert Outcome.TIMEOUT is answer.outcome
    assert elapsed < TIMEOUT + SLACK


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 209715200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n",
    ],
    ids=["endless", "200-mb", "absurd-chunk", "many-chunks"],
)
def test_everything_that_is_large_ends_at_the_size(head: bytes) -> None:
    """An endless or huge answer is refused as soon as the bound is passed, whatever its head claims."""
    with stub_server(floods(head, b"x" * 65536 + b"\r\n10000\r\n")) as url:
        answer = get(url, 5.0, max_bytes=1 << 20)
    assert Outcome.TOO_MUCH is answer.outcome
    assert "larger than 1048576 bytes" in answer.reason


def test_a_flood_costs_bounded_memory() -> None:
    """The largest answer that is read costs tens of megabytes, not what the server sends."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with stub_server(floods(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536)) as url:
        assert Outcome.TOO_MUCH is get(url, 10.0).outcome
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.parametrize(
    "url",
    [
        "",
        "metrics",
        "http://",
        "http:///metrics",
        "ftp://127.0.0.1:8002/metrics",
        "ftp://127.0.0.1/metrics",
        "http://127.0.0.1:99999/metrics",
        "http://127.0.0.1:port/metrics",
        "http://[::1/metrics",
        "http://127.0.0.1:8002/a b",
        "http://127.0.0.1:8002/\r\nX: y",
        "http://no-such-host.invalid:8002/metrics",
        "http://" + "a" * 70 + ".invalid/metrics",
        "http://..:8002/metrics",
        "http://user:secret@127.0.0.1:8002/metrics",
    ],
)
def test_a_url_without_meaning_has_no_address(url: str) -> None:
    """A URL that cannot be asked is NO_ADDRESS with a reason that shows no password."""
    answer = get(url, 5.0)
    assert Outcome.NO_ADDRESS is answer.outcome
    assert "secret" not in answer.reason
