"""Asks a running server: readiness, one whole answer, or a stream, over Triton's generate extension.

Standard library only. Triton reports errors three ways: as a status, as status 200 with ``{"error": ...}`` (from
``generate``), and as an event of a stream that began well. All three become ``RequestFailed``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

from trtllm_kit.errors import RequestFailed, UsageError

TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen and when the answer ends. Nothing set is greedy."""

    max_tokens: int = 64
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    frequency_penalty: float | None = None
    presence_penalty: float | None = None


@dataclass(frozen=True)
class Answer:
    """One whole answer."""

    text: str
    finish_reason: str
    seconds: float
    """From sending the request to having the answer."""


@dataclass(frozen=True)
class Piece:
    """One piece of a stream."""

    text: str
    seconds: float
    """From sending the request to having this piece; of the first piece it is the time to first token."""
    finish_reason: str = ""
    """Set on the last piece."""


def ready(url: str, timeout_seconds: float = 2.0) -> bool:
    """Whether the server at ``url`` answers that all its models are ready."""
    try:
        with _connection(url, timeout_seconds) as connection:
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False


def generate(
    url: str, model: str, prompt: str, options: Sampling, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> Answer:
    """Return the whole answer to a prompt; raises ``RequestFailed``."""
    started = time.monotonic()
    with _posted(url, model, "generate", _body(prompt, options, streaming=False), timeout_seconds) as response:
        document = _document(response.read(), url)
    return Answer(_text(document), str(document.get("finish_reason", "")), time.monotonic() - started)


def stream(
    url: str, model: str, prompt: str, options: Sampling, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> Iterator[Piece]:
    """Yield the answer to a prompt as it comes; raises ``RequestFailed``, also when the stream breaks off.

    ``timeout_seconds`` is the longest silence. Closing the iterator early cancels the request on the server.
    """
    started = time.monotonic()
    finish_reason = ""
    with _posted(url, model, "generate_stream", _body(prompt, options, streaming=True), timeout_seconds) as response:
        if response.headers.get_content_type() != "text/event-stream":
            raise _failed(url, response.status, response.read())
        for data in events(iter(response.readline, b"")):
            document = _document(data, url)
            finish_reason = str(document.get("finish_reason", ""))
            yield Piece(_text(document), time.monotonic() - started, finish_reason)
    if not finish_reason:
        raise RequestFailed(
            f"the stream from {url} broke off", why="it ended without a finish reason", hint="look at the server's log"
        )


def events(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the data of each server-sent event; comments and other fields are passed over."""
    data: list[bytes] = []
    for line in lines:
        field, _, value = line.rstrip(b"\r\n").partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif not field and not value and data:
            yield b"\n".join(data)
            data = []
    if data:
        yield b"\n".join(data)


def _body(prompt: str, options: Sampling, *, streaming: bool) -> bytes:
    chosen = {
        "sampling_param_max_tokens": options.max_tokens,
        "sampling_param_temperature": options.temperature,
        "sampling_param_top_k": options.top_k,
        "sampling_param_top_p": options.top_p,
        "sampling_param_seed": options.seed,
        "sampling_param_stop": list(options.stop) or None,
        "sampling_param_frequency_penalty": options.frequency_penalty,
        "sampling_param_presence_penalty": options.presence_penalty,
    }
    fixed = {"streaming": streaming, "return_finish_reason": True, "sampling_param_exclude_input_from_output": True}
    given = {name: value for name, value in chosen.items() if value is not None}
    return json.dumps({"text_input": prompt} | fixed | given).encode()


@contextmanager
def _posted(url: str, model: str, verb: str, body: bytes, timeout_seconds: float) -> Iterator[HTTPResponse]:
    """Post to a model and give the response when its status is 200."""
    path = f"/v2/models/{quote(model, safe='')}/{verb}"
    try:
        with _connection(url, timeout_seconds) as connection:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise _failed(url, response.status, response.read())
            yield response
    except TimeoutError:
        raise RequestFailed(
            f"no answer from {url}{path}",
            why=f"nothing came for {timeout_seconds:g} s",
            hint="trtkit check-health, to see whether the engine still makes steps",
        ) from None
    except (OSError, HTTPException) as error:
        why = f"{type(error).__name__}: {error}"
        raise RequestFailed(
            f"no answer from {url}{path}", why=why, hint="start the server, or correct the URL"
        ) from None


@contextmanager
def _connection(url: str, timeout_seconds: float) -> Iterator[HTTPConnection]:
    scheme, host, port = _address(url)
    kind = HTTPSConnection if scheme == "https" else HTTPConnection
    connection = kind(host, port, timeout=timeout_seconds)
    try:
        yield connection
    finally:
        connection.close()


def _address(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    if scheme not in ("http", "https") or not host:
        raise UsageError(
            f"{url!r} is no address of a server", why="it must be http://HOST:PORT", hint="http://127.0.0.1:8000"
        )
    return scheme, host, port


def _document(data: bytes, url: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        shown = data[:80].decode("utf-8", "replace")
        raise RequestFailed(
            f"{url} answers something else than Triton", why=f"not a JSON object: {shown!r}", hint="correct the URL"
        )
    if "error" in document:
        raise _failed(url, 200, data)
    return document


def _text(document: dict[str, Any]) -> str:
    return str(document.get("text_output", ""))


def _failed(url: str, status: int, body: bytes) -> RequestFailed:
    """Make the error of a refusal; generate_stream wraps even its refusals in an event."""
    document = next(events(iter(body.splitlines(keepends=True))), body)
    try:
        why = str(json.loads(document)["error"])
    except (ValueError, KeyError, TypeError):
        why = body[:200].decode("utf-8", "replace").strip() or "the answer is empty"
    return RequestFailed(f"{url} refuses the request (status {status})", why=why, hint=_hint(status, why))


def _hint(status: int, why: str) -> str:
    """Say what to do. Triton's generate gives status 400 for every error of a model, so the text must tell."""
    if "queue full" in why:
        return "ask again later, or deploy with a larger max_batch_size"
    if "is not healthy" in why:  # Triton says so of a stub that has died
        return "stop the server with trtkit stop and start it again: the model's process has died"
    if status == 404 or "unknown model" in why:
        return "trtkit deploy, or name a model that the server has"
    return "correct the request"
