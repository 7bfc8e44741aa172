"""HTTP and events, as their bytes come."""

from __future__ import annotations

import pytest

from trtllm_kit.bench.http_stream import Malformed, Response

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """Return a chunk."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def test_events_are_the_same_wherever_the_bytes_are_cut() -> None:
    """A stream cut in two at any place gives the same events, and is complete only at its end."""
    raw = HEAD + chunk(b'data: {"a": 1}\n\nda') + chunk(b"ta: b\r\n\r\n: note\n\n") + chunk(b"data:c\ndata: d\n\n")
    raw += b"0\r\n\r\n"
    for cut in range(len(raw) + 1):
        response = Response()
        events = response.feed(raw[:cut])
        assert (cut == len(raw)) is response.complete
        events += response.feed(raw[cut:])
        assert ([b'{"a": 1}', b"b", b"c\nd"], True, True) == (events, response.complete, response.keeps_alive)


def test_a_plain_answer_ends_at_its_length() -> None:
    """An answer that is no stream is kept as it is, up to its length."""
    response = Response()
    assert [] == response.feed(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy")
    assert (503, b"busy", True, False) == (response.status, response.body, response.complete, response.streams)


def test_an_answer_without_length_ends_with_the_connection() -> None:
    """Where nobody tells a length, the end of the connection completes the answer, and it serves no other request."""
    response = Response()
    events = response.feed(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n")
    before = response.complete
    response.end()
    assert ([b"x"], False, True, False) == (events, before, response.complete, response.keeps_alive)


def test_a_chunked_answer_that_is_cut_is_not_complete() -> None:
    """The end of the connection does not complete an answer whose last chunk is missing."""
    response = Response()
    response.feed(HEAD + chunk(b"data: x\n\n"))
    response.end()
    assert not response.complete


def test_100_continue_stands_before_the_answer() -> None:
    """An interim response is passed over."""
    response = Response()
    response.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")
    assert (204, True) == (response.status, response.complete)


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        HEAD + b"zz\r\n",
        HEAD + b"2\r\nabcd",
        HEAD + b"fffffff\r\n",
    ],
)
def test_other_bytes_are_malformed(raw: bytes) -> None:
    """What HTTP does not allow is refused, not waited on."""
    with pytest.raises(Malformed):
        Response().feed(raw)
