"""What the backend reads when a model is loaded: its parameters, and the configuration of the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timing import Limits

_TYPES = ("inflight_fused_batching", "inflight_batching", "V1", "v1")
_TRUE, _FALSE = ("true", "True", "TRUE", "1"), ("false", "False", "FALSE", "0", "")
_LOOKED_UP = ("guided_decoding_backend", "tokenizer_dir", "xgrammar_tokenizer_info_path")
_SINCE = (0, 17)
"""The first release whose backend looks those up whatever is asked."""


class BadEngine(Exception):
    """The model cannot be served as it is; the text names the parameter or the file."""


@dataclass(frozen=True)
class EngineSetup:
    """Everything that is fixed while the model is loaded."""

    folder: Path
    ranks: int
    limits: Limits
    max_beam_width: int
    vocabulary: int
    exclude_input: bool
    decoupled: bool
    output_types: dict[str, str]


def read_setup(args: Mapping[str, str], plan: Any) -> EngineSetup:
    """Read what Triton gives ``initialize``; raises ``BadEngine``."""
    config = json.loads(args["model_config"])
    parameters = {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
    if parameters.get("gpt_model_type") not in _TYPES:
        raise BadEngine(f"parameter gpt_model_type must be one of {', '.join(_TYPES)}")
    if "worker_path" in parameters:
        raise BadEngine("parameter worker_path is called executor_worker_path")
    folder = Path(parameters.get("gpt_model_path", ""))
    if not parameters.get("gpt_model_path") or not folder.is_dir():
        raise BadEngine(f"parameter gpt_model_path: {folder} is no folder")
    engine = _engine(folder)
    _require_looked_up(parameters, str(engine.get("version", "")))
    built, model = engine["build_config"], engine["pretrained_config"]
    ranks = int(model["mapping"]["world_size"])
    missing = [f"rank{rank}.engine" for rank in range(ranks) if not (folder / f"rank{rank}.engine").is_file()]
    if missing:
        raise BadEngine(f"{folder} lacks {', '.join(missing)}")
    return EngineSetup(
        folder=folder,
        ranks=ranks,
        limits=_limits(config, parameters, built, plan),
        max_beam_width=int(parameters.get("max_beam_width") or 1),
        vocabulary=int(model["vocab_size"]),
        exclude_input=_flag(parameters, "exclude_input_in_output"),
        decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled", False)),
        output_types={output["name"]: output["data_type"] for output in config["output"]},
    )


def _engine(folder: Path) -> dict[str, Any]:
    try:
        document = json.loads((folder / "config.json").read_text("utf-8"))
        document["build_config"]["max_batch_size"], document["pretrained_config"]["mapping"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadEngine(f"{folder}/config.json is no configuration of an engine: {error!r}") from None
    return dict(document)


def _require_looked_up(parameters: Mapping[str, str], version: str) -> None:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    missing = [key for key in _LOOKED_UP if key not in parameters]
    if missing and numbers >= _SINCE:
        raise BadEngine(f"Cannot find parameter with name: {missing[0]}")


def _limits(config: Mapping[str, Any], parameters: Mapping[str, str], built: Mapping[str, Any], plan: Any) -> Limits:
    """Return the engine's limits; the queue is that of ``dynamic_batching``, which the backend hands on.

    The blocks are those of the plan's budget, which stands for what the memory of a GPU leaves.
    """
    from trtllm_kit.repository.compose import kv_cache_blocks

    most = parameters.get("max_tokens_in_paged_kv_cache")
    block = int(built["plugin_config"]["tokens_per_block"])
    blocks = min(kv_cache_blocks(plan), int(most) // block) if most else kv_cache_blocks(plan)
    batching = config.get("dynamic_batching", {}).get("default_queue_policy", {})
    return Limits(
        max_batch_size=min(int(built["max_batch_size"]), int(config.get("max_batch_size") or 1)),
        max_num_tokens=int(built["max_num_tokens"]),
        max_seq_len=int(built["max_seq_len"]),
        chunked_prefill=_flag(parameters, "enable_chunked_context"),
        tokens_per_block=block,
        kv_blocks=max(1, blocks),
        max_queue_size=int(batching.get("max_queue_size") or 0) or 1 << 30,
    )


def _flag(parameters: Mapping[str, str], key: str) -> bool:
    text = parameters.get(key, "")
    if text not in _TRUE + _FALSE:
        raise BadEngine(f"parameter {key} must be true or false, got {text!r}")
    return text in _TRUE
