"""The rank files against NVIDIA ModelOpt's own TensorRT-LLM checkpoint of the same model."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.fake_worker import by_modelopt
from tests.checkpoint.ranks import F32, RankFolder, Steps, bf16_values, rank_plan, read_file
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.load import load_reference, load_tokenizer
from trtllm_kit.checkpoint.stream import windows
from trtllm_kit.progress import Silent
from trtllm_kit.resources import package_file

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle needs torch, transformers and modelopt")
transformers = pytest.importorskip("transformers", reason="the oracle needs torch, transformers and modelopt")
pytest.importorskip("modelopt", reason="the oracle needs torch, transformers and modelopt")

DECODERS = {"llama": "llama", "qwen2": "qwen", "qwen3": "qwen", "mixtral": "llama", "qwen3_moe": "qwen"}
PROJECTIONS = {"mixtral": ("w1", "w2", "w3"), "qwen3_moe": ("gate_proj", "down_proj", "up_proj")}
SEARCHED = {"int4_awq": "INT4_AWQ_CFG", "w4a8_awq": "W4A8_AWQ_BETA_CFG", "int8_sq": "INT8_SMOOTHQUANT_CFG"}
CASES: list[Any] = [
    *((family, ranks, 1, "bf16") for family in DECODERS for ranks in (1, 2)),
    *((family, ranks, 1, "fp8") for family in DECODERS for ranks in (1, 2)),
    ("llama", 4, 1, "bf16"),
    ("llama", 4, 1, "fp8"),
    ("llama", 2, 2, "fp8"),
    ("llama", 1, 1, "fp8_rowwise"),
    ("qwen2", 1, 1, "nvfp4"),
    ("llama", 2, 1, "nvfp4"),
    ("llama", 4, 1, "int4_awq"),
    ("qwen2", 2, 1, "w4a8_awq"),
    ("llama", 1, 2, "int8_sq"),
]
"""Family, tensor and pipeline ranks, format."""
MORE_CASES = [
    *((family, ranks, 1, weights) for family in ("llama", "qwen2") for ranks in (1, 2) for weights in SEARCHED),
    ("llama", 2, 2, "int4_awq"),
]
"""Those that take long; ModelOpt starts anew for each."""
CASES += [pytest.param(case, marks=pytest.mark.slow) for case in MORE_CASES if case not in CASES]
RECIPES = {
    "fp8": "FP8_DEFAULT_CFG",
    "fp8_rowwise": "FP8_PER_CHANNEL_PER_TOKEN_CFG",
    "nvfp4": "NVFP4_DEFAULT_CFG",
} | SEARCHED
CACHES = {"bf16": "bf16", "fp8_rowwise": "bf16", "int8_sq": "int8"}
"""What the KV cache of a case is, FP8 but for these."""
INT8_CACHE = {"quantizer_name": "*[kv]_bmm_quantizer", "cfg": {"num_bits": 8, "axis": None}, "enable": True}
SHAPE: dict[str, Any] = {"num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 269}
WIDE = {"hidden_size": 512, "intermediate_size": 512, "head_dim": 64}
ROUNDINGS, BF16_STEP = 5, 2.0**-8
"""BF16 roundings of a weight on its way: the factor, the division by it, and both once more where q, k, v share one."""
COSINES = {"int4_awq": 0.9955, "w4a8_awq": 0.988, "int8_sq": 0.9993}
"""Of our logits and those of ModelOpt's own fake-quantised model: 14 linears off by E each make 1 - 14 E^2 / 2.

A factor in BF16 is off by 2^-9, which moves that share of a number over the edge of a code, a whole step away: E is
the root of 2^-9 times a step of 0.39 deviations (4 bits, groups of 128), 0.025; with the FP8 that ModelOpt rounds
4-bit numbers to, and the files do not, 0.04; and with the step of a row or of an input in 8 bits, 0.01.
"""
TEXTS = ("calibration", "random")
LOGITS = "logits.npz"
MEASURED = "activation_scaling_factor"
SAME_KEYS = (
    "architecture", "dtype", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size",
    "norm_epsilon", "vocab_size", "max_position_embeddings", "use_parallel_embedding",
    "embedding_sharding_dim", "head_size", "intermediate_size", "position_embedding_type",
)  # fmt: skip


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(map(str, case)))
def exports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, int]:
    """Convert one random model with the kit and with ModelOpt; give both folders and the count of ranks."""
    family, tensor, pipeline, weights = request.param
    root = tmp_path_factory.mktemp(f"{family}{tensor}{pipeline}{weights}")
    source = write_tiny_model(root / "source", family, seed=5, **SHAPE, **(WIDE if weights in SEARCHED else {}))
    cache = CACHES.get(weights, "fp8")
    plan = rank_plan(source, tensor, pipeline, weights=weights, kv_cache=cache, samples=4, tokens_per_sample=64)
    plan = by_modelopt(plan, sys.executable) if weights in SEARCHED else plan
    convert(source, plan, root / "ours", Silent())
    modelopt_export(source, root / "theirs", DECODERS[family], (tensor, pipeline), weights)
    return root / "ours", root / "theirs", tensor * pipeline


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
    algos = set(theirs["quantization"]) - {"exclude_modules"}
    assert {key: theirs["quantization"][key] for key in algos} == {key: ours["quantization"][key] for key in algos}


def test_searched_weights_of_all_ranks_together_are_the_source(exports: tuple[Path, Path, int]) -> None:
    """Code times scale times factor lies within half a step, as the files have it, and the BF16 roundings."""
    ours, _, _ = exports
    algo_of_searched(exports)
    wanted = bf16_values(ours.parent / "source" / "model.safetensors")
    found, steps = RankFolder(ours).reassembled(), Steps(ours).reassembled()
    linear = [name for name in wanted if name.endswith("_proj.weight")]
    errors = {name: np.abs(found[name] - wanted[name]) for name in linear}
    bounds = {name: 0.5 * steps[name] + ROUNDINGS * BF16_STEP * np.abs(wanted[name]) for name in linear}
    assert 14 == len(linear)
    assert [] == [name for name in linear if not 0.25 < (errors[name] / bounds[name]).max() <= 1.0]


@pytest.mark.parametrize("text", [*TEXTS])
def test_searched_ranks_read_back_give_the_logits_of_modelopt(exports: tuple[Path, Path, int], text: str) -> None:
    """Through the reference, on text that calibration saw and on tokens at random, where INT8 clips its inputs.

    ModelOpt's own fake-quantised model loses as much against the source, within a tenth.
    """
    ours, theirs, _ = exports
    weights = algo_of_searched(exports)
    asked = np.load(theirs / LOGITS)
    models = [load_reference(folder) for folder in (ours.parent / "source", ours)]
    source, found = (model.forward(asked[text].tolist(), model.new_cache()) for model in models)
    wanted = asked[f"{text} logits"]
    assert wanted.shape == found.shape
    assert COSINES[weights] < cosine(wanted, found) < 1
    assert 1.1 * (1 - cosine(wanted, source)) > 1 - cosine(found, source) > 0


def test_a_tied_head_goes_through_the_worker(tmp_path: Path) -> None:
    """ModelOpt's ranks of a model with tied embeddings have a head of their own, which is the source's embedding."""
    source = write_tiny_model(tmp_path / "source", "qwen2", **SHAPE, tie_word_embeddings=True)
    plan = rank_plan(source, weights="int8_sq", kv_cache="int8", samples=4, tokens_per_sample=64)
    convert(source, by_modelopt(plan, sys.executable), tmp_path / "out", Silent())
    found = RankFolder(tmp_path / "out").reassembled()
    wanted = bf16_values(source / "model.safetensors")["model.embed_tokens.weight"]
    assert np.array_equal(wanted, found["model.embed_tokens.weight"])
    assert np.array_equal(wanted, found["lm_head.weight"])


def algo_of_searched(exports: tuple[Path, Path, int]) -> str:
    """Return the searched format of a case, as a profile names it; skip the others."""
    algo = json.loads((exports[0] / "config.json").read_text("utf-8"))["quantization"]["quant_algo"]
    names = {"W4A16_AWQ": "int4_awq", "W4A8_AWQ": "w4a8_awq", "W8A8_SQ_PER_CHANNEL": "int8_sq"}
    if algo not in names:
        pytest.skip("not searched")
    return names[algo]


def cosine(one: F32, other: F32) -> float:
    """Return the cosine of all numbers of two arrays."""
    return float(one.ravel() @ other.ravel() / np.linalg.norm(one) / np.linalg.norm(other))


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


def modelopt_export(source: Path, out: Path, decoder: str, split: tuple[int, int], weights: str) -> None:
    """Export with ModelOpt, quantised by its recipe of that name, with an FP8 cache where that is calibrated."""
    from modelopt.torch.export import export_tensorrt_llm_checkpoint

    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).eval()
    for layer in model.model.layers:
        fused = getattr(layer.mlp, "experts", None)
        if fused is not None:
            pairs = zip(fused.gate_up_proj.detach(), fused.down_proj.detach(), strict=True)
            layer.mlp.experts = _Experts([_Expert(PROJECTIONS[model.config.model_type], *pair) for pair in pairs])
    text = package_file("checkpoint", "calibration.txt").read_text("utf-8")
    pieces = windows(load_tokenizer(source), text, 4, 64)
    if weights != "bf16":
        model = _quantised(model, weights, pieces)
    export_tensorrt_llm_checkpoint(
        copy.deepcopy(model), decoder, torch.bfloat16, out,
        inference_tensor_parallel=split[0], inference_pipeline_parallel=split[1],
    )  # fmt: skip
    if weights in SEARCHED:
        texts = dict(zip(TEXTS, (pieces[0], np.random.default_rng(0).integers(5, 260, 64)), strict=True))
        logits = {f"{name} logits": _logits_as_exported(model, tokens) for name, tokens in texts.items()}
        np.savez(out / LOGITS, **texts, **logits)


def _quantised(model: Any, weights: str, pieces: Any) -> Any:
    import modelopt.torch.quantization as mtq

    recipe = copy.deepcopy(getattr(mtq, RECIPES[weights]))
    if CACHES.get(weights) == "int8":
        recipe["quant_cfg"].append(INT8_CACHE)
    elif weights != "fp8_rowwise":
        recipe = mtq.update_quant_cfg_with_kv_cache_quant(recipe, mtq.FP8_KV_CFG["quant_cfg"])

    def run(model: Any) -> None:
        for piece in pieces:
            model(torch.tensor(piece)[None])

    return mtq.quantize(model, recipe, run)


def _logits_as_exported(model: Any, tokens: Any) -> F32:
    """Run ModelOpt's fake-quantised model with what its export shares: one factor for q, k, v, one scale for k, v."""
    from modelopt.torch.export.quant_utils import preprocess_linear_fusion

    model = copy.deepcopy(model)
    for attention in (layer.self_attn for layer in model.model.layers):
        preprocess_linear_fusion([attention.q_proj, attention.k_proj, attention.v_proj])
        caches = attention.k_bmm_quantizer, attention.v_bmm_quantizer
        largest = torch.maximum(caches[0].amax, caches[1].amax)
        for cache in caches:
            cache.amax = largest if cache.num_bits == 8 else largest.clamp(min=448.0)
    with torch.no_grad():
        logits: F32 = model.float()(torch.tensor(list(tokens))[None], use_cache=False).logits[0].numpy()
    return logits
