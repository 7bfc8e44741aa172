"""The server that ``trtkit bench`` and ``trtkit migrate compare`` ask, out of what a command line says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trtllm_kit.bench.client import address_of
from trtllm_kit.bench.dialects import DIALECTS
from trtllm_kit.bench.discover import discover
from trtllm_kit.bench.run import Server
from trtllm_kit.bench.secure import trusting
from trtllm_kit.cli.bench_checks import header_of
from trtllm_kit.errors import UsageError
from trtllm_kit.units import parse_seconds


def server_of(
    url: str,
    *,
    api: str | None,
    model: str | None,
    header: Sequence[str] | None,
    timeout: str,
    exact: bool = False,
    metrics_url: str | None = None,
    ca: str | None = None,
    side: str = "",
) -> Server:
    """Return who is asked, and how; asks the server what is not said. Raises ``UsageError`` and ``RequestFailed``.

    ``timeout`` is a time as people write it, ``header`` holds ``NAME:VALUE``, ``exact`` asks past the ends of answers,
    and ``side`` ends the names of the options about one server of two (``-old``).
    """
    address, silence = replace(address_of(url), ca=ca or ""), seconds_of("--timeout", timeout)
    headers = tuple(header_of(text) for text in header or ())
    if ca:
        trusting(ca)
    grpc = url.lower().startswith(("grpc://", "grpcs://"))
    if grpc:
        api = api or ("triton-legacy" if model in ("ensemble", "tensorrt_llm_bls") else "triton")
        if not api.startswith("triton"):
            option = f"--api{side}"
            raise UsageError(
                f"{option} {api} over grpc://", why="only Triton is asked over gRPC", hint=f"{option} triton"
            )
    elif api is None or (model is None and not DIALECTS[api].model):
        found, model = discover(address, model, dict(headers), side)
        api = api or found
    named = model or DIALECTS[api].model
    return Server(address, api, named, grpc, silence, exact, metrics_url, headers)


def seconds_of(option: str, text: str) -> float:
    """Return the seconds of an option; raises ``UsageError`` for none and for what is no time."""
    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise UsageError(f"{option} {text} is not understood", why=str(error), hint=f"{option} 60s") from None
    if seconds <= 0:
        raise UsageError(f"{option} {text}", why="no request takes no time", hint=f"{option} 60s")
    return seconds
