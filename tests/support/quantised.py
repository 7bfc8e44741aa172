"""Tiny models that come quantised, as NVIDIA, DeepSeek and OpenAI publish them, with the values of each weight.

Written with numpy alone, by the formats' own definitions and none of the product's encoders: every code is the
nearest of the format's values, found by a search over all of them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.support.tiny_model import write_tiny_model

F32 = NDArray[np.float32]
LINEAR = (
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj",
)  # fmt: skip
E4M3 = np.array(
    [(1 + code % 8 / 8) * 2.0 ** (code // 8 - 7) if code >= 8 else code / 8 * 2.0**-6 for code in range(127)]
)
"""Values of the codes 0 to 126; 127 is NaN."""
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


class Stored(NamedTuple):
    """One tensor of a safetensors file."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class Quantised(NamedTuple):
    """A folder, and the values that its quantised weights stand for, by name."""

    folder: Path
    values: dict[str, F32]


def write_quantised(folder: Path, form: str, family: str = "llama", **overrides: Any) -> Quantised:
    """Write a random model in a form of ``_FORMS``; ``mxfp4`` is for gpt-oss."""
    write_tiny_model(folder, family, **overrides)
    tensors = read_safetensors(folder / "model.safetensors")
    values: dict[str, F32] = {}
    for name in list(tensors):
        if not _is_quantised(name, form, family):
            continue
        weight = of_bf16(tensors.pop(name))
        stored, values[name] = _FORMS[form](name, weight)
        tensors |= stored
    if form not in ("fp8_block", "mxfp4") and family != "deepseek_v3":
        for number in range(len({name.split(".")[2] for name in values})):
            for part in "kv":
                tensors[f"model.layers.{number}.self_attn.{part}_proj.{part}_scale"] = scalar(0.03125)
    write_stored(folder / "model.safetensors", tensors)
    _CONFIGS[form](folder, sorted({name.rpartition(".")[0] for name in tensors if name.endswith("gate.weight")}))
    return Quantised(folder, values)


def _is_quantised(name: str, form: str, family: str) -> bool:
    if form == "mxfp4":
        return name.endswith((".experts.gate_up_proj", ".experts.down_proj"))
    module = name.removesuffix(".weight").rpartition(".")[2]
    kept = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj") if form == "nvfp4" else ()
    return name.endswith(".weight") and module in LINEAR and module not in kept and family != "gpt_oss"


def _fp8(name: str, weight: F32) -> tuple[dict[str, Stored], F32]:
    module = name.removesuffix(".weight")
    scale = np.float32(np.abs(weight).max() / 448)
    codes, values = e4m3(weight / scale)
    return {
        name: Stored("F8_E4M3", weight.shape, codes.tobytes()),
        f"{module}.weight_scale": scalar(scale),
        f"{module}.input_scale": scalar(0.0078125),
    }, values * scale


def _nvfp4(name: str, weight: F32) -> tuple[dict[str, Stored], F32]:
    module, rows = name.removesuffix(".weight"), len(weight)
    whole = np.float32(4.0 / (6 * 448))  # one for all, as the runtime wants of what it fuses
    blocks = weight.reshape(rows, -1, 16)
    scales, exact = e4m3(np.abs(blocks).max(axis=-1) / 6 / whole)
    scale = (exact * whole)[..., None]
    near = np.abs(np.abs(blocks[..., None]) / np.where(scale, scale, 1)[..., None] - E2M1).argmin(axis=-1)
    codes = (near + 8 * (blocks < 0)).astype(np.uint8).reshape(rows, -1)
    return {
        name: Stored("U8", (rows, weight.shape[1] // 2), (codes[:, 0::2] | codes[:, 1::2] << 4).tobytes()),
        f"{module}.weight_scale": Stored("F8_E4M3", scales.shape, scales.tobytes()),
        f"{module}.weight_scale_2": scalar(whole),
        f"{module}.input_scale": scalar(0.0078125),
    }, (np.where(blocks < 0, -1, 1) * E2M1[near] * scale).reshape(weight.shape).astype(np.float32)


def _fp8_block(name: str, weight: F32) -> tuple[dict[str, Stored], F32]:
    rows, columns = (-(-size // 128) for size in weight.shape)
    scales = np.empty((rows, columns), dtype=np.float32)
    codes, values = np.empty(weight.shape, dtype=np.uint8), np.empty(weight.shape, dtype=np.float32)
    for row in range(rows):
        for column in range(columns):
            place = np.s_[128 * row : 128 * row + 128, 128 * column : 128 * column + 128]
            scales[row, column] = np.abs(weight[place]).max() / 448
            codes[place], exact = e4m3(weight[place] / scales[row, column])
            values[place] = exact * scales[row, column]
    return {
        name: Stored("F8_E4M3", weight.shape, codes.tobytes()),
        f"{name}_scale_inv": Stored("F32", scales.shape, scales.tobytes()),
    }, values


def _mxfp4(name: str, weight: F32) -> tuple[dict[str, Stored], F32]:
    """Store a stack (experts, inputs, outputs) turned, as blocks (experts, outputs, inputs / 32, 16)."""
    experts, inputs, outputs = weight.shape
    blocks = weight.swapaxes(1, 2).reshape(experts, outputs, inputs // 32, 32)
    exponents = np.ceil(np.log2(np.maximum(np.abs(blocks).max(axis=-1), 1e-30) / 6)).astype(int)
    scale = (2.0**exponents)[..., None]
    near = np.abs(np.abs(blocks[..., None]) / scale[..., None] - E2M1).argmin(axis=-1)
    codes = (near + 8 * (blocks < 0)).astype(np.uint8)
    packed = codes[..., 0::2] | codes[..., 1::2] << 4
    scales = (exponents + 127).astype(np.uint8)
    values = (np.where(blocks < 0, -1, 1) * E2M1[near] * scale).reshape(experts, outputs, inputs).swapaxes(1, 2)
    return {
        f"{name}_blocks": Stored("U8", packed.shape, packed.tobytes()),
        f"{name}_scales": Stored("U8", scales.shape, scales.tobytes()),
    }, values.astype(np.float32)


def _int4(name: str, weight: F32, group: int = 128) -> tuple[dict[str, Stored], F32]:
    """Store two rows in a byte, and where no norm feeds the layer a factor of its input that the codes lack."""
    rows, module = len(weight), name.removesuffix(".weight")
    factors = _factors(module, weight.shape[1])
    groups = (weight / (factors if factors is not None else 1)).reshape(rows, -1, group)
    scales = (np.abs(groups).max(axis=-1) / 7).astype(np.float32)
    codes = np.rint(groups / scales[..., None]).astype(np.int8).reshape(weight.shape)
    low, high = codes[0::2] & 15, (codes[1::2] & 15) << 4
    stored = {
        name: Stored("U8", (rows // 2, weight.shape[1]), (low | high).astype(np.uint8).tobytes()),
        f"{module}.weight_scale": Stored("F32", scales.shape, scales.tobytes()),
    } | _factor_of(module, factors)
    return stored, codes * np.repeat(scales, group, axis=1)


def _w4a8(name: str, weight: F32) -> tuple[dict[str, Stored], F32]:
    module = name.removesuffix(".weight")
    stored, values = _int4(name, weight)
    more = {f"{module}.weight_scale_2": scalar(0.0625), f"{module}.input_scale": scalar(0.0078125)}
    return stored | more, values


def _int8_sq(name: str, weight: F32) -> tuple[dict[str, Stored], F32]:
    module = name.removesuffix(".weight")
    factors = _factors(module, weight.shape[1])
    divided = weight / (factors if factors is not None else 1)
    scales = (np.abs(divided).max(axis=1) / 127).astype(np.float32)
    codes = np.rint(divided / scales[:, None]).astype(np.int8)
    stored = {
        name: Stored("I8", weight.shape, codes.tobytes()),
        f"{module}.weight_scale": Stored("F32", scales.shape, scales.tobytes()),
        f"{module}.input_scale": scalar(0.0078125),
    } | _factor_of(module, factors)
    return stored, codes * scales[:, None]


def _factors(module: str, columns: int) -> F32 | None:
    """Return powers of two for the layers whose input is no norm's, for which ModelOpt keeps the factor."""
    if not module.endswith(("o_proj", "down_proj")):
        return None
    return np.where(np.arange(columns) % 3, 1, 2).astype(np.float32)


def _factor_of(module: str, factors: F32 | None) -> dict[str, Stored]:
    if factors is None:
        return {}
    bits = (factors.view(np.uint32) >> 16).astype(np.uint16)
    return {f"{module}.pre_quant_scale": Stored("BF16", factors.shape, bits.tobytes())}


def _mixed(name: str, weight: F32) -> tuple[dict[str, Stored], F32]:
    return _FORMS[mixed_form(name)](name, weight)


def mixed_form(name: str) -> str:
    """Return the form of a weight where layers differ: those of one part do too, as a search by layer leaves them."""
    if "self_attn" in name:
        return "fp8"
    return "int4_awq" if ".layers.0." in name else "nvfp4"


_FORMS: Mapping[str, Callable[[str, F32], tuple[dict[str, Stored], F32]]] = {
    "fp8": _fp8, "nvfp4": _nvfp4, "fp8_block": _fp8_block, "mxfp4": _mxfp4,
    "int4_awq": _int4, "w4a8_awq": _w4a8, "int8_sq": _int8_sq, "mixed": _mixed,
}  # fmt: skip


def _modelopt(algo: str, **more: Any) -> Callable[[Path, list[str]], None]:
    """Describe it as ModelOpt did until 0.37: in its own file alone."""

    def write(folder: Path, gates: list[str]) -> None:
        latent = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
        layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
        kept = [f"model.layers.{number}.self_attn.{name}" for number in range(layers) for name in latent]
        document = {
            "producer": {"name": "modelopt", "version": "0.33.0"},
            "quantization": {
                "quant_algo": algo,
                "kv_cache_quant_algo": "FP8",
                **more,
                "exclude_modules": ["lm_head", *gates, *(kept if algo == "NVFP4" else [])],
            },
        }
        (folder / "hf_quant_config.json").write_text(json.dumps(document, indent=4))

    return write


def _by_layer(folder: Path, gates: list[str]) -> None:
    """Describe each linear layer by itself, as ModelOpt 0.47 does, and in the file of the time of 1.1 too."""
    _modelopt("MIXED_PRECISION")(folder, gates)
    path = folder / "hf_quant_config.json"
    document = json.loads(path.read_text())
    weights = [name for name in read_safetensors(folder / "model.safetensors") if _is_quantised(name, "mixed", "")]
    layers = {name.removesuffix(".weight"): _LAYERS[mixed_form(name)] for name in weights}
    document["quantization"] |= {"quantized_layers": layers}
    path.write_text(json.dumps(document, indent=4))
    (folder / "quant_cfg.json").write_text(json.dumps(document["quantization"], indent=4))


_LAYERS = {
    "fp8": {"quant_algo": "FP8"},
    "nvfp4": {"quant_algo": "NVFP4", "group_size": 16},
    "int4_awq": {"quant_algo": "W4A16_AWQ", "group_size": 128, "has_zero_point": False, "pre_quant_scale": True},
}


def _inline(**section: Any) -> Callable[[Path, list[str]], None]:
    return lambda folder, _: change_config(folder, quantization_config=section)


_CONFIGS: Mapping[str, Callable[[Path, list[str]], None]] = {
    "fp8": _modelopt("FP8"),
    "nvfp4": _modelopt("NVFP4", group_size=16),
    "int4_awq": _modelopt("W4A16_AWQ", group_size=128, has_zero_point=False, pre_quant_scale=True),
    "w4a8_awq": _modelopt("W4A8_AWQ", group_size=128, has_zero_point=False, pre_quant_scale=True),
    "int8_sq": _modelopt("W8A8_SQ_PER_CHANNEL"),
    "mixed": _by_layer,
    "fp8_block": _inline(
        activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", weight_block_size=[128, 128]
    ),
    "mxfp4": _inline(
        modules_to_not_convert=[
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
        ],
        quant_method="mxfp4",
    ),
}  # fmt: skip


def change_config(folder: Path, **keys: Any) -> None:
    """Change keys of a folder's ``config.json``."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys, indent=1) + "\n")


def change_tensors(folder: Path, change: Callable[[dict[str, Stored]], object]) -> None:
    """Let ``change`` alter the tensors of a folder's one weight file."""
    tensors = read_safetensors(folder / "model.safetensors")
    change(tensors)
    write_stored(folder / "model.safetensors", tensors)


def e4m3(values: F32) -> tuple[NDArray[np.uint8], F32]:
    """Return the nearest e4m3 codes, and what they stand for."""
    near = np.abs(np.abs(values)[..., None] - E4M3).argmin(axis=-1)
    codes = (near + 128 * (values < 0)).astype(np.uint8)
    return codes, (np.where(values < 0, -1, 1) * E4M3[near]).astype(np.float32)


def scalar(value: float) -> Stored:
    """Return one float32 number as ModelOpt stores it."""
    return Stored("F32", (), np.float32(value).tobytes())


def of_bf16(stored: Stored) -> F32:
    """Return the values of a BF16 tensor."""
    bits = np.frombuffer(stored.data, dtype=np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(stored.shape)


def read_safetensors(path: Path) -> dict[str, Stored]:
    """Read every tensor of a file."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    return {
        name: Stored(entry["dtype"], tuple(entry["shape"]), raw[8 + length + begin : 8 + length + end])
        for name, entry in header.items()
        for begin, end in [entry["data_offsets"]]
    }


_ORDER = ("F32", "BF16", "F8_E4M3", "U8", "I8")


def write_stored(path: Path, tensors: Mapping[str, Stored]) -> None:
    """Write tensors as one file, large elements first."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset, ordered = 0, sorted(tensors, key=lambda name: _ORDER.index(tensors[name].dtype))
    for name in ordered:
        stored = tensors[name]
        end = offset + len(stored.data)
        header[name] = {"dtype": stored.dtype, "shape": list(stored.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors[name].data for name in ordered))
