"""Many pages in one loop, among servers that behave badly."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from tests.health.support import answers, drips, engine_page, floods, free_port, sends, stub_server
from trtllm_kit.health.access import ANYBODY, Access
from trtllm_kit.health.snapshot import Outcome
from trtllm_kit.health.sources import http_many
from trtllm_kit.health.sources.http_answer import Answer
from trtllm_kit.health.sources.http_get import get
from trtllm_kit.health.sources.http_many import Many, is_for_many


def asked(*urls: str, seconds: float = 2.0) -> list[Answer]:
    """Ask for pages in one loop; returns the answers in the order of the pages."""
    many = Many(seconds)
    for number, url in enumerate(urls):
        many.ask(number, url, ANYBODY)
    came = {one.number: one.answer for one in many.answers()}
    return [came[number] for number in range(len(urls))]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na \r\n2\r\n1\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\nServer: old\n\na 1\n", b"HTTP/1.1 302 Found\r\nLocation: http://h/\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na", b"SSH-2.0\r\n", b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\na", b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\na",
    ],
)  # fmt: skip
def test_an_answer_reads_as_one_that_is_waited_for(data: bytes) -> None:
    """Whatever a server sends, the loop and the plain GET say the same of it."""
    with stub_server(sends(data)) as url:
        alone = get(url, 2.0)
        assert [alone, alone] == asked(url, url)


def test_what_cannot_be_asked_is_answered_at_once() -> None:
    """A closed port refuses, a URL without meaning has no address, and the page beside them is read."""
    with stub_server(answers("a 1\n")) as url:
        outcomes = [one.outcome for one in asked(f"http://127.0.0.1:{free_port()}/", "ftp://h/", url)]
    assert [Outcome.REFUSED, Outcome.NO_ADDRESS, Outcome.OK] == outcomes


def test_a_secret_that_is_not_there_asks_nothing(tmp_path: Path) -> None:
    """A page whose token cannot be read is not asked for."""
    seen: list[bytes] = []
    with stub_server(answers("a 1\n"), seen) as url:
        many = Many(2.0)
        many.ask(0, url, Access(bearer_file=str(tmp_path / "none")))
        assert [Outcome.NO_SECRET] == [came.answer.outcome for came in many.answers()]
    assert [] == seen


def test_a_server_that_drips_or_floods_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside one that sends a byte now and then, one that never ends, and one that is silent, a page comes first."""
    monkeypatch.setattr(http_many, "MAX_BYTES", 1 << 20)
    silent = socket.create_server(("127.0.0.1", 0))
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    with (
        silent,
        stub_server(drips(head)) as slow,
        stub_server(floods(head, b"x" * 65536)) as flood,
        stub_server(answers("a 1\n")) as good,
    ):
        many = Many(1.0)
        for number, url in enumerate((slow, f"http://127.0.0.1:{silent.getsockname()[1]}/", flood, good)):
            many.ask(number, url, ANYBODY)
        came = list(many.answers())
    outcomes = {one.number: one.answer.outcome for one in came}
    assert {0: Outcome.TIMEOUT, 1: Outcome.TIMEOUT, 2: Outcome.TOO_MUCH, 3: Outcome.OK} == outcomes
    assert {0, 1} == {one.number for one in came[2:]}


def test_more_than_may_be_open_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for three connections no more than three are open, and ten pages are read."""
    monkeypatch.setattr(http_many, "AT_ONCE", 3)
    lock, now, most = threading.Lock(), [0], [0]

    def serve(connection: socket.socket) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1
        answers("a 1\n")(connection)

    with stub_server(serve) as url:
        assert [Outcome.OK] * 10 == [one.outcome for one in asked(*[url] * 10, seconds=10.0)]
    assert most[0] <= 3


def test_a_page_is_asked_for_again_at_its_time() -> None:
    """What is asked again while answers come is asked when it is due, and not before."""
    with stub_server(answers("a 1\n", "a 2\n")) as url:
        many, bodies, starts = Many(5.0), list[bytes](), list[float]()
        many.ask(0, url, ANYBODY)
        for came in many.answers():
            bodies.append(came.answer.body)
            starts.append(came.monotonic_seconds)
            if len(bodies) == 1:
                many.ask(0, url, ANYBODY, came.monotonic_seconds + 0.2)
    assert [b"a 1\n", b"a 2\n"] == bodies
    assert starts[1] >= starts[0] + 0.2


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:1/m", True), ("http://[::1]:1/m", True), ("https://127.0.0.1:1/m", False),
        ("http://localhost:1/m", False), ("nonsense", True),
    ],
)  # fmt: skip
def test_which_pages_need_nobody_to_wait(url: str, expected: bool) -> None:
    """Numbers over plain HTTP; a look-up and a handshake would make others wait."""
    assert expected is is_for_many(url)


def test_what_looks_like_a_number_and_is_none_is_not_looked_up() -> None:
    """Five numbers in a row are no address, and no name server is asked for them."""
    assert [Outcome.NO_ADDRESS, Outcome.NO_ADDRESS] == [
        get("http://1.2.3.4.5/", 2.0).outcome,
        *_only("http://1.2.3.4.5/"),
    ]


def _only(url: str) -> list[Outcome]:
    return [one.outcome for one in asked(url)]


def test_a_page_of_real_size_is_whole() -> None:
    """Some megabytes in many pieces come together."""
    text = "".join(f"{engine_page(f'm{number}')}" for number in range(500))
    with stub_server(answers(text)) as url:
        (answer,) = asked(url, seconds=10.0)
    assert text.encode() == answer.body
