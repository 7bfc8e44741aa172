"""The gRPC client against a server that reads the tensors off the wire, for both model repositories."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from trtllm_kit.bench.client import address_of
from trtllm_kit.bench.dialects import DIALECTS, Ask
from trtllm_kit.bench.grpc_client import tensors_of
from trtllm_kit.bench.load import Load, Sampling
from trtllm_kit.bench.run import Bench, Server
from trtllm_kit.estimate.workload import ClosedLoop, Workload, fixed
from trtllm_kit.upstream.triton import llmapi_tensors
from trtllm_kit.upstream.triton_engines import engine_tensors

grpc = pytest.importorskip("grpc")
pb2 = pytest.importorskip("tritonclient.grpc").service_pb2
ASK = Ask("a b", 4, temperature=0.7, top_p=0.9, seed=3)
PIECES = ("one ", "two ", "three")


class Infers:
    """A model that keeps what it was asked, and answers in three pieces and an empty end."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.keys: list[str] = []

    def answer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        """Answer each request of a stream."""
        self.keys += [value for name, value in context.invocation_metadata() if name == "authorization"]
        for request in requests:
            self.asked.append(request)
            for place, text in enumerate((*PIECES, "")):
                response = pb2.ModelInferResponse(model_name=request.model_name, id=request.id)
                response.parameters["triton_final_response"].bool_param = place == len(PIECES)
                if text:
                    response.outputs.add(name="text_output", datatype="BYTES", shape=[1])
                    raw = text.encode()
                    response.raw_output_contents.append(len(raw).to_bytes(4, "little") + raw)
                yield pb2.ModelStreamInferResponse(infer_response=response)


@contextmanager
def grpc_server() -> Iterator[tuple[str, Infers]]:
    """Serve on a port of this machine."""
    model = Infers()
    method = grpc.stream_stream_rpc_method_handler(
        model.answer,
        request_deserializer=pb2.ModelInferRequest.FromString,
        response_serializer=pb2.ModelStreamInferResponse.SerializeToString,
    )
    service = "inference.GRPCInferenceService"
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"ModelStreamInfer": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}", model
    finally:
        server.stop(0)


@pytest.mark.parametrize(("api", "shape"), [("triton", [1]), ("triton-legacy", [1, 1])])
def test_a_stream_over_grpc_carries_the_tensors_of_its_repository(api: str, shape: list[int]) -> None:
    """Shapes, types and values on the wire are those of the repository; pieces are heard; a key goes along."""
    load = Load(Workload(fixed(3), fixed(4), ClosedLoop(1), 1), Sampling(0.5, 0.9))
    with grpc_server() as (url, model):
        server = Server(address_of(url), api, "m", grpc=True, silence=5, headers=(("Authorization", "Bearer k"),))
        once = Bench(server, load).once(load)
    (asked,) = model.asked
    found = {one.name: (one.datatype, list(one.shape)) for one in asked.inputs}
    values = dict(zip(found, asked.raw_input_contents, strict=True))
    limit = "max_tokens" if api == "triton-legacy" else "sampling_param_max_tokens"
    assert {"BYTES": shape, "INT32": shape, "BOOL": shape, "FP32": shape} == dict(found.values())
    assert (4).to_bytes(4, "little") == values[limit]
    assert (1, len(PIECES), {}) == (once.figures.answered, once.figures.pieces, once.figures.failures)
    assert ["Bearer k"] == model.keys


def test_tensors_are_those_that_the_repositories_declare() -> None:
    """Each tensor has the type that the LLM API's model, the ensemble and the BLS declare for it."""
    declared = {one.name: one.data_type.removeprefix("TYPE_") for one in llmapi_tensors("1.2.1")[0]}
    kinds = {"STRING": "BYTES"}
    for name, kind, _ in tensors_of(DIALECTS["triton"].body("m", ASK, True)):
        assert kinds.get(declared[name], declared[name]) == kind
    for model in ("ensemble", "tensorrt_llm_bls"):
        inputs = {one.name: one.data_type for one in engine_tensors(model, "1.2.1") if one.side == "input"}
        for name, kind, _ in tensors_of(DIALECTS["triton-legacy"].body("m", ASK, True)):
            assert kinds.get(inputs[name], inputs[name]) == kind
