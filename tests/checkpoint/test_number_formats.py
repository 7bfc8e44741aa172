"""Native number formats: codes against an independent division and cast, and what is lost within its bound."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtllm_kit.checkpoint.formats import DECODERS, ENCODERS, measured_scale
from trtllm_kit.checkpoint.formats.bits import to_float32
from trtllm_kit.checkpoint.numpy_types import NUMPY_TYPES
from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.dtypes import F32, U16, encode_bf16

NATIVE = ("fp8_rowwise", "fp8_block", "int8_wo", "int4_wo", "int4_wo_64", "mxfp8", "nvfp4")
MULTIPLES = {"fp8_rowwise": 1, "fp8_block": 1, "int8_wo": 1, "int4_wo": 128, "int4_wo_64": 64, "mxfp8": 32, "nvfp4": 16}
"""What the columns of a matrix must be a multiple of."""
TINY = np.finfo(np.float32).tiny
KINDS = ("normal", "wide", "rows", "outliers", "zeros", "subnormal", "largest")


@st.composite
def matrices(draw: st.DrawFn, name: str, *, exponents: tuple[int, int] = (-30, 30)) -> tuple[U16, str]:
    """Draw 16-bit weights: several distributions, all magnitudes, rows and blocks of zeros and of minus zero."""
    rows = draw(st.integers(1, 70)) * (2 if name.startswith("int4") else 1)
    columns = draw(st.integers(1, 300 // MULTIPLES[name] + 1)) * MULTIPLES[name]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind, dtype = draw(st.sampled_from(KINDS)), draw(st.sampled_from(["BF16", "F16"]))
    low, high = exponents if dtype == "BF16" else (max(exponents[0], -10), min(exponents[1], 10))
    values = rng.standard_normal((rows, columns)) * 2.0 ** draw(st.integers(low, high))
    if kind == "wide":
        values *= 2.0 ** rng.uniform(-30, 0, (rows, columns))
    if kind == "rows":
        values *= 2.0 ** rng.uniform(-20, 0, (rows, 1))
    if kind == "outliers":
        values = np.where(rng.random((rows, columns)) < 0.01, values * 1000, values)
    if kind == "zeros":
        values[:, : columns // 2] = -0.0
        values[:: max(rows // 2, 1)] = 0.0
    if kind == "subnormal":
        values = rng.standard_normal((rows, columns)) * (2.0**-128 if dtype == "BF16" else 2.0**-16)
    if kind == "largest":
        values = np.where(rng.random((rows, columns)) < 0.1, 3.2e38 if dtype == "BF16" else 65504.0, values)
    clipped = np.clip(values, -3.38e38, 3.38e38).astype(np.float32)
    bits = (
        encode_bf16(clipped) if dtype == "BF16" else np.clip(clipped, -65504, 65504).astype(np.float16).view(np.uint16)
    )
    return bits, dtype


def encoded(name: str, bits: U16, dtype: str, step: int | None = None) -> dict[str, Raw]:
    """Return all parts of a matrix, encoded in tiles of ``step`` rows."""
    encoder = ENCODERS[name]
    amax = float(np.abs(to_float32(bits, dtype)).max()) if encoder.needs_amax else None
    starts = range(0, len(bits), step or len(bits))
    tiles = [encoder.encode(bits[at : at + (step or len(bits))], dtype, amax) for at in starts]
    growing = [part.name for part in encoder.parts(*bits.shape) if part.shape]
    columns = (np.concatenate(arrays) for arrays in zip(*tiles, strict=True))
    return dict(zip(growing, columns, strict=True)) | dict(encoder.constants(amax))


def decoded(name: str, parts: dict[str, Raw]) -> F32:
    """Return the values that the parts stand for."""
    return DECODERS[name](parts, "BF16")


def quotient_grid(parts: dict[str, Raw], name: str, bits: U16, dtype: str) -> F32:
    """Return every weight over the scale that stands beside it, in float32."""
    values, scale = to_float32(bits, dtype), each_scale(parts, name, bits.shape)
    with np.errstate(over="ignore", under="ignore"):
        return values / scale


def each_scale(parts: dict[str, Raw], name: str, shape: tuple[int, ...]) -> F32:
    """Return the scale of every element, (rows, columns)."""
    rows, columns = shape
    if name in ("fp8_rowwise", "int8_wo"):
        return np.broadcast_to(parts["weight_scale"][:, None], shape)
    if name == "fp8_block":
        return np.kron(parts["weight_scale_inv"], np.ones((128, 128), np.float32))[:rows, :columns]
    if name == "mxfp8":
        return np.repeat(np.exp2(parts["weight_scale"].astype(np.float32) - 127), 32, axis=1)
    if name == "nvfp4":
        of_blocks = parts["weight_scale"].view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        return np.repeat(of_blocks * parts["weight_scale_2"][0], 16, axis=1)
    return np.repeat(parts["weight_scale"], columns // parts["weight_scale"].shape[1], axis=1)


def unpacked(parts: dict[str, Raw], name: str) -> np.ndarray:
    """Return one code an element, as numbers of the format's own type."""
    weight = parts["weight"]
    if name == "nvfp4":
        pairs = np.stack([weight & 15, weight >> 4], axis=-1).reshape(len(weight), -1)
        return pairs.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    if name.startswith("int4"):
        nibbles = np.stack([weight & 15, weight >> 4], axis=1).reshape(-1, weight.shape[1]).astype(np.int32)
        return np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.float32)
    return weight.view(np.int8 if name == "int8_wo" else ml_dtypes.float8_e4m3fn).astype(np.float32)


def nearest(quotients: F32, name: str) -> F32:
    """Round quotients by the independent implementation, saturating."""
    if name == "nvfp4":
        return np.clip(quotients, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    if name.startswith("int"):
        return np.clip(np.rint(quotients), *((-128, 127) if name == "int8_wo" else (-8, 7)))
    return np.clip(quotients, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


@pytest.mark.parametrize("name", NATIVE)
@given(data=st.data())
@settings(max_examples=60)
def test_codes_are_the_quotient_rounded_once(name: str, data: st.DataObject) -> None:
    """Every code is the float32 quotient of weight and scale, rounded to nearest even by ml_dtypes."""
    bits, dtype = data.draw(matrices(name))
    parts = encoded(name, bits, dtype)
    np.testing.assert_array_equal(nearest(quotient_grid(parts, name, bits, dtype), name), unpacked(parts, name))


@pytest.mark.parametrize("name", NATIVE)
@given(data=st.data())
@settings(max_examples=60)
def test_what_is_lost_stays_within_the_documented_bound(name: str, data: st.DataObject) -> None:
    """The decoded weight differs from its source by no more than the reference states for the format."""
    bits, dtype = data.draw(matrices(name))
    parts = encoded(name, bits, dtype)
    values, scale = (to_float32(bits, dtype).astype(np.float64), each_scale(parts, name, bits.shape).astype(np.float64))
    lost = np.abs(decoded(name, parts).astype(np.float64) - values)
    assert (lost <= bound(name, np.abs(values), scale)).all()


def bound(name: str, magnitude: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the largest loss of each element; a rounding of the quotient to float32 may add 2^-23 of the value."""
    slack = magnitude * 2.0**-23 + TINY
    if name in ("fp8_rowwise", "fp8_block", "mxfp8"):
        return np.maximum(magnitude * 2.0**-4, scale * 2.0**-10) + slack
    if name == "nvfp4":
        step = np.where(magnitude < 2 * scale, 0.25, np.where(magnitude < 4 * scale, 0.5, 1.0))
        return np.maximum(step * scale, magnitude - 6 * scale) + slack
    return scale / 2 + slack


@pytest.mark.parametrize("name", NATIVE)
@given(data=st.data())
@settings(max_examples=40)
def test_scales_are_finite_and_positive(name: str, data: st.DataObject) -> None:
    """Whatever the weights are: zeros, subnormals, the largest of the format."""
    bits, dtype = data.draw(matrices(name, exponents=(-120, 120)))
    scale = each_scale(encoded(name, bits, dtype), name, bits.shape)
    assert np.isfinite(scale).all()
    assert (scale > 0).all()


@pytest.mark.parametrize("name", NATIVE)
@given(data=st.data())
@settings(max_examples=40)
def test_parts_have_the_declared_names_types_and_shapes(name: str, data: st.DataObject) -> None:
    """What the header of a file says before its data is what the data is."""
    bits, dtype = data.draw(matrices(name))
    parts = encoded(name, bits, dtype)
    for part in ENCODERS[name].parts(*bits.shape):
        assert (NUMPY_TYPES[part.dtype].itemsize, part.shape or (1,)) == (
            parts[part.name].itemsize,
            parts[part.name].shape,
        )
    assert set(parts) == {part.name for part in ENCODERS[name].parts(*bits.shape)}


@pytest.mark.parametrize("name", NATIVE)
@given(data=st.data())
@settings(max_examples=40)
def test_bytes_do_not_depend_on_the_tiles(name: str, data: st.DataObject) -> None:
    """A matrix encoded in any multiple of the row step is the matrix encoded whole."""
    bits, dtype = data.draw(matrices(name))
    step = data.draw(st.integers(1, 40)) * ENCODERS[name].row_step
    same_parts(encoded(name, bits, dtype), encoded(name, bits, dtype, step))


@pytest.mark.parametrize("name", NATIVE)
def test_bytes_do_not_depend_on_the_threads(name: str) -> None:
    """Eight threads at once give what one gives: nothing is shared but read-only tables."""
    rng = np.random.default_rng(3)
    tiles = [encode_bf16(rng.standard_normal((64, 512)).astype(np.float32) * 2.0**at) for at in range(-8, 8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda bits: encoded(name, bits, "BF16"), tiles))
    for bits, parts in zip(tiles, together, strict=True):
        same_parts(encoded(name, bits, "BF16"), parts)


@pytest.mark.parametrize("name", NATIVE)
@given(data=st.data())
@settings(max_examples=40)
def test_tables_give_what_the_division_gives(name: str, data: st.DataObject) -> None:
    """A row of BF16 read by tables has the bytes of the same row beside one that only arithmetic serves."""
    bits, _ = data.draw(matrices(name).filter(lambda drawn: drawn[1] == "BF16"))
    encoder = ENCODERS[name]
    if encoder.needs_amax:
        return
    subnormal = np.full((encoder.row_step, bits.shape[1]), 3, dtype=np.uint16)
    padded = np.pad(bits, ((0, -len(bits) % encoder.row_step), (0, 0)))
    alone, beside = (encoded(name, tile, "BF16") for tile in (padded, np.vstack([padded, subnormal])))
    for part, array in alone.items():
        np.testing.assert_array_equal(array, beside[part][: len(array)], err_msg=part)


def same_parts(expected: dict[str, Raw], found: dict[str, Raw]) -> None:
    """Compare bytes part by part."""
    assert list(expected) == list(found)
    for part, array in expected.items():
        np.testing.assert_array_equal(array, found[part], err_msg=part)


def bf16(*rows: list[float]) -> U16:
    """Return BF16 bits."""
    return encode_bf16(np.array(rows, dtype=np.float32))


def test_a_row_of_zeros_has_scale_one() -> None:
    """So that no reader divides by zero; the codes are zeros, with the sign they came with."""
    codes, scales = ENCODERS["fp8_rowwise"].encode(bf16([0.0, -0.0], [448.0, 1.0]), "BF16", None)
    assert [1.0, 1.0] == scales.tolist()
    assert [[0x00, 0x80], [0x7E, 0x38]] == codes.tolist()


def test_int8_maps_the_largest_magnitude_to_127() -> None:
    """And ties go to even: 127 : 2.5 : -3.5 becomes 127, 2, -4."""
    codes, scales = ENCODERS["int8_wo"].encode(bf16([127.0, 2.5, -3.5, -127.0]), "BF16", None)
    assert [1.0] == scales.tolist()
    assert [[127, 2, -4, -127]] == codes.view(np.int8).tolist()


def test_blocks_at_the_border_are_as_large_as_is_left() -> None:
    """129 x 130 has two by two scales, and the lone corner is scaled by itself."""
    values = np.ones((129, 130), dtype=np.float32)
    values[128, 128:] = 7.0
    codes, scales = ENCODERS["fp8_block"].encode(encode_bf16(values), "BF16", None)
    np.testing.assert_array_equal(np.array([[1, 1], [1, 7]], np.float32) / np.float32(448), scales)
    assert (0x7E, 0x7E) == (codes[0, 0], codes[128, 129])
    assert (129, 130) == codes.shape


def test_int4_packs_two_rows_into_a_byte() -> None:
    """The even row lies in the lower half, two's complement: 7 and -7 make 0x97."""
    weight = np.repeat(np.array([[7.0], [-7.0]], dtype=np.float32), 128, axis=1)
    codes, scales = ENCODERS["int4_wo"].encode(encode_bf16(weight), "BF16", None)
    assert [[1.0], [1.0]] == scales.tolist()
    assert {0x97} == set(codes.ravel().tolist())
    assert (1, 128) == codes.shape


def test_mxfp8_scales_are_the_next_power_of_two() -> None:
    """448 needs 2^0, a little more needs 2^1, and zeros take the smallest, whose code is 0."""
    rows = bf16([448.0] * 32, [450.0] * 32, [0.0] * 32)
    codes, scales = ENCODERS["mxfp8"].encode(rows, "BF16", None)
    assert [[127], [128], [0]] == scales.tolist()
    assert [0x7E, 0x76, 0x00] == codes[:, 0].tolist()


def test_nvfp4_packs_the_even_column_low_and_scales_twice() -> None:
    """Amax 6 * 448 has scale 1 for the whole and 448 for its block; a block of zeros has 1; -0 has the code of 0."""
    row = bf16([6.0 * 448.0, 448.0, -1344.0, -0.0] + [0.0] * 12 + [-0.0] * 16)
    codes, scales = ENCODERS["nvfp4"].encode(row, "BF16", 6.0 * 448.0)
    assert [1.0] == ENCODERS["nvfp4"].constants(6.0 * 448.0)["weight_scale_2"].tolist()
    assert [[0x7E, 0x38]] == scales.tolist()
    assert [0x27, 0x0D] == codes[0, :2].tolist()
    assert not codes[0, 2:].any()


def test_nvfp4_scales_never_vanish_beside_a_large_block() -> None:
    """A block 2^20 times smaller than the largest gets the smallest e4m3 scale, not zero."""
    row = bf16([1.0] * 16 + [2.0**-20] * 16)
    _, scales = ENCODERS["nvfp4"].encode(row, "BF16", 1.0)
    assert [[0x7E, 0x01]] == scales.tolist()


@pytest.mark.parametrize("part", ["input_scale"])
def test_the_input_scale_of_nvfp4_covers_both_steps(part: str) -> None:
    """Amax over 6 * 448, and the scales of its keys and values are those of FP8."""
    assert [1.0] == measured_scale("nvfp4", part, 2688.0).tolist()
    assert [1.0, 1.0] == [measured_scale("nvfp4", short, 448.0)[0] for short in ("k_scale", "v_scale")]


def test_every_encoder_has_a_decoder() -> None:
    """What is written can be read."""
    assert set() == set(ENCODERS) - set(DECODERS)
