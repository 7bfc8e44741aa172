"""What the repository says about how to run: ``config.pbtxt`` (as Triton passes it on) and ``model.yaml``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from timing import Limits

RUNTIMES = ("tensorrt_llm", "reference", "simulated", "transformers")

T = TypeVar("T", int, float)


class BadSettings(Exception):
    """The repository cannot be served as it is; the text names the key."""


@dataclass(frozen=True)
class Settings:
    """Everything that is fixed while the model is loaded."""

    name: str
    version: str
    runtime: str
    checkpoint: str
    """Folder, or a hub id when no folder of that name stands beside ``model.yaml``."""
    llm_args: dict[str, Any]
    """The keyword arguments of ``tensorrt_llm.LLM``."""
    output_types: dict[str, str]
    """Triton's data type of every output that ``config.pbtxt`` declares."""
    cancellation_check_seconds: float
    limits: Limits
    step_seconds: float
    """Time one step of the simulated runtime takes, where the plan is for no real hardware."""
    repository: Path
    """The folder of all models, with the plan."""
    warm_up_requests: int = 0
    """Requests of the model's own that are answered before it is ready."""


def read_settings(args: Mapping[str, str]) -> Settings:
    """Read the settings from what Triton gives ``initialize``; raises ``BadSettings``."""
    config = json.loads(args["model_config"])
    folder = Path(args["model_repository"]) / args["model_version"]
    document = _read_yaml(folder / os.environ.get("LLM_CONFIG_PATH", "model.yaml"))
    triton = document.pop("triton_config", {})
    _check_policy(config, triton)
    parameters = {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
    return Settings(
        name=args["model_name"],
        version=args["model_version"],
        runtime=_runtime(parameters),
        checkpoint=_checkpoint(folder, document),
        llm_args=document,
        output_types={output["name"]: output["data_type"] for output in config["output"]},
        cancellation_check_seconds=max(1, int(triton.get("cancellation_check_period_ms", 100))) / 1000.0,
        limits=_limits(parameters),
        step_seconds=_number(parameters, "token_seconds", float, 0.0),
        repository=Path(args["model_repository"]).parent,
        warm_up_requests=_number({"warm_up_requests": "0"} | parameters, "warm_up_requests", int, 0),
    )


def _limits(parameters: Mapping[str, str]) -> Limits:
    """Read the limits from the parameters: they stand there under the same names for every release."""
    return Limits(
        max_batch_size=_number(parameters, "max_batch_size", int, 1),
        max_num_tokens=_number(parameters, "max_num_tokens", int, 1),
        max_seq_len=_number(parameters, "max_seq_len", int, 1),
        chunked_prefill=bool(_number(parameters, "chunked_prefill", int, 0)),
        tokens_per_block=_number(parameters, "tokens_per_block", int, 1),
        kv_blocks=_number(parameters, "kv_cache_blocks", int, 1),
        max_queue_size=_number(parameters, "max_queue_size", int, 0),
    )


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml  # its lack is explained by the import error alone

    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise BadSettings(f"{path.name} cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise BadSettings(f"{path.name} is not YAML: {error}") from None
    if not isinstance(document, dict):
        raise BadSettings(f"{path.name} must be a mapping of LLM arguments")
    return document


def _check_policy(config: Mapping[str, Any], triton: Mapping[str, Any]) -> None:
    """Both files must say decoupled: Triton reads one, people the other, and streaming needs it."""
    policy = config.get("model_transaction_policy", {}).get("decoupled", False)
    if not policy:
        raise BadSettings("config.pbtxt must hold model_transaction_policy { decoupled: true }: streaming needs it")
    if triton.get("decoupled") is not True:
        raise BadSettings("model.yaml: triton_config.decoupled must be true, as in config.pbtxt")
    if config.get("max_batch_size", 0) != 0:
        raise BadSettings(f"config.pbtxt: max_batch_size must be 0, got {config['max_batch_size']}")


def _runtime(parameters: Mapping[str, str]) -> str:
    runtime = parameters.get("runtime", RUNTIMES[0])
    if runtime not in RUNTIMES:
        raise BadSettings(f"config.pbtxt: parameter runtime is {runtime!r}; it must be one of {', '.join(RUNTIMES)}")
    return runtime


def _checkpoint(folder: Path, document: dict[str, Any]) -> str:
    """Resolve ``model``: a folder beside ``model.yaml``, an absolute path, or a hub id (left as it is)."""
    model = str(document.get("model", ""))
    beside = folder / model
    if model and beside.is_dir():
        model = str(beside)
        document["model"] = model
    return model


def _number(parameters: Mapping[str, str], key: str, kind: Callable[[str], T], least: T) -> T:
    text = parameters.get(key)
    if text is None:
        raise BadSettings(f"config.pbtxt: parameter {key} is missing")
    try:
        value = kind(text)
    except ValueError:
        raise BadSettings(f"config.pbtxt: parameter {key} must be a number, got {text!r}") from None
    if not value >= least:
        raise BadSettings(f"config.pbtxt: parameter {key} must be at least {least}, got {text}")
    return value
