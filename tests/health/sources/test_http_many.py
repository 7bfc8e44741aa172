"""Many pages in one loop, among servers that behave badly."""

from __future__ import annotations

import errno
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


_Socket = socket.socket


class _Sockets:
    """The system's sockets of which only some may be asked with at the same time; servers have as many as they like."""

    def __init__(self, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.most = 0, most
        monkeypatch.setattr(http_many.socket, "socket", self.make)

    def make(self, *kind: int, **accepted: int) -> socket.socket:
        """Return a socket, where there is one left."""
        if accepted:
            return _Socket(*kind, **accepted)
        if self.open >= self.most:
            raise OSError(errno.EMFILE, "Too many open files")
        self.open += 1
        made = _CountedSocket(*kind)
        made.among = self
        return made


class _CountedSocket(_Socket):
    among: _Sockets

    def close(self) -> None:
        """Give the socket back."""
        self.among.open -= self.fileno() >= 0
        super().close()


def test_where_few_files_may_be_open_pages_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without file descriptors says nothing of the servers: each is asked when one is free again."""
    urls = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    silent = [f"http://127.0.0.1:{server.getsockname()[1]}/" for server in urls]
    with stub_server(answers("a 1\n")) as url:
        _Sockets(3, monkeypatch)
        outcomes = [one.outcome for one in asked(*silent, *[url] * 6, seconds=0.3)]
    for server in urls:
        server.close()
    assert [Outcome.TIMEOUT] * 3 + [Outcome.OK] * 6 == outcomes


def test_a_machine_that_can_open_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not one file may be opened nobody is called dead."""
    with stub_server(answers("a 1\n")) as url:
        _Sockets(0, monkeypatch)
        answer, alone = asked(url)[0], get(url, 2.0)
    assert (Outcome.NO_ROOM, "this machine could not ask: Too many open files") == (answer.outcome, answer.reason)
    assert alone == answer


def test_many_that_flood_hold_no_more_than_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of servers whose answers never end, all together get one room, and a page beside them has its own."""
    for name, size in (("MAX_BYTES", 8 << 20), ("OWN_BYTES", 1 << 17), ("SHARED_BYTES", 1 << 20)):
        monkeypatch.setattr(http_many, name, size)
    with stub_server(floods(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536)) as flood, stub_server(answers("a 1\n")) as url:
        came = asked(*[flood] * 8, url, seconds=5.0)
    assert {Outcome.TOO_MUCH} == {one.outcome for one in came[:8]}
    assert Outcome.OK is came[8].outcome
    assert any("the answers of many servers at once are larger than 1048576 bytes" == one.reason for one in came)


def test_room_that_was_shared_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large pages one after another are read, however often."""
    for name, size in (("OWN_BYTES", 1000), ("SHARED_BYTES", 20_000), ("AT_ONCE", 2)):
        monkeypatch.setattr(http_many, name, size)
    text = "a 1\n" * 2500
    with stub_server(answers(text)) as url:
        assert [Outcome.OK] * 12 == [one.outcome for one in asked(*[url] * 12, seconds=5.0)]


def test_who_judges_for_long_makes_no_server_late() -> None:
    """A page that came in time is whole though little time was left to read it between the others."""
    text = "".join(engine_page(f"m{number}") for number in range(300))
    assert len(text) > 3 * http_many.PIECE

    def later(connection: socket.socket) -> None:
        time.sleep(0.3)
        answers(text)(connection)

    with stub_server(answers("a 1\n")) as url, stub_server(later) as slow:
        many = Many(1.0)
        for number, one in enumerate([url] * 5 + [slow]):
            many.ask(number, one, ANYBODY)
        outcomes = {}
        for came in many.answers():
            outcomes[came.number] = came.answer.outcome
            time.sleep(0.25)
    assert {Outcome.OK} == set(outcomes.values())
