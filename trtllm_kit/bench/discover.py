"""Which interface a server speaks, and what it calls its model."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote

from trtllm_kit.bench.client import Address
from trtllm_kit.bench.secure import trusting
from trtllm_kit.errors import RequestFailed

_TIMEOUT_SECONDS = 5.0
"""For a connection, and for the whole of a question and its answer on it."""
_TRITON_MODELS = ("tensorrt_llm", "ensemble", "tensorrt_llm_bls")


def discover(
    address: Address, model: str | None, headers: Mapping[str, str] | None = None, side: str = ""
) -> tuple[str, str]:
    """Return interface and model's name; raises ``RequestFailed`` where nothing that is known answers.

    The engine backend's ensemble is preferred to its ``tensorrt_llm``, which takes tokens and no text. ``side`` ends
    the names of the options that say both, ``-old`` where a command line speaks of two servers.
    """
    listed = _get(address, "/v1/models", headers)
    if isinstance(listed, dict) and isinstance(listed.get("data"), list):
        names = [str(one.get("id")) for one in listed["data"] if isinstance(one, dict)]
        if model or names:
            return "openai", model or names[0]
    for name in (model,) if model else _TRITON_MODELS:
        inputs = _config(address, name, headers).get("input", [])
        tensors = {one.get("name") for one in inputs if isinstance(one, dict)}
        if {"text_input", "sampling_param_max_tokens"} <= tensors:
            return "triton", name
        if {"text_input", "max_tokens"} <= tensors:
            return "triton-legacy", name
    raise RequestFailed(
        f"{address.place} does not say what it speaks",
        why=f"neither /v1/models nor /v2/models/{model or _TRITON_MODELS[0]}/config answers as a known server does",
        hint=f"start the server, or name --api{side} and --model{side}",
    )


def streams(address: Address, api: str, model: str, headers: Mapping[str, str] | None = None) -> bool | None:
    """Return whether answers come in pieces where they are asked for; None where the server does not say it."""
    if not api.startswith("triton"):
        return True
    policy = _config(address, model, headers).get("model_transaction_policy")
    return policy.get("decoupled") is True if isinstance(policy, dict) else None


def _config(address: Address, model: str, headers: Mapping[str, str] | None) -> dict[str, Any]:
    """Return what Triton says of a model; empty where it says nothing."""
    config = _get(address, f"/v2/models/{quote(model, safe='')}/config", headers)
    return config if isinstance(config, dict) else {}


def _get(address: Address, path: str, headers: Mapping[str, str] | None) -> Any:
    """Return a document; None where there is none."""
    with closing(_connection(address)) as connection:
        try:
            connection.connect()
            with _ended_in_time(connection.sock):
                told = {name: value.encode() for name, value in (headers or {}).items()}
                connection.request("GET", address.prefix + path, headers=told)
                response = connection.getresponse()
                return json.loads(response.read(1 << 20)) if response.status == 200 else None
        except ssl.SSLCertVerificationError as error:
            raise RequestFailed(
                f"the certificate of {address.place} is not trusted",
                why=error.verify_message or str(error),
                hint="--ca FILE with the certificate that signed it",
            ) from None
        except (OSError, HTTPException, ValueError, RecursionError):
            return None


@contextmanager
def _ended_in_time(connection: socket.socket) -> Iterator[None]:
    """End a connection when its time is over: one that drips never comes to a time-out of its own."""

    def end() -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_TIMEOUT_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _connection(address: Address) -> HTTPConnection:
    if not address.secure:
        return HTTPConnection(address.host, address.port, timeout=_TIMEOUT_SECONDS)
    return HTTPSConnection(address.host, address.port, timeout=_TIMEOUT_SECONDS, context=trusting(address.ca))
