"""The gRPC client against a server that reads the tensors off the wire, for both model repositories."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import certificate
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
    """A model that keeps what it was asked, and answers in three pieces and an empty end, or in the pieces alone."""

    def __init__(self, ends: bool = True) -> None:
        self._ends = ends
        self.asked: list[Any] = []
        self.keys: list[str] = []

    def answer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        """Answer each request of a stream."""
        self.keys += [value for name, value in context.invocation_metadata() if name == "authorization"]
        for request in requests:
            self.asked.append(request)
            for place, text in enumerate((*PIECES, *([""] if self._ends else []))):
                response = pb2.ModelInferResponse(model_name=request.model_name, id=request.id)
                response.parameters["triton_final_response"].bool_param = place == len(PIECES)
                if text:
                    response.outputs.add(name="text_output", datatype="BYTES", shape=[1])
                    raw = text.encode()
                    response.raw_output_contents.append(len(raw).to_bytes(4, "little") + raw)
                yield pb2.ModelStreamInferResponse(infer_response=response)


@contextmanager
def grpc_server(both: Path | None = None, ends: bool = True) -> Iterator[tuple[str, Infers]]:
    """Serve on a port of this machine, over TLS with a file of key and certificate."""
    model = Infers(ends)
    method = grpc.stream_stream_rpc_method_handler(
        model.answer,
        request_deserializer=pb2.ModelInferRequest.FromString,
        response_serializer=pb2.ModelStreamInferResponse.SerializeToString,
    )
    service = "inference.GRPCInferenceService"
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"ModelStreamInfer": method}),))
    if both is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        key, cert = (both.with_name(name).read_bytes() for name in ("key.pem", "cert.pem"))
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, cert)]))
    server.start()
    try:
        yield f"{'grpcs' if both else 'grpc'}://127.0.0.1:{port}", model
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


def test_a_stream_over_grpc_and_tls(tmp_path: Path) -> None:
    """With the certificate to trust it is heard; without it the connection is refused, and the run ends."""
    both = certificate(tmp_path)
    load = Load(Workload(fixed(3), fixed(4), ClosedLoop(1), 1))
    with grpc_server(both) as (url, _):
        trusting = replace(address_of(url), ca=str(both))
        found = [
            Bench(Server(address, "triton", "m", grpc=True, silence=5), load).once(load).figures
            for address in (trusting, address_of(url))
        ]
    assert [(1, {}), (0, {"refused": 1})] == [(one.answered, one.failures) for one in found]


def test_an_end_without_a_last_response_is_one() -> None:
    """A model may end its stream by a flag, of which the client hears no more than that the stream ended well."""
    load = Load(Workload(fixed(3), fixed(4), ClosedLoop(1), 2))
    with grpc_server(ends=False) as (url, _):
        found = Bench(Server(address_of(url), "triton-legacy", "m", grpc=True, silence=5), load).once(load)
    assert (2, {}, [3, 3]) == (
        found.figures.answered, found.figures.failures, [len(record.stamps) for record in found.records]
    )  # fmt: skip


@pytest.mark.parametrize(("api", "several"), [("triton", 1), ("triton-legacy", 3)])
def test_requests_to_an_ensemble_have_a_number_of_their_own(api: str, several: int) -> None:
    """An ensemble joins characters that came apart by it; the LLM API's model needs none."""
    load = Load(Workload(fixed(3), fixed(4), ClosedLoop(1), 3))
    with grpc_server() as (url, model):
        Bench(Server(address_of(url), api, "m", grpc=True, silence=5), load).once(load)
    found = {asked.id for asked in model.asked}
    assert (several, api == "triton-legacy") == (len(found), all(one.isdecimal() for one in found))
