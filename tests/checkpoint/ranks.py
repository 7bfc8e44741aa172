"""Reads an engine's checkpoint with numpy and its config.json alone, as its reader upstream would understand it.

Nothing of the product is used, so that a test compares two sources: the layout as it is written, and as it is read.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.checkpoint.plans import plan_for
from trtllm_kit.plan.plan import Decided, ParallelismPlan, Plan

F32 = NDArray[np.float32]
_DTYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F8_E4M3": "u1", "I8": np.int8, "U8": "u1"}
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)


def rank_plan(
    source: Path, tensor: int = 1, pipeline: int = 1, expert: int = 1, release: str = "1.2.1", **formats: Any
) -> Plan:
    """Plan a conversion into rank files; ``formats`` are those of ``plan_for``."""
    plan = plan_for(source, **formats)
    split = {"tensor": tensor, "pipeline": pipeline, "expert": expert, "replicas": 1, "kv_replication": 1}
    return plan.model_copy(
        update={
            "release": _decided(release),
            "toolchain": _decided("trtllm-build"),
            "layout": _decided("tensorrt_llm"),
            "parallelism": ParallelismPlan(**{name: _decided(value) for name, value in split.items()}),
        }
    )


def _decided(value: Any) -> Decided[Any]:
    return Decided(value=value, source="profile", reason="test")


def read_file(path: Path) -> dict[str, tuple[str, NDArray[Any]]]:
    """Read one safetensors file: dtype and raw elements of each tensor."""
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        data = np.frombuffer(raw[8 + length + begin : 8 + length + end], _DTYPES[entry["dtype"]])
        found[name] = entry["dtype"], data.reshape(entry["shape"])
    return found


class RankFolder:
    """The files of all ranks, and what config.json says of them."""

    def __init__(self, folder: Path) -> None:
        """Read everything."""
        self.config = json.loads((folder / "config.json").read_text("utf-8"))
        mapping = self.config["mapping"]
        self.tp, self.pp = mapping["tp_size"], mapping["pp_size"]
        self.ep = mapping.get("moe_ep_size", 1)
        assert self.tp * self.pp == mapping["world_size"]
        assert self.ep * mapping.get("moe_tp_size", self.tp) == self.tp
        self.ranks = [read_file(folder / f"rank{number}.safetensors") for number in range(self.tp * self.pp)]
        assert len(list(folder.glob("rank*.safetensors"))) == len(self.ranks)

    def values(self, stage: int, rank: int, name: str) -> F32:
        """Return one rank's tensor as float32, multiplied by its scales."""
        tensors = self.ranks[stage * self.tp + rank]
        dtype, raw = tensors[name]
        module = name.removesuffix(".weight")
        if dtype == "U8":
            codes = np.stack([raw & 15, raw >> 4], axis=-1).reshape(*raw.shape[:-1], -1)
            blocks = e4m3(tensors[f"{module}.weights_scaling_factor"][1])
            scale = np.repeat(blocks, 16, axis=-1) * tensors[f"{module}.weights_scaling_factor_2"][1]
            return (_E2M1[codes] * scale).astype(np.float32)
        if dtype == "I8":
            return self.codes(raw, packed=tensors[f"{module}.weights_scaling_factor"][1].ndim == 2) * _step(
                tensors, module
            )
        if dtype == "F8_E4M3":
            if f"{module}.per_channel_scale" in tensors:
                return e4m3(raw) * tensors[f"{module}.per_channel_scale"][1][:, None]
            scale = tensors[f"{module}.weights_scaling_factor"][1]
            assert scale.shape == ((1,) if raw.ndim == 2 else (raw.shape[0], 1))
            return e4m3(raw) * scale.reshape((-1,) + (1,) * (raw.ndim - 1))
        if dtype == "BF16":
            return bf16(raw)
        return raw.astype(np.float32)

    def codes(self, raw: NDArray[np.int8], *, packed: bool) -> F32:
        """Return whole numbers; of packed ones the even row lies in the lower halves."""
        if packed:
            raw = np.stack([raw << 4 >> 4, raw >> 4], axis=1).reshape(-1, raw.shape[1])
        return raw.astype(np.float32)

    def same(self, stage: int, name: str) -> F32:
        """Return a tensor that all ranks of a stage hold alike."""
        first, *others = (self.values(stage, rank, name) for rank in range(self.tp))
        assert all(np.array_equal(first, other) for other in others), name
        return first

    def joined(self, stage: int, name: str, axis: int) -> F32:
        """Return the ranks' parts of a tensor one behind the other."""
        return np.concatenate([self.values(stage, rank, name) for rank in range(self.tp)], axis=axis)

    def layers(self) -> Iterator[tuple[int, str, int]]:
        """Yield stage, name and number of every layer; names begin anew in each stage."""
        each, left = divmod(self.config["num_hidden_layers"], self.pp)
        number = 0
        for stage in range(self.pp):
            for local in range(each + (stage < left)):
                yield stage, f"transformer.layers.{local}.", number
                number += 1

    def reassembled(self) -> dict[str, F32]:
        """Return every tensor of the model by its Hugging Face name."""
        vocab = self.config["vocab_size"]
        found = {"model.norm.weight": self.same(self.pp - 1, "transformer.ln_f.weight")}
        ends = (("model.embed_tokens.weight", 0, "transformer.vocab_embedding.weight"),)
        for hf, stage, name in (*ends, ("lm_head.weight", self.pp - 1, "lm_head.weight")):
            table = self.joined(stage, name, 0)
            assert not table[vocab:].any()
            assert len(table) == -(-vocab // self.tp) * self.tp
            found[hf] = table[:vocab]
        for stage, base, number in self.layers():
            hf = f"model.layers.{number}."
            found |= {f"{hf}{name}": tensor for name, tensor in self._layer(stage, base)}
        return found

    def _layer(self, stage: int, base: str) -> Iterator[tuple[str, F32]]:
        yield "input_layernorm.weight", self.same(stage, f"{base}input_layernorm.weight")
        yield "post_attention_layernorm.weight", self.same(stage, f"{base}post_layernorm.weight")
        for part in ("weight", "bias"):
            if f"{base}attention.qkv.{part}" in self.ranks[stage * self.tp]:
                names = (f"self_attn.{short}_proj.{part}" for short in "qkv")
                yield from zip(names, self._qkv(stage, f"{base}attention.qkv.{part}"), strict=True)
        yield "self_attn.o_proj.weight", self.joined(stage, f"{base}attention.dense.weight", 1)
        if f"{base}attention.dense.bias" in self.ranks[stage * self.tp]:
            yield "self_attn.o_proj.bias", self.same(stage, f"{base}attention.dense.bias")
        if self.config["qk_layernorm"]:
            yield "self_attn.q_norm.weight", self.same(stage, f"{base}attention.q_layernorm.weight")
            yield "self_attn.k_norm.weight", self.same(stage, f"{base}attention.k_layernorm.weight")
        yield from self._experts(stage, base) if "moe" in self.config else self._dense(stage, base)

    def _qkv(self, stage: int, name: str) -> tuple[F32, F32, F32]:
        dim, heads, kept = (self.config[key] for key in ("head_size", "num_attention_heads", "num_key_value_heads"))
        mine, copies = max(kept // self.tp, 1), max(self.tp // kept, 1)
        parts = [self.values(stage, rank, name) for rank in range(self.tp)]
        q, k = heads // self.tp * dim, mine * dim
        assert all(len(part) == q + 2 * k for part in parts)
        keys, values = [part[q : q + k] for part in parts], [part[q + k :] for part in parts]
        for rank in range(self.tp):
            assert np.array_equal(keys[rank], keys[rank // copies * copies])
            assert np.array_equal(values[rank], values[rank // copies * copies])
        return np.concatenate([part[:q] for part in parts]), *(
            np.concatenate(held[::copies]) for held in (keys, values)
        )

    def _dense(self, stage: int, base: str) -> Iterator[tuple[str, F32]]:
        for hf, name in (("gate_proj", "fc"), ("up_proj", "gate")):
            yield f"mlp.{hf}.weight", self.joined(stage, f"{base}mlp.{name}.weight", 0)
            if self.config["mlp_bias"]:
                yield f"mlp.{hf}.bias", self.joined(stage, f"{base}mlp.{name}.bias", 0)
        yield "mlp.down_proj.weight", self.joined(stage, f"{base}mlp.proj.weight", 1)
        if self.config["mlp_bias"]:
            yield "mlp.down_proj.bias", self.same(stage, f"{base}mlp.proj.bias")

    def _experts(self, stage: int, base: str) -> Iterator[tuple[str, F32]]:
        mixtral = self.config["architecture"] == "MixtralForCausalLM"
        prefix, (gate, up, down) = (
            ("block_sparse_moe.", ("w1", "w3", "w2")) if mixtral else ("mlp.", ("gate_proj", "up_proj", "down_proj"))
        )
        assert self.ranks[stage * self.tp][f"{base}mlp.router.weight"][0] == "F32"
        yield f"{prefix}gate.weight", self.same(stage, f"{base}mlp.router.weight")
        held = self.config["moe"]["num_experts"] // self.ep
        for expert in range(self.config["moe"]["num_experts"]):
            group, local = divmod(expert, held)
            ranks = [split * self.ep + group for split in range(self.tp // self.ep)]
            inner = [self.values(stage, rank, f"{base}mlp.fc.weight")[local] for rank in ranks]
            outer = [self.values(stage, rank, f"{base}mlp.proj.weight")[local] for rank in ranks]
            half = len(inner[0]) // 2
            name = f"{prefix}experts.{expert}."
            yield f"{name}{up}.weight", np.concatenate([part[:half] for part in inner])
            yield f"{name}{gate}.weight", np.concatenate([part[half:] for part in inner])
            yield f"{name}{down}.weight", np.concatenate(outer, axis=1)


class Steps(RankFolder):
    """The same, with the distance of two neighbouring codes where a weight of whole numbers would be."""

    def codes(self, raw: NDArray[np.int8], *, packed: bool) -> F32:
        """Return 1 for each code."""
        return np.ones_like(super().codes(raw, packed=packed))


def _step(tensors: dict[str, tuple[str, NDArray[Any]]], module: str) -> F32:
    """Return what one code is worth, (rows, columns): the scale of a row or group times the factor of its input."""
    scale = tensors[f"{module}.weights_scaling_factor"][1]
    factor = bf16(tensors[f"{module}.prequant_scaling_factor"][1])
    groups = scale.reshape(len(scale), -1)
    step: F32 = groups.repeat(len(factor) // groups.shape[1], axis=1) * factor
    return step


def bf16(bits: NDArray[np.uint16]) -> F32:
    """Return the values of BF16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def e4m3(codes: NDArray[np.uint8]) -> F32:
    """Return the values of e4m3 codes, by the definition: sign, 4 bits of exponent with bias 7, 3 of mantissa."""
    sign = np.where(codes & 0x80, np.float32(-1), np.float32(1))
    exponent, mantissa = (codes >> 3 & 15).astype(np.int32), (codes & 7).astype(np.float32)
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    return (sign * np.where(exponent == 0, np.ldexp(mantissa, -9), normal)).astype(np.float32)


class Plain:
    """Tensors by name, as the reference forward pass asks for them: no scale, every linear plain."""

    def __init__(self, tensors: dict[str, F32]) -> None:
        """Hold them."""
        self._tensors = tensors

    def tensor(self, name: str) -> F32:
        """Return one."""
        return self._tensors[name]

    def rows(self, name: str, begin: int, end: int) -> F32:
        """Return a part of one."""
        return self._tensors[name][begin:end]

    def stack_rows(self, name: str, index: int, begin: int, end: int) -> F32:
        """Return a part of one matrix of a stack."""
        return self._tensors[name][index, begin:end]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one."""
        return self._tensors[name].shape

    def scale(self, name: str) -> float | None:
        """Return none."""
        del name
        return None

    def input_factor(self, module: str) -> F32 | None:
        """Return none."""
        del module
        return None

    def number_format(self, name: str) -> str:
        """Return the one that stands for 16 bit."""
        del name
        return "plain"


def bf16_values(path: Path) -> dict[str, F32]:
    """Return the tensors of a Hugging Face file in BF16 as float32."""
    return {
        name: (raw.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else raw.astype(np.float32)
        for name, (dtype, raw) in read_file(path).items()
    }
