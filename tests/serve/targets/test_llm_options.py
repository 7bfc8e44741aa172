"""What a profile says of the LLM API itself stands in the settings of every target that takes such a file."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.serve.targets.support import RACK, in_pods, objects, subject
from trtllm_kit.serve.targets.dynamo import AGGREGATED, DISAGGREGATED, dynamo_files
from trtllm_kit.serve.targets.local import local_files
from trtllm_kit.upstream.llm_api import unknown_llm_api_keys

HOSTILE = "a: b\n- '{{ .Values }}' # $(id) `id` \"${HOME}\" --- !!python/object:os.system"
OPTIONS: dict[str, Any] = {
    "enable_lora": True,
    "lora_config.max_lora_rank": 64,
    "tokenizer": HOSTILE,
    "cache_transceiver_config.kv_transfer_timeout_ms": 90000,
    "cache_transceiver_config.backend": "NIXL",
}


def said(document: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a document by their dotted names."""
    found = {}
    for key in OPTIONS:
        value: Any = document
        for name in key.split("."):
            value = value[name]
        found[key] = value
    return found


@pytest.mark.parametrize("version", ["1.1.0", "1.2.1", "1.3.0rc19"])
def test_trtllm_serve_gets_them(version: str) -> None:
    """In the file beside its script, whatever stands in them."""
    made = subject({"trtllm_version": version, "llm_api.options": OPTIONS})
    document = yaml.safe_load(local_files(made)["llm_args.yaml"])

    assert OPTIONS == said(document)


def test_workers_of_dynamo_get_them() -> None:
    """Those that hand over the cache too, beside what the graph itself says of that."""
    split = {"parallelism.tensor": 8, "parallelism.replicas": 9, "deploy.prefill_replicas": 1}
    made = in_pods(split | {"trtllm_version": "1.3.0rc19", "llm_api.options": OPTIONS}, RACK)
    files = dynamo_files(made)
    maps = [one["data"] for name in (AGGREGATED, DISAGGREGATED) for one in objects({"a.yaml": files[name]})
            if one["kind"] == "ConfigMap"]  # fmt: skip
    documents = [yaml.safe_load(text) for data in maps for text in data.values()]

    assert [OPTIONS] * 3 == [said(document) for document in documents]
    assert [()] * 3 == [unknown_llm_api_keys(made.version, document) for document in documents]
    assert [True, True] == ["max_tokens_in_buffer" in one["cache_transceiver_config"] for one in documents[1:]]


def test_an_option_beside_the_limits_is_not_lost() -> None:
    """Where a release keeps the limits in a section, the file has that section whole: it replaces what options say."""
    made = subject({"trtllm_version": "1.0.0", "llm_api.options": {"build_config.max_prompt_embedding_table_size": 8}})
    files = local_files(made)
    limits = made.plan.limits

    assert {
        "max_batch_size": limits.max_batch_size.value,
        "max_num_tokens": limits.max_num_tokens.value,
        "max_seq_len": limits.max_seq_len.value,
        "max_prompt_embedding_table_size": 8,
    }.items() <= yaml.safe_load(files["llm_args.yaml"])["build_config"].items()  # fmt: skip


def test_limits_alone_stand_on_the_command_line() -> None:
    """Of a release that makes the section of its own options."""
    files = local_files(subject({"trtllm_version": "1.0.0"}))

    assert "build_config" not in yaml.safe_load(files["llm_args.yaml"])
