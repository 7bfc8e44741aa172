"""The dictionary of a builder's messages: real messages lead to their cause."""

from __future__ import annotations

import pytest

from trtllm_kit.upstream.build_errors import error_names, meaning_of, phase_of

MESSAGES = {
    "unknown_option": "trtllm-build: error: unrecognized arguments: --user_buffer disable",
    "wrong_value": "trtllm-build: error: argument --gemm_plugin: invalid choice: 'nvfp4'",
    "disk_full": "OSError: [Errno 28] No space left on device: 'rank3.engine'",
    "plugin_type": "[E] Gemm: could not find any supported formats consistent with input/output data types",
    "scratch": "requires 56405524864 bytes of scratch space, but only 47590277120 is available",
    "gpu_memory_asked": "Requested amount of GPU memory (24793579520 bytes) could not be allocated",
    "gpu_memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "host_memory": "terminate called after throwing an instance of 'std::bad_alloc'",
    "missing_scale": "Required but not provided tensors: {'transformer.layers.0.attention.kv_cache_scaling_factor'}",
    "wrong_type": "AssertionError: expected dtype float16 but got bfloat16",
    "version_tag": "Version tag does not match. Note: Current Version: 226, Serialized Engine Version: 228",
    "library_version": "expecting library version 9.2.0.4 got 9.2.0.5",
    "compute_capability": "expecting compute 8.9 got compute 9.0, please rebuild",
    "deserialise": "RuntimeError: Failed to deserialize cuda engine",
    "capability_format": "FP8 is not supported on SM 80",
    "no_engine": "TypeError: a bytes-like object is required, not 'NoneType'",
    "architecture": "KeyError: 'Qwen3ForCausalLM'",
    "ranks": "world_size 4 does not match the 8 ranks of the checkpoint",
    "no_gpu": "RuntimeError: Found no NVIDIA driver on your system",
    "docker_daemon": "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
    "docker_gpu": 'could not select device driver "" with capabilities: [[gpu]].',
}


def test_every_row_has_a_message() -> None:
    """A row that is added gets one here."""
    assert set(error_names()) == set(MESSAGES)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_recognised_amid_others(name: str) -> None:
    """The right row is found, whatever stands around it, and it has a cause and a fix with nothing left open."""
    found = meaning_of(f"[I] started\n{MESSAGES[name]}\n[I] ended", 1, "1.2.1")
    assert found is not None
    assert name == found.name
    assert "{" not in found.cause + found.fix


def test_numbers_of_a_message_are_in_its_cause() -> None:
    """226 against 228 is told with both numbers."""
    found = meaning_of(MESSAGES["version_tag"], 1, "1.2.1")
    assert found is not None
    assert "this one reads 226, and the engine is of 228" in found.cause


def test_a_first_cause_comes_before_what_follows_from_it() -> None:
    """No engine at save is a consequence: the plugin's message says why."""
    found = meaning_of(f"{MESSAGES['plugin_type']}\n{MESSAGES['no_engine']}", 1, "1.2.1")
    assert found is not None
    assert "plugin_type" == found.name


@pytest.mark.parametrize(("code", "name"), [(-9, "killed"), (137, "killed"), (-11, "crashed"), (134, "aborted")])
def test_a_signal_is_told_by_the_exit_code(code: int, name: str) -> None:
    """Processes say it as a negative number, shells and containers with 128 added."""
    found = meaning_of("[I] Build TensorRT engine", code, "1.2.1")
    assert found is not None
    assert name == found.name


@pytest.mark.parametrize(
    "text", ["", "[I] Engine serialized", "the memory type is not None", "warning: GPU memory 80 GiB"]
)
def test_other_words_have_no_meaning(text: str) -> None:
    """Harmless lines are not taken for a cause."""
    assert meaning_of(text, 1, "1.2.1") is None


def test_phases_follow_the_log() -> None:
    """Each phase is begun by the line that names it, and by no other."""
    said = ("Loading weights of rank 0", "Build TensorRT engine 0", "Serializing engine to ./rank0.engine...",
            "Engine serialized. Total time: 00:00:01", "other")  # fmt: skip
    assert ["weights", "kernels", "saving", "written", None] == [
        phase.name if (phase := phase_of(f"[I] {line}")) else None for line in said
    ]
