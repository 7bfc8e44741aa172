"""Validation errors as lines an operator can act on."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtllm_kit.errors import ProfileError
from trtllm_kit.spec.load import hardware_names, load_profile
from trtllm_kit.spec.yaml_errors import did_you_mean
from trtllm_kit.upstream.releases import unknown_release

TOP = (
    "base, schema_version, name, summary, model_class, hardware, gpu_memory, trtllm_version, toolchain, runtime, "
    "quantization, calibration, quality, parallelism, limits, kv_cache, scheduler, engine, build, llm_api, "
    "speculation, load, serve, deploy, alerts, environment"
)


def problems(folder: Path, text: str) -> list[str]:
    """Return the problems of a profile on top of the quickstart's, without the file name."""
    file = folder / "p.yaml"
    file.write_text(f"base: cpu-rehearsal-smollm2\nname: p\n{text}\n")
    with pytest.raises(ProfileError) as caught:
        load_profile(str(file))
    return [problem.removeprefix(f"{file}:") for problem in caught.value.problems]


LIMITS = "max_batch_size, max_num_tokens, max_seq_len, max_beam_width"
MACHINES = ", ".join(hardware_names())
VERSION = "text such as 1.2.1, main"


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("trtllm_version: 1.20", "trtllm_version", f'found 1.20 (a number); allowed {VERSION}; quote it: "1.20"'),
        ("trtllm_version: '9.9'", "trtllm_version", f"found 9.9; {unknown_release('9.9')}"),
        ("trtllm_version: 1", "trtllm_version", f'found 1 (a number); allowed {VERSION}; quote it: "1"'),
        ("environment: {A: true}", "environment.A", 'found true (true or false); allowed text; quote it: "true"'),
        ("runtme: reference", "runtme", f"unknown key; allowed {TOP}; did you mean runtime?"),
        ("max_seq_len: 4", "max_seq_len", f"unknown key; allowed {TOP}; did you mean limits.max_seq_len?"),
        (
            "scheduler: {polcy: x}",
            "scheduler.polcy",
            "unknown key; allowed policy, chunked_prefill; did you mean policy?",
        ),
        ("hardware: cpu", "hardware", f"found cpu; allowed one of {MACHINES}; did you mean cpu-rehearsal?"),
        (
            "quantization: {weights: fp9}",
            "quantization.weights",
            "found fp9 (text); allowed one of bf16, fp8, fp8_rowwise, fp8_block, int8_wo, int4_wo, mxfp8, nvfp4, "
            "int4_awq, w4a8_awq, int8_sq, mxfp4, mixed; did you mean fp8?",
        ),
        ("quantization: {exclude: x}", "quantization.exclude", "found x (text); allowed a list of text"),
        (
            "quantization: {exclude: [3]}",
            "quantization.exclude.0",
            'found 3 (a number); allowed text; quote it: "3"',
        ),
        ("limits: {max_seq_len: '4'}", "limits.max_seq_len", 'found "4" (text); allowed a whole number of 1 or more'),
        (
            "limits: {max_seq_len: 4.0}",
            "limits.max_seq_len",
            "found 4.0 (a number); allowed a whole number of 1 or more",
        ),
        ("limits:", "limits", f"found nothing; allowed a mapping with keys of {LIMITS}"),
        ("limits: [1]", "limits", f"found a list; allowed a mapping with keys of {LIMITS}"),
        (
            "runtime: {a: 1}",
            "runtime",
            "found a mapping; allowed one of tensorrt_llm, reference, simulated, transformers",
        ),
        (
            "parallelism: {tensor: all}",
            "parallelism.tensor",
            "found all (text); allowed a whole number of 1 or more or auto",
        ),
        (
            "parallelism: {tensor: 0}",
            "parallelism.tensor",
            "found 0 (a number); allowed a whole number of 1 or more or auto",
        ),
        (
            "kv_cache: {enable_block_reuse: yes}",
            "kv_cache.enable_block_reuse",
            "found yes (text); allowed true or false",
        ),
        (
            "kv_cache: {free_gpu_memory_fraction: 1}",
            "kv_cache.free_gpu_memory_fraction",
            "found 1 (a number); allowed a number above 0 and below 1",
        ),
        (
            "serve: {start_grace: 2 weeks}",
            "serve.start_grace",
            "found 2 weeks (text); allowed a number or text such as 250ms, 2 min",
        ),
        (
            "serve: {http_port: 70000}",
            "serve.http_port",
            "found 70000 (a number); allowed a whole number from 1 to 65535",
        ),
        (
            "gpu_memory: 0",
            "gpu_memory",
            "found 0 (a number); allowed a whole number or text such as 24 GiB, 80GB",
        ),
        (
            "build: {timeout: 0}",
            "build.timeout",
            "found 0 (a number); allowed a number above 0 or text such as 90 min, 6 h",
        ),
        (
            "build: {options: {--workers: 2}}",
            "build.options.--workers",
            "no name that may stand here; allowed text matching ^[a-z][a-z0-9_]*$",
        ),
        (
            "build: {options: {workers: null}}",
            "build.options.workers",
            "found nothing; allowed true or false or a whole number or text or a list of text",
        ),
        ("schema_version: 2", "schema_version", "found 2 (a number); allowed 1"),
        (
            "alerts: {kv: {samples: 0}}",
            "alerts.kv.samples",
            "found 0 (a number); allowed a whole number of 1 or more",
        ),
    ],
)
def test_one_mistake_one_line(tmp_path: Path, text: str, key: str, problem: str) -> None:
    """A mistake is said with its line, key path, what was found, what is allowed, and the likely typo."""
    assert [f"3: {key}: {problem}"] == problems(tmp_path, text)


def test_a_nested_mistake_has_its_own_line(tmp_path: Path) -> None:
    """A list item three lines down is found there."""
    text = "quantization:\n  exclude:\n    - lm_head\n    - 3"

    assert ['6: quantization.exclude.1: found 3 (a number); allowed text; quote it: "3"'] == problems(tmp_path, text)


def test_missing_keys_are_named_once_each(tmp_path: Path) -> None:
    """A document without its required keys lacks four."""
    file = tmp_path / "p.yaml"
    file.write_text("# a profile\nsummary: x\n")
    with pytest.raises(ProfileError) as caught:
        load_profile(str(file))

    assert [
        f"{file}:1: schema_version: missing; it must be 1",
        f"{file}:1: name: missing; it must be text matching ^[a-z0-9][a-z0-9._-]{{0,62}}$",
        f"{file}:1: hardware: missing; it must be one of {MACHINES} or the path of a .yaml file",
        f"{file}:1: trtllm_version: missing; it must be text such as 1.2.1, main",
    ] == list(caught.value.problems)


@pytest.mark.parametrize(
    ("found", "meant"),
    [("h200x8", "h200x8-700w"), ("cpu-rehersal", "cpu-rehearsal"), ("H200X1", "h200x1"), ("", None), ("abacus", None)],
)
def test_suggestions(found: str, meant: str | None) -> None:
    """The beginning of a word wins over a near one; what is far from all gets no suggestion."""
    text = did_you_mean(found, ("h200x1", "h200x8-700w", "cpu-rehearsal"))

    assert (f"; did you mean {meant}?" if meant else "") == text
