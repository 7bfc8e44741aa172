"""Streams answers from Triton over gRPC, through ``tritonclient[grpc]``, and stamps every piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from trtllm_kit.bench.client import Address, clock
from trtllm_kit.bench.dialects import Ask, Part
from trtllm_kit.bench.heard import Heard
from trtllm_kit.bench.http_stream import Malformed
from trtllm_kit.bench.record import Failure
from trtllm_kit.errors import MissingExtra

Tensor = tuple[str, str, Any]
"""Name, Triton's data type, value."""


def llmapi_tensors(ask: Ask) -> list[Tensor]:
    """Return the inputs of the LLM API's repository; shapes are [1]."""
    return [
        ("text_input", "BYTES", ask.prompt),
        ("streaming", "BOOL", True),
        ("return_finish_reason", "BOOL", True),
        ("sampling_param_exclude_input_from_output", "BOOL", True),
        ("sampling_param_max_tokens", "INT32", ask.tokens),
        *_chosen(ask, "sampling_param_"),
    ]


def legacy_tensors(ask: Ask) -> list[Tensor]:
    """Return the inputs of the engine backend's repository; shapes are [1, 1]."""
    return [
        ("text_input", "BYTES", ask.prompt),
        ("max_tokens", "INT32", ask.tokens),
        ("stream", "BOOL", True),
        ("exclude_input_in_output", "BOOL", True),
        *_chosen(ask, ""),
    ]


def _chosen(ask: Ask, prefix: str) -> list[Tensor]:
    given = (("temperature", "FP32", ask.temperature), ("top_p", "FP32", ask.top_p), ("seed", "UINT64", ask.seed))
    return [(prefix + name, kind, value) for name, kind, value in given if value is not None]


class GrpcClient:
    """Asks one Triton server over gRPC."""

    def __init__(self, address: Address, model: str, *, legacy: bool, silence: float) -> None:
        """Open a channel; raises ``MissingExtra`` without the package. ``silence`` is in seconds."""
        try:
            from grpc import StatusCode
            from grpc.aio import AioRpcError
            from tritonclient.grpc import InferInput
            from tritonclient.grpc.aio import InferenceServerClient
        except ImportError:
            raise MissingExtra(
                "the Python package tritonclient[grpc] is not installed",
                why="grpc:// needs it",
                hint='pip install "trtllm-kit[grpc]", or give the http:// address',
            ) from None
        self.arrived: Callable[[], float] = clock
        self._model, self._legacy, self._silence = model, legacy, silence
        self._input, self._error, self._away = InferInput, AioRpcError, StatusCode.UNAVAILABLE
        self._channel = InferenceServerClient(f"{address.host}:{address.port}")

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
        except asyncio.CancelledError:
            heard.fail(Failure.UNFINISHED, "the run ended first", clock())
            raise

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def _hear(self, ask: Ask, heard: Heard, limit: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        answers = self._channel.stream_infer(self._requests(ask))
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
        heard.fail(Failure.BROKEN, f"the stream ended after {len(heard.stamps)} pieces", clock())

    async def _requests(self, ask: Ask) -> AsyncIterator[dict[str, Any]]:
        tensors = legacy_tensors(ask) if self._legacy else llmapi_tensors(ask)
        inputs = [self._tensor(*one) for one in tensors]
        yield {"model_name": self._model, "inputs": inputs, "enable_empty_final_response": True}

    def _tensor(self, name: str, kind: str, value: Any) -> Any:
        import numpy as np
        from tritonclient.utils import triton_to_np_dtype

        shape = [1, 1] if self._legacy else [1]
        held = value.encode() if isinstance(value, str) else value
        tensor = self._input(name, shape, kind)
        tensor.set_data_from_numpy(np.full(shape, held, dtype=triton_to_np_dtype(kind)))
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
