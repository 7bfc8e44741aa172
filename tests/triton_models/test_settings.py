"""What the repository says about how to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from settings import BadSettings, read_settings
from timing import Limits

PARAMETERS = {
    "runtime": "simulated",
    "max_batch_size": "8",
    "max_num_tokens": "512",
    "max_seq_len": "256",
    "chunked_prefill": "1",
    "tokens_per_block": "32",
    "kv_cache_blocks": "64",
    "max_queue_size": "1024",
    "token_seconds": "0.02",
}
YAML = {
    "model": "checkpoint",
    "max_batch_size": 8,
    "triton_config": {"max_batch_size": 0, "decoupled": True, "cancellation_check_period_ms": 50},
}


def arguments(folder: Path, parameters: dict[str, str] = PARAMETERS, **changes: Any) -> dict[str, str]:
    """Write model.yaml and give what Triton passes to initialize; ``changes`` replace keys of either file."""
    version = folder / "1"
    version.mkdir(parents=True, exist_ok=True)
    document = YAML | {key: value for key, value in changes.items() if key in YAML}
    (version / "model.yaml").write_text(yaml.safe_dump(document))
    config = {
        "max_batch_size": 0,
        "model_transaction_policy": {"decoupled": True},
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
        "output": [{"name": "text_output", "data_type": "TYPE_STRING"}],
    } | {key: value for key, value in changes.items() if key not in YAML}
    return {
        "model_name": "tensorrt_llm",
        "model_version": "1",
        "model_repository": str(folder),
        "model_config": json.dumps(config),
    }


def test_both_files_make_the_settings(tmp_path: Path) -> None:
    """Runtime and limits come from config.pbtxt's parameters, the LLM arguments from model.yaml."""
    settings = read_settings(arguments(tmp_path))

    assert ("simulated", 0.02, 0.05) == (settings.runtime, settings.step_seconds, settings.cancellation_check_seconds)
    assert Limits(8, 512, 256, True, 32, 64, 1024) == settings.limits
    assert {"model": "checkpoint", "max_batch_size": 8} == settings.llm_args


def test_model_beside_the_yaml_is_resolved(tmp_path: Path) -> None:
    """A folder of that name in the version folder is the checkpoint; any other text is left as it is."""
    (tmp_path / "1" / "checkpoint").mkdir(parents=True)

    assert str(tmp_path / "1" / "checkpoint") == read_settings(arguments(tmp_path)).llm_args["model"]
    assert "org/name" == read_settings(arguments(tmp_path, model="org/name")).checkpoint


def test_other_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLM_CONFIG_PATH names another YAML, as for upstream's model."""
    args = arguments(tmp_path)
    (tmp_path / "1" / "model.yaml").rename(tmp_path / "1" / "other.yaml")
    monkeypatch.setenv("LLM_CONFIG_PATH", "other.yaml")

    assert 8 == read_settings(args).llm_args["max_batch_size"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model_transaction_policy": {}}, "config.pbtxt must hold model_transaction_policy { decoupled: true }"),
        ({"triton_config": {"decoupled": False}}, "model.yaml: triton_config.decoupled must be true"),
        ({"parameters": PARAMETERS | {"runtime": "magic"}}, "runtime is 'magic'; it must be one of tensorrt_llm, ref"),
        ({"parameters": {"runtime": "simulated"}}, "parameter max_batch_size is missing"),
        ({"parameters": PARAMETERS | {"kv_cache_blocks": "0"}}, "parameter kv_cache_blocks must be at least 1, got 0"),
        (
            {"parameters": PARAMETERS | {"token_seconds": "nan"}},
            "parameter token_seconds must be at least 0.0, got nan",
        ),
        ({"parameters": PARAMETERS | {"max_queue_size": "x"}}, "parameter max_queue_size must be a number, got 'x'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    """A wrong or missing value refuses to load, naming file, key and value."""
    parameters = changes.pop("parameters", PARAMETERS)

    with pytest.raises(BadSettings) as bad:
        read_settings(arguments(tmp_path, parameters, **changes))

    assert complaint in str(bad.value)


@pytest.mark.parametrize(
    ("text", "complaint"), [("a: [", "is not YAML"), ("- 1", "must be a mapping"), (None, "cannot be")]
)
def test_unreadable_yaml(tmp_path: Path, text: str | None, complaint: str) -> None:
    """A missing or broken model.yaml refuses to load."""
    args = arguments(tmp_path)
    path = tmp_path / "1" / "model.yaml"
    path.write_text(text) if text is not None else path.unlink()

    with pytest.raises(BadSettings, match=complaint):
        read_settings(args)
