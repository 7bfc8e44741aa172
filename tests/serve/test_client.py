"""The client, against a server that answers with recorded and with broken bytes."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.ports import free_ports
from trtllm_kit.errors import RequestFailed, UsageError
from trtllm_kit.serve.client import Sampling, events, generate, ready, stream

Answerer = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


@pytest.fixture
def serve() -> Iterator[Callable[[Answerer], str]]:
    """Give a function that starts a server with one answer to every POST, and returns its URL."""
    servers: list[ThreadingHTTPServer] = []

    def begin(answer: Answerer) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                """Answer."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer(self, json.loads(body) | {"path": self.path})

            def log_message(self, *arguments: object) -> None:
                """Stay silent."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


def whole(status: int, body: bytes | dict[str, Any], asked: list[dict[str, Any]] | None = None) -> Answerer:
    """Make an answer with a status and a body; what was asked is kept in ``asked``."""

    def answer(handler: BaseHTTPRequestHandler, document: dict[str, Any]) -> None:
        if asked is not None:
            asked.append(document)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def chunked(*chunks: bytes | float, ends: bool = True) -> Answerer:
    """Make a chunked answer as Triton streams it; a number is a pause in seconds."""

    def answer(handler: BaseHTTPRequestHandler, _document: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for chunk in chunks:
            if isinstance(chunk, float):
                time.sleep(chunk)
                continue
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            handler.wfile.flush()
        if ends:
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.connection.shutdown(socket.SHUT_RDWR)

    return answer


def event(**document: Any) -> bytes:
    """Make one event as Triton writes it."""
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def test_what_is_asked_is_what_the_model_declares(serve: Callable[[Answerer], str]) -> None:
    """Options that are set travel under the tensor names; unset ones do not travel at all."""
    asked: list[dict[str, Any]] = []
    url = serve(whole(200, {"text_output": "hi", "finish_reason": "stop"}, asked))

    answer = generate(url, "my model/1", "question", Sampling(max_tokens=5, temperature=0.5, stop=("a", "b")))

    assert ("hi", "stop") == (answer.text, answer.finish_reason)
    assert [
        {
            "path": "/v2/models/my%20model%2F1/generate",
            "text_input": "question",
            "streaming": False,
            "return_finish_reason": True,
            "sampling_param_exclude_input_from_output": True,
            "sampling_param_max_tokens": 5,
            "sampling_param_temperature": 0.5,
            "sampling_param_stop": ["a", "b"],
        }
    ] == asked


def test_pieces_arrive_when_they_are_sent(serve: Callable[[Answerer], str]) -> None:
    """Each piece is given out with its own arrival time, and the last one with the reason of the end."""
    url = serve(
        chunked(event(text_output="a"), 0.15, event(text_output="b"), event(text_output="", finish_reason="length"))
    )

    pieces = list(stream(url, "m", "p", Sampling()))

    assert [("a", ""), ("b", ""), ("", "length")] == [(piece.text, piece.finish_reason) for piece in pieces]
    assert pieces[1].seconds - pieces[0].seconds > 0.14


def test_events_may_be_cut_anywhere(serve: Callable[[Answerer], str]) -> None:
    """An event split over chunks, also within a character, is one piece."""
    whole_event = event(text_output="grün 你", finish_reason="stop")
    url = serve(chunked(*(whole_event[at : at + 7] for at in range(0, len(whole_event), 7))))

    assert ["grün 你"] == [piece.text for piece in stream(url, "m", "p", Sampling())]


def test_a_dead_stub_is_no_fault_of_the_request(serve: Callable[[Answerer], str]) -> None:
    """When the model's process has died the advice is to start the server again."""
    url = serve(whole(400, {"error": "Stub process 'tensorrt_llm_0_0' is not healthy."}))

    with pytest.raises(RequestFailed, match="try: stop the server with trtkit stop and start it again"):
        generate(url, "m", "p", Sampling())


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (whole(400, {"error": "max_tokens must be at least 1"}), "max_tokens must be at least 1"),
        (whole(400, b'data: {"error":"queue full"}\n\n'), "queue full"),
        (whole(200, {"error": "expects model to produce exactly 1 response"}), "exactly 1 response"),
        (whole(404, {"error": "Request for unknown model: 'm' is not found"}), "unknown model"),
        (whole(500, b"<html>proxy</html>"), "<html>proxy</html>"),
        (whole(503, b""), "the answer is empty"),
        (whole(200, b"not json"), "not json"),
        (whole(200, b"[1]"), "[1]"),
    ],
)
def test_every_refusal_is_request_failed(serve: Callable[[Answerer], str], answer: Answerer, complaint: str) -> None:
    """Errors by status, errors with status 200 and what is not Triton's raise, with the server's own words."""
    url = serve(answer)

    for ask in (generate, lambda *rest: list(stream(*rest))):
        with pytest.raises(RequestFailed) as failed:
            ask(url, "m", "p", Sampling())
        assert complaint in failed.value.why
        assert "data:" not in failed.value.why


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (chunked(event(text_output="a"), event(error="cancelled")), "cancelled"),
        (chunked(event(text_output="a"), ends=False), "it ended without a finish reason"),
        (chunked(event(text_output="a")), "it ended without a finish reason"),
        (chunked(b"data: {broken\n\n"), "not a JSON object"),
        (chunked(event(text_output="a"), 0.5), "nothing came for 0.2 s"),
    ],
)
def test_a_broken_stream_is_request_failed(serve: Callable[[Answerer], str], answer: Answerer, complaint: str) -> None:
    """An error in a stream, a stream that breaks off and silence all raise."""
    url = serve(answer)

    with pytest.raises(RequestFailed) as failed:
        list(stream(url, "m", "p", Sampling(), timeout_seconds=0.2))

    assert complaint in failed.value.why


def test_no_server_is_request_failed() -> None:
    """A refused connection says so."""
    (port,) = free_ports(1)

    with pytest.raises(RequestFailed, match="Connection refused"):
        generate(f"http://127.0.0.1:{port}", "m", "p", Sampling())


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "http://host:port"])
def test_a_wrong_url_is_a_usage_error(url: str) -> None:
    """What is no address of a server is the command line's fault."""
    with pytest.raises(UsageError, match="is no address of a server"):
        generate(url, "m", "p", Sampling())


def test_ready_is_false_for_anything_but_200(serve: Callable[[Answerer], str]) -> None:
    """No server, and a server that knows no such path, are not ready."""
    (port,) = free_ports(1)

    assert not ready(f"http://127.0.0.1:{port}")
    assert not ready(serve(whole(200, b"")))  # it answers 501 to GET


@given(st.lists(st.binary(min_size=1, max_size=8).filter(lambda data: not set(data) & set(b"\r\n")), max_size=6))
def test_any_data_survives_the_event_format(payloads: list[bytes]) -> None:
    """Events written in the format come back in order, with comments and other fields passed over."""
    written = b"".join(b": comment\r\nid: 1\ndata: " + payload + b"\n\n" for payload in payloads)

    assert payloads == list(events(iter(written.splitlines(keepends=True))))


def test_several_data_lines_are_one_event() -> None:
    """Data lines are joined by line ends; the end of the stream ends the last event."""
    assert [b"a\nb", b"c"] == list(events(iter([b"data:a\n", b"data: b\n", b"\n", b"data: c"])))
