"""Stands in for ``trtllm-build``: writes an engine folder of the same shape, with no weights in it.

Run as ``python -m trtllm_kit.build.mock --plan trtkit-plan.json --output_dir .``
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trtllm_kit.plan.plan import Plan
from trtllm_kit.spec.model import Dense
from trtllm_kit.upstream.quant_algos import kv_algo

_NO_SPECULATION = 1
"""``SpeculativeDecodingMode.NONE`` as the engine's config.json spells it."""


def engine_files(plan: Plan) -> dict[str, str]:
    """Return the text of every file of the mock engine, by name: ``config.json`` and one a rank."""
    config = {
        "version": plan.release.value,
        "pretrained_config": _pretrained_config(plan),
        "build_config": _build_config(plan),
    }
    files = {"config.json": json.dumps(config, indent=1) + "\n"}
    for rank in range(plan.parallelism.world_size):
        files[f"rank{rank}.engine"] = f"trtkit mock engine\nplan {plan.digest}\nrank {rank}\n"
    return files


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the engine of a stored plan; a plan that cannot be read ends the program with a message."""
    parser = argparse.ArgumentParser(prog="trtllm_kit.build.mock", description="Stand-in for trtllm-build.")
    parser.add_argument("--plan", type=Path, required=True, help="trtkit-plan.json")
    parser.add_argument("--output_dir", type=Path, required=True)
    given = parser.parse_args(arguments)
    try:
        plan = Plan.model_validate_json(given.plan.read_text("utf-8"))
        given.output_dir.mkdir(parents=True, exist_ok=True)
        for name, text in engine_files(plan).items():
            (given.output_dir / name).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        sys.exit(f"mock: {error}")
    return 0


def _pretrained_config(plan: Plan) -> dict[str, Any]:
    model, quantization = plan.model, plan.quantization
    attention, block = model.layers[0].attention, model.layers[0].block
    return {
        "architecture": model.architecture,
        "dtype": model.dtype,
        "logits_dtype": "float32",
        "vocab_size": model.vocab,
        "hidden_size": model.hidden,
        "num_hidden_layers": len(model.layers),
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.kv_heads,
        "head_size": attention.head_dim,
        "intermediate_size": block.intermediate,
        "hidden_act": "silu" if isinstance(block, Dense) else "swiglu",
        "norm_epsilon": model.norm_epsilon,
        "position_embedding_type": "rope_gpt_neox",
        "max_position_embeddings": model.max_position,
        "rotary_base": model.rope.theta,
        "mapping": _mapping(plan),
        "quantization": {
            "quant_algo": quantization.algo.value if quantization.algo else None,
            "kv_cache_quant_algo": kv_algo(quantization.kv_cache.value),
            "exclude_modules": list(quantization.exclude.value),
        },
    }


def _mapping(plan: Plan) -> dict[str, int]:
    split = plan.parallelism
    return {
        "world_size": split.world_size,
        "tp_size": split.tensor.value,
        "pp_size": split.pipeline.value,
        "cp_size": split.split.context,
        "moe_tp_size": split.tensor.value // split.expert.value,
        "moe_ep_size": split.expert.value,
    }


def _build_config(plan: Plan) -> dict[str, Any]:
    limits = plan.limits
    return {
        "max_input_len": limits.max_seq_len.value,
        "max_seq_len": limits.max_seq_len.value,
        "max_batch_size": limits.max_batch_size.value,
        "max_beam_width": limits.max_beam_width.value,
        "max_num_tokens": limits.max_num_tokens.value,
        "max_prompt_embedding_table_size": 0,
        "max_draft_len": 0,
        "kv_cache_type": "PAGED",
        "gather_context_logits": False,
        "gather_generation_logits": False,
        "speculative_decoding_mode": _NO_SPECULATION,
        "use_mrope": False,
        "lora_config": {},
        "plugin_config": {
            "gpt_attention_plugin": "auto",
            "remove_input_padding": True,
            "paged_kv_cache": True,
            "tokens_per_block": plan.runtime.tokens_per_block.value,
            "context_fmha": True,
            "use_paged_context_fmha": True,
            "lora_plugin": None,
        },
    }


if __name__ == "__main__":
    sys.exit(main())
