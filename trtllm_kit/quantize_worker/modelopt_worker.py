"""Calibrates and exports one language model with NVIDIA ModelOpt; runs in ModelOpt's environment, not in trtkit's.

The request says which modules take which recipe; nothing here decides. Weights are read from safetensors only, from a
local folder only, and no code of a model is run.
"""

import copy
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_RECIPES = {
    "fp8": "FP8_DEFAULT_CFG",
    "nvfp4": "NVFP4_DEFAULT_CFG",
    "int4_awq": "INT4_AWQ_CFG",
    "w4a8_awq": "W4A8_AWQ_BETA_CFG",
    "int8_sq": "INT8_SMOOTHQUANT_CFG",
}
_CACHES = {"fp8": "FP8_KV_CFG", "nvfp4": "NVFP4_KV_CFG"}
_SEARCHED = ("int4_awq", "w4a8_awq", "int8_sq")
_QUANTIZERS = ("*weight_quantizer", "*input_quantizer")
_CACHE_SCALE = "_cache_scaling_factor"
_SEEDED = 0


def main() -> None:
    """Do what the request on standard input says."""
    request = json.load(sys.stdin)
    tell = _private_stdout()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    tell({"phase": "loading NVIDIA ModelOpt", "total": 1})
    import torch

    torch.manual_seed(_SEEDED)
    tell({"done": 1})
    tell({"phase": "loading the model for ModelOpt", "total": 1})
    model = _model(request)
    tell({"done": 1})
    _quantise(model, request, tell)
    tell({"phase": "exporting from ModelOpt", "total": 1})
    _export(model, request)
    tell({"done": 1})
    tell({"result": {"device": str(next(model.parameters()).device.type)}})


def _private_stdout() -> Callable[[dict[str, Any]], None]:
    """Keep standard output for our lines alone: what libraries print goes to standard error."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(line: dict[str, Any]) -> None:
        own.write(json.dumps(line) + "\n")
        own.flush()

    return tell


def _model(request: dict[str, Any]) -> Any:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        request["source"],
        dtype=getattr(torch, request["dtype"]),
        device_map="auto" if request["device"] == "cuda" else "cpu",
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
    )
    return model.eval()


def _quantise(model: Any, request: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
    import modelopt.torch.quantization as mtq
    import torch

    device = next(model.parameters()).device

    def run(model: Any) -> None:
        tell({"phase": "calibrating with NVIDIA ModelOpt", "total": len(request["windows"])})
        with torch.no_grad():
            for window in request["windows"]:
                model(torch.tensor(window, device=device)[None], use_cache=False)
                tell({"done": 1})

    mtq.quantize(model, _config(mtq, request), run)


def _config(mtq: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Return ModelOpt's configuration: nothing is quantised but what the request names."""
    entries: list[dict[str, Any]] = [{"quantizer_name": "*", "enable": False}]
    for group in request["modules"]:
        recipe = copy.deepcopy(getattr(mtq, _RECIPES[group["format"]]))
        for pattern in group["patterns"]:
            entries += _of_modules(recipe, pattern, request.get("group_size"))
    if request["kv_cache"] == "int8":
        entries.append({"quantizer_name": "*[kv]_bmm_quantizer", "cfg": {"num_bits": 8, "axis": None}, "enable": True})
    elif request["kv_cache"] in _CACHES:
        cache = getattr(mtq, _CACHES[request["kv_cache"]])["quant_cfg"]
        entries += [entry for entry in cache if entry.get("enable", True)]
    searched = [group["format"] for group in request["modules"] if group["format"] in _SEARCHED]
    algorithm = getattr(mtq, _RECIPES[searched[0]])["algorithm"] if searched else "max"
    return {"quant_cfg": entries, "algorithm": copy.deepcopy(algorithm)}


def _of_modules(recipe: dict[str, Any], pattern: str, group_size: int | None) -> Iterator[dict[str, Any]]:
    """Yield a recipe's entries for weights and inputs, for the modules of a pattern alone."""
    for entry in recipe["quant_cfg"]:
        if entry["quantizer_name"] not in _QUANTIZERS or "cfg" not in entry:
            continue
        numbers = copy.deepcopy(entry["cfg"])
        for part in numbers if isinstance(numbers, list) else [numbers]:
            if group_size is not None and part.get("num_bits") == 4 and "block_sizes" in part:
                sizes = {key: value for key, value in part["block_sizes"].items() if key not in ("-1", -1)}
                part["block_sizes"] = sizes | {-1: group_size}
        yield {"quantizer_name": f"{pattern}{entry['quantizer_name'][1:]}", "cfg": numbers}


def _export(model: Any, request: dict[str, Any]) -> None:
    import torch
    from modelopt.torch.export import export_hf_checkpoint

    if "ranks" in request:
        _export_ranks(model, request)
        return
    with torch.inference_mode():
        export_hf_checkpoint(model, dtype=getattr(torch, request["dtype"]), export_dir=request["out"])


def _export_ranks(model: Any, request: dict[str, Any]) -> None:
    """Write one file a rank for ``trtllm-build``, without the scales of the KV cache that its release does not read."""
    import torch
    from modelopt.torch.export.model_config_export import torch_to_tensorrt_llm_checkpoint
    from safetensors.torch import save_file

    ranks = request["ranks"]
    out = Path(request["out"])
    out.mkdir()
    with torch.inference_mode():
        made = torch_to_tensorrt_llm_checkpoint(
            model,
            ranks["decoder"],
            getattr(torch, request["dtype"]),
            inference_tensor_parallel=ranks["tensor"],
            inference_pipeline_parallel=ranks["pipeline"],
        )
        for config, weights, _ in made:
            kept = {
                name: tensor.clone()  # a tied head is the embedding itself, which a file cannot say
                for name, tensor in weights.items()
                if not name.endswith(_CACHE_SCALE) or name.rpartition(".")[2] in ranks["cache_scales"]
            }
            save_file(kept, out / f"rank{config['rank']}.safetensors")


if __name__ == "__main__":
    main()
