"""Producing tensors: the rounding a quantised tensor gets, and what its bytes and the memory do not depend on."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.plans import plan_for
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint import matrix, produce
from trtllm_kit.checkpoint.formats import ENCODERS
from trtllm_kit.checkpoint.formats.bits import to_float32
from trtllm_kit.checkpoint.formats.fp8 import fp8_scale
from trtllm_kit.checkpoint.job import prepare
from trtllm_kit.checkpoint.matrix import Matrix, Slice
from trtllm_kit.checkpoint.produce import Producer
from trtllm_kit.checkpoint.reader import WeightFolder, open_weights
from trtllm_kit.checkpoint.step import TensorStep
from trtllm_kit.checkpoint.writer import write_safetensors
from trtllm_kit.dtypes import decode_bf16, encode_bf16, encode_e4m3
from trtllm_kit.errors import TensorError
from trtllm_kit.progress import Silent


def test_fused_experts_are_rounded_once_and_linear_weights_twice(tmp_path: Path) -> None:
    """ModelOpt divides a linear's weight in BF16 before e4m3, and Llama 4's fused experts in float32."""
    source = write_tiny_model(tmp_path, "llama4")
    job = prepare(source, plan_for(source, "fp8", "fp8"), 1 << 30)
    ways_differ = 0
    weights = [step for step in job.steps if step.format != "plain" and step.part == "weight"]
    with Producer(job.weights, "BF16", {}, Silent()) as producer:
        for step in weights:
            values = to_float32(job.weights.read(step.name), "BF16")
            quotients = values / fp8_scale(float(np.abs(values).max()))
            once, twice = encode_e4m3(quotients), encode_e4m3(decode_bf16(encode_bf16(quotients)))
            found = np.concatenate([tile.ravel() for tile in producer.pieces([step])])
            assert np.array_equal((twice if len(step.shape) == 2 else once).ravel(), found), step.name
            ways_differ += not np.array_equal(once, twice)
    assert ways_differ > 1


def stored(folder: Path, **tensors: np.ndarray) -> WeightFolder:
    """Write tensors in the form of BF16 bits (uint16) and open them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.safetensors"
    steps = [TensorStep(name, "BF16", bits.shape) for name, bits in tensors.items()]
    write_safetensors(path, steps, list(tensors.values()))
    return open_weights(folder)


def bits_of(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Return random BF16 bits."""
    return encode_bf16(np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32))


def steps_of(number_format: str, rows: int, columns: int) -> list[TensorStep]:
    """Return the steps of one matrix ``w`` in a format, and a plain one between weight and scales."""
    source = Matrix((Slice("w", (0, rows), (0, columns), whole=True),))
    parts = ENCODERS[number_format].parts(rows, columns)
    steps = [TensorStep(f"w.{one.name}", one.dtype, one.shape, "", source, number_format, one.name) for one in parts]
    steps.insert(1, TensorStep("w", "BF16", (rows, columns), "", source))
    return steps


def data(weights: WeightFolder, steps: list[TensorStep], threads: int = 2) -> list[bytes]:
    """Return the bytes of every step."""
    with Producer(weights, "BF16", {}, Silent(), threads) as producer:
        whole = b"".join(piece.tobytes() for piece in producer.pieces(steps))
    ends = np.cumsum([step.nbytes for step in steps])
    assert ends[-1] == len(whole)
    return [whole[end - step.nbytes : end] for end, step in zip(ends, steps, strict=True)]


@pytest.mark.parametrize("number_format", ENCODERS)
def test_bytes_depend_neither_on_threads_nor_tiles_nor_where_a_run_goes_on(
    tmp_path: Path, number_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scales that come before their weight, in another call, or too large to be kept are read for again."""
    rows, columns = 384, 256
    weights, steps = stored(tmp_path, w=bits_of(rows, columns)), steps_of(number_format, rows, columns)
    expected = data(weights, steps, threads=1)
    assert expected[1] == weights.read("w").tobytes()
    monkeypatch.setattr(matrix, "_TILE_BYTES", 1000)
    monkeypatch.setattr(matrix, "_TURNED_BYTES", 1000)
    assert expected == data(weights, steps, threads=3)
    assert expected == [data(weights, [step])[0] for step in steps]
    assert expected[::-1] == data(weights, steps[::-1])
    for done in range(1, len(steps)):
        assert expected[done:] == data(weights, steps[done:])
    monkeypatch.setattr(produce, "_KEPT_BYTES", 0)
    assert expected == data(weights, steps)


def test_nan_is_refused_by_name_in_every_format(tmp_path: Path) -> None:
    """Whether a format looks for the largest magnitude first or not."""
    bits = bits_of(128, 256)
    bits[100, 3] = 0x7FC0
    weights = stored(tmp_path, w=bits)
    for number_format in ENCODERS:
        with pytest.raises(TensorError, match="tensor w holds NaN"):
            data(weights, steps_of(number_format, 128, 256))


@pytest.mark.parametrize("number_format", ["fp8", "fp8_rowwise", "int8_wo", "nvfp4"])
def test_memory_does_not_grow_with_the_matrix(tmp_path: Path, number_format: str) -> None:
    """Four times the rows take a tenth more at most, whatever is at work at the same time."""
    peaks = []
    for rows in (4096, 16384):
        weights = stored(tmp_path / str(rows), w=np.zeros((rows, 2048), np.uint16))
        steps = steps_of(number_format, rows, 2048)[:1]
        with Producer(weights, "BF16", {}, Silent(), 2) as producer:
            tracemalloc.start()
            for _ in producer.pieces(steps):
                pass
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[0] < 80 << 20
    assert peaks[1] < peaks[0] * 1.1 + (4 << 20)


@pytest.mark.parametrize("number_format", sorted(ENCODERS))
def test_float16_reaches_every_encoder_as_bits(number_format: str, tmp_path: Path) -> None:
    """A weight stored in F16 comes out as its encoder makes it of the bits, in every format."""
    values = np.random.default_rng(1).standard_normal((256, 256)).astype(np.float16)
    path = tmp_path / "model.safetensors"
    write_safetensors(path, [TensorStep("w", "F16", values.shape)], [values])
    encoder = ENCODERS[number_format]
    step = replace(steps_of(number_format, *values.shape)[0], scaled_with=())
    with Producer(open_weights(tmp_path), "F16", {}, Silent()) as producer:
        found = np.concatenate([piece.reshape(-1).view(np.uint8) for piece in producer.pieces([step])])
    amax = float(np.abs(values).max()) if encoder.needs_amax else None
    expected = encoder.encode(values.view(np.uint16), "F16", amax)[0]
    assert expected.reshape(-1).view(np.uint8).tobytes() == found.tobytes()


def test_a_scale_of_several_inputs_covers_the_largest_of_them(tmp_path: Path) -> None:
    """Experts in one tensor share an input scale: one that covered the smallest alone would clip the others."""
    weights = stored(tmp_path, w=bits_of(2, 2))
    step = TensorStep("s", "F32", (), format="fp8", part="input_scale", measured=("a", "b", "c"))
    with Producer(weights, "BF16", {"a": 1.0, "b": 448.0, "c": 2.0}, Silent()) as producer:
        assert [1.0] == [float(piece.item()) for piece in producer.pieces([step])]


def test_what_is_neither_made_nor_measured_is_ones(tmp_path: Path) -> None:
    """In any float format, as many as the shape says."""
    weights = stored(tmp_path, w=bits_of(2, 2))
    with Producer(weights, "BF16", {}, Silent()) as producer:
        for dtype, one in (("BF16", 0x3F80), ("F16", np.float16(1)), ("F32", np.float32(1))):
            (piece,) = producer.pieces([TensorStep("s", dtype, (3,), part="pre_quant_scale")])
            assert [one] * 3 == piece.tolist()
