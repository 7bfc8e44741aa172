"""The rank files against NVIDIA ModelOpt's own TensorRT-LLM checkpoint of the same model."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.ranks import rank_plan, read_file
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.load import load_tokenizer
from trtllm_kit.checkpoint.stream import windows
from trtllm_kit.progress import Silent
from trtllm_kit.resources import package_file

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle needs torch, transformers and modelopt")
transformers = pytest.importorskip("transformers", reason="the oracle needs torch, transformers and modelopt")
pytest.importorskip("modelopt", reason="the oracle needs torch, transformers and modelopt")

DECODERS = {"llama": "llama", "qwen2": "qwen", "qwen3": "qwen", "mixtral": "llama", "qwen3_moe": "qwen"}
PROJECTIONS = {"mixtral": ("w1", "w2", "w3"), "qwen3_moe": ("gate_proj", "down_proj", "up_proj")}
CASES = [
    *((family, ranks, "bf16") for family in DECODERS for ranks in (1, 2)),
    *((family, ranks, "fp8") for family in DECODERS for ranks in (1, 2)),
    ("llama", 4, "bf16"),
    ("llama", 4, "fp8"),
    ("llama", 1, "fp8_rowwise"),
    ("qwen2", 1, "nvfp4"),
    ("llama", 2, "nvfp4"),
]
RECIPES = {"fp8": "FP8_DEFAULT_CFG", "fp8_rowwise": "FP8_PER_CHANNEL_PER_TOKEN_CFG", "nvfp4": "NVFP4_DEFAULT_CFG"}
SHAPE: dict[str, Any] = {"num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 269}
MEASURED = "activation_scaling_factor"
SAME_KEYS = (
    "architecture", "dtype", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size",
    "norm_epsilon", "vocab_size", "max_position_embeddings", "use_parallel_embedding",
    "embedding_sharding_dim", "head_size", "intermediate_size", "position_embedding_type",
)  # fmt: skip


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(map(str, case)))
def exports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, int]:
    """Convert one random model with the kit and with ModelOpt; give both folders and the count of ranks."""
    family, ranks, weights = request.param
    root = tmp_path_factory.mktemp(f"{family}{ranks}{weights}")
    source = write_tiny_model(root / "source", family, seed=5, **SHAPE)
    cache = "bf16" if weights in ("bf16", "fp8_rowwise") else "fp8"
    plan = rank_plan(source, ranks, weights=weights, kv_cache=cache, samples=4, tokens_per_sample=64)
    convert(source, plan, root / "ours", Silent())
    modelopt_export(source, root / "theirs", DECODERS[family], ranks, weights)
    return root / "ours", root / "theirs", ranks


def test_names_shapes_and_dtypes_are_those_of_modelopt(exports: tuple[Path, Path, int]) -> None:
    """Every rank has the same tensors."""
    for ours, theirs in rank_files(exports):
        assert {name: (dtype, raw.shape) for name, (dtype, raw) in theirs.items()} == {
            name: (dtype, raw.shape) for name, (dtype, raw) in ours.items()
        }


def test_every_byte_that_is_not_measured_is_that_of_modelopt(exports: tuple[Path, Path, int]) -> None:
    """Weights, codes, weight scales and cache scales are equal on every rank."""
    for ours, theirs in rank_files(exports):
        fixed = [name for name in theirs if not name.endswith(MEASURED)]
        assert [] == [name for name in fixed if not np.array_equal(theirs[name][1], ours[name][1])]


def test_measured_scales_agree_with_modelopt(exports: tuple[Path, Path, int]) -> None:
    """Input scales lie within the error of ModelOpt's bfloat16 activations; behind a router more loosely."""
    for ours, theirs in rank_files(exports):
        routed = any("router" in name for name in theirs)
        for name in (name for name in theirs if name.endswith(MEASURED)):
            low, high = (0.4, 1.25) if routed else (0.97, 1.03)
            assert low < (ours[name][1] / theirs[name][1]).item() < high, name


def test_config_json_agrees_with_modelopt(exports: tuple[Path, Path, int]) -> None:
    """What both files say is the same; ours says more, and takes the logits' dtype that upstream takes by itself."""
    ours, theirs = (json.loads((folder / "config.json").read_text("utf-8")) for folder in exports[:2])
    assert {key: theirs[key] for key in SAME_KEYS} == {key: ours[key] for key in SAME_KEYS}
    assert theirs["mapping"] == {key: ours["mapping"][key] for key in theirs["mapping"]}
    assert theirs.get("moe") == ours.get("moe")
    algos = ("quant_algo", "kv_cache_quant_algo")
    assert {key: theirs["quantization"][key] for key in algos} == {key: ours["quantization"][key] for key in algos}


def rank_files(exports: tuple[Path, Path, int]) -> Any:
    """Yield our file and theirs of every rank."""
    ours, theirs, ranks = exports
    for rank in range(ranks):
        yield tuple(read_file(folder / f"rank{rank}.safetensors") for folder in (ours, theirs))


class _Expert(torch.nn.Module):  # type: ignore[misc,name-defined]
    """One expert as three linears, as transformers had it and ModelOpt's exporter expects it."""

    def __init__(self, names: tuple[str, ...], gate_up: Any, down: Any) -> None:
        super().__init__()
        self.names = names
        gate, up = gate_up.chunk(2)
        for name, weight in zip(names, (gate, down, up), strict=True):
            linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
            linear.weight = torch.nn.Parameter(weight.clone())
            setattr(self, name, linear)

    def forward(self, values: Any) -> Any:
        gate, down, up = (getattr(self, name) for name in self.names)
        return down(torch.nn.functional.silu(gate(values)) * up(values))


class _Experts(torch.nn.ModuleList):  # type: ignore[misc,name-defined]
    """The experts of a layer, called as transformers' fused ones are."""

    def forward(self, hidden: Any, chosen: Any, weights: Any) -> Any:
        out = torch.zeros_like(hidden)
        for number, expert in enumerate(self):
            token, place = torch.where(chosen == number)
            out.index_add_(0, token, (expert(hidden[token]) * weights[token, place, None]).to(out.dtype))
        return out


def modelopt_export(source: Path, out: Path, decoder: str, ranks: int, weights: str) -> None:
    """Export with ModelOpt, quantised by its recipe of that name, with an FP8 cache where that is calibrated."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_tensorrt_llm_checkpoint

    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).eval()
    for layer in model.model.layers:
        fused = getattr(layer.mlp, "experts", None)
        if fused is not None:
            pairs = zip(fused.gate_up_proj.detach(), fused.down_proj.detach(), strict=True)
            layer.mlp.experts = _Experts([_Expert(PROJECTIONS[model.config.model_type], *pair) for pair in pairs])
    if weights != "bf16":
        text = package_file("checkpoint", "calibration.txt").read_text("utf-8")
        pieces = windows(load_tokenizer(source), text, 4, 64)
        recipe = copy.deepcopy(getattr(mtq, RECIPES[weights]))
        if weights != "fp8_rowwise":
            recipe = mtq.update_quant_cfg_with_kv_cache_quant(recipe, mtq.FP8_KV_CFG["quant_cfg"])

        def run(model: Any) -> None:
            for piece in pieces:
                model(torch.tensor(piece)[None])

        model = mtq.quantize(model, recipe, run)
    export_tensorrt_llm_checkpoint(model, decoder, torch.bfloat16, export_dir=out, inference_tensor_parallel=ranks)
