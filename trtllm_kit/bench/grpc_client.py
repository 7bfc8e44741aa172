"""Streams answers from Triton over gRPC, through ``tritonclient[grpc]``, and stamps every piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from trtllm_kit.bench.client import Address, clock
from trtllm_kit.bench.dialects import Ask, Dialect, Part
from trtllm_kit.bench.heard import Heard
from trtllm_kit.bench.http_stream import Malformed
from trtllm_kit.bench.record import Failure
from trtllm_kit.errors import MissingExtra

Tensor = tuple[str, str, Any]
"""Name, Triton's data type, value."""


def tensors_of(body: Mapping[str, Any]) -> list[Tensor]:
    """Return what is posted over HTTP as tensors of one element: one place says what each repository is asked."""
    return [(name, "UINT64" if name.endswith("seed") else _KINDS[type(value)], value) for name, value in body.items()]


_KINDS = {str: "BYTES", bool: "BOOL", int: "INT32", float: "FP32"}


class GrpcClient:
    """Asks one Triton server over gRPC."""

    def __init__(
        self,
        address: Address,
        dialect: Dialect,
        model: str,
        *,
        silence: float,
        exact: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Open a channel; raises ``MissingExtra`` without the package. ``silence`` is in seconds."""
        try:
            from grpc import StatusCode
            from grpc.aio import AioRpcError
            from tritonclient.grpc import InferInput
            from tritonclient.grpc.aio import InferenceServerClient
        except (ImportError, RuntimeError):  # the latter is what a client without its gRPC part says
            raise MissingExtra(
                "the Python package tritonclient[grpc] is not installed",
                why="grpc:// needs it",
                hint='pip install "trtllm-kit[grpc]", or give the http:// address',
            ) from None
        self.arrived: Callable[[], float] = clock
        self._dialect, self._model, self._silence, self._exact = dialect, model, silence, exact
        self._shape = [1] * (2 if dialect.batched else 1)
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._input, self._error, self._away = InferInput, AioRpcError, StatusCode.UNAVAILABLE
        trusted = {"ssl": True, "root_certificates": address.ca or None} if address.secure else {}
        self._channel = InferenceServerClient(address.place, **trusted)

    async def ask(self, ask: Ask, heard: Heard) -> None:
        """Send a request and hear its answer to the end, in ``heard``, failures included."""
        heard.sent = heard.latest = clock()
        try:
            async with asyncio.timeout(self._silence) as limit:
                await self._hear(ask, heard, limit)
        except TimeoutError:
            pieces = len(heard.stamps)
            heard.fail(Failure.STALLED, f"nothing for {self._silence:g} s after {pieces} pieces", clock())
        except Malformed as error:
            heard.fail(Failure.MALFORMED, str(error), clock())
        except self._error as error:
            away = Failure.REFUSED if error.code() is self._away else Failure.STATUS
            heard.fail(Failure.BROKEN if heard.stamps else away, f"{error.code().name}: {error.details()}", clock())

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def _hear(self, ask: Ask, heard: Heard, limit: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        answers = self._channel.stream_infer(self._requests(ask), headers=self._headers)
        async for result, error in answers:
            stamp = self.arrived()
            limit.reschedule(loop.time() + self._silence)
            if error is not None:
                heard.take(Part(error=str(error)), stamp)
                return
            last = result.get_response().parameters.get("triton_final_response")
            heard.take(Part(_text(result, "text_output"), finish=_text(result, "finish_reason")), stamp)
            if last is not None and last.bool_param:
                heard.end(stamp)
                return
        heard.end(clock())  # a good end: a model may end by a flag alone, which this client cannot be told of

    async def _requests(self, ask: Ask) -> AsyncIterator[dict[str, Any]]:
        body = self._dialect.body(self._model, ask, self._exact)
        named = {"model_name": self._model, "request_id": body.pop("id", "")}
        yield named | {"inputs": [self._tensor(*one) for one in tensors_of(body)]}

    def _tensor(self, name: str, kind: str, value: Any) -> Any:
        import numpy as np
        from tritonclient.utils import triton_to_np_dtype

        held = value.encode() if isinstance(value, str) else value
        tensor = self._input(name, self._shape, kind)
        tensor.set_data_from_numpy(np.full(self._shape, held, dtype=triton_to_np_dtype(kind)))
        return tensor


def _text(result: Any, name: str) -> str:
    """Return a tensor's text; empty where there is none."""
    values = result.as_numpy(name)
    if values is None or not values.size:
        return ""
    value = values.reshape(-1)[0]
    if not isinstance(value, bytes | str):
        raise Malformed(f"{name} is {type(value).__name__}")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
