"""``trtkit plan --against``: failures from the field that a plan decides once it is shown what is there already."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lint.five_models import write_five_models
from tests.lint.test_repositories import write_engine
from tests.plan.test_checks import with_facts
from tests.support.cli import trtkit
from tests.support.specs import figure, hardware, llama_8b, llama_70b, profile
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.cli.plan import Beside
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.model import ModelSpec

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
Given = Callable[[Path], Path]


def script(*lines: str) -> Given:
    """Write a shell script."""
    return lambda place: text(place / "start.sh", "#!/bin/bash\nset -e\n" + "\n".join(lines) + "\n")


def document(words: str) -> Given:
    """Write an LLM-API document."""
    return lambda place: text(place / "args.yaml", words)


def five(model: str = "", old: str = "", new: str = "") -> Given:
    """Write a repository of five models, one text of one of them changed."""
    return lambda place: write_five_models(place / "repository", {model: {old: new}} if model else {})


def engine(changed: Callable[[Path], object] = lambda _: None, **config: Any) -> Given:
    """Write an engine of 0.19.0, sections of its config.json and then its folder changed."""

    def write(place: Path) -> Path:
        folder = write_engine(place / "engine", max_batch_size=64, max_seq_len=8192, max_input_len=8192)
        document = json.loads((folder / "config.json").read_text())
        document |= config
        (folder / "config.json").write_text(json.dumps({key: value for key, value in document.items() if value}))
        changed(folder)
        return folder

    return write


def on_engine(batch: int) -> Given:
    """Write a repository whose engine, built for a batch, lies beside it."""

    def write(place: Path) -> Path:
        folder = write_engine(place / "engine", max_batch_size=batch, max_seq_len=8192, max_input_len=8192)
        return write_five_models(place / "repository", {"tensorrt_llm": {"/engines/llama": str(folder)}})

    return write


def two_models(place: Path) -> Path:
    """Write a repository of two engines."""
    root = five()(place)
    other = (root / "tensorrt_llm" / "config.pbtxt").read_text().replace('"tensorrt_llm"', '"second"')
    (root / "second" / "1").mkdir(parents=True)
    text(root / "second" / "config.pbtxt", other)
    return root


def in_a_folder(holds: str) -> Given:
    """Write a script that changes to a folder and starts a server there."""

    def write(place: Path) -> Path:
        (place / "TensorRT-LLM" / holds).mkdir(parents=True)
        return script("cd TensorRT-LLM && tritonserver --model-repository=/models")(place)

    return write


def pod(path: str) -> Given:
    """Write a Deployment whose liveness probe asks for a path, behind a Service in the same file."""
    return lambda place: text(place / "pod.yaml", POD.replace("PATH", path))


POD = """apiVersion: v1
kind: Service
metadata: {name: triton}
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: triton
          resources: {limits: {nvidia.com/gpu: 1}}
          livenessProbe: {httpGet: {path: PATH, port: 8000}}
          volumeMounts: [{name: shm, mountPath: /dev/shm}]
      volumes:
        - {name: shm, emptyDir: {medium: Memory, sizeLimit: 2Gi}}
"""


def text(path: Path, words: str) -> Path:
    """Write a file."""
    path.write_text(words)
    return path


def small_host() -> Hardware:
    """Make a machine of 64 GiB of CPU memory."""
    return hardware(2).model_copy(update={"host_memory_bytes": figure(2**36)})


@dataclass(frozen=True)
class Case:
    """What is there already, what the plan beside it must say, and a near thing that it must not say it of."""

    rule: str
    severity: Severity
    compared: str
    given: Given
    near: Given
    changes: tuple[tuple[str, Any], ...] = ()
    model: Callable[[], ModelSpec] = llama_8b
    machine: Callable[[], Hardware] = lambda: hardware(2)
    mounts: bool = False


def gemma() -> ModelSpec:
    """Make a model of the name that an old ModelOpt did not export."""
    return with_facts(llama_8b(), architecture="Gemma3ForCausalLM")


ENGINES = (("toolchain", "trtllm-build"), ("trtllm_version", "0.19.0"))
TWO_RANKS = {"dtype": "float16", "mapping": {"world_size": 2, "tp_size": 2, "pp_size": 1}}
PREFIX = "tritonserver --backend-config=python,shm-region-prefix-name="
AGAINST: dict[str, Case] = {
    "C16": Case("PF12", WARNING, "--use_fp8, weights not quantised",
        script("python convert_checkpoint.py --model_dir m --use_fp8"), script("python quantize.py --qformat fp8"),
        ENGINES),
    "C19": Case("PF14", WARNING, "2 x 131.42 GiB as float32 + 67.67 GiB of the result = 330.50 GiB, 317.20 GiB",
        script("python quantize.py --dtype float32 --qformat fp8"), script("python quantize.py --qformat fp8"),
        (*ENGINES, ("quantization.weights", "fp8")), model=llama_70b, machine=lambda: hardware(4, 79.3, 80)),
    "C21": Case("PF14", WARNING, "8 x 14.96 GiB = 119.66 GiB, 64.00 GiB there",
        script("python3 convert_checkpoint.py \\", "  --workers 8"),
        script("python3 convert_checkpoint.py \\", "  --workers 4"), ENGINES, machine=small_host),
    "C31": Case("PF13", WARNING, "ModelOpt 0.27.1, 0.29 exports it",
        script("pip install 'nvidia-modelopt[torch]==0.27.1'"),
        script("pip install 'nvidia-modelopt[torch]==0.29.0'"), model=gemma),
    "R03": Case("PF19", WARNING, "version absent, served by 0.19.0", engine(version=None), engine(), ENGINES),
    "R05": Case("PF20", WARNING, "1 MPI ranks, tensor x pipeline x context of the engine is 2",
        engine(lambda folder: text(folder / "rank1.engine", "engine"), pretrained_config=TWO_RANKS), engine(), ENGINES),
    "R07": Case("PF19", ERROR, "missing none, empty [0]", engine(lambda folder: text(folder / "rank0.engine", "")),
        engine(), ENGINES),
    "M02": Case("PF19", ERROR, "1 rank files, 0 config.json",
        engine(lambda folder: (folder / "config.json").unlink()), engine(), ENGINES),
    "M03": Case("PF21", WARNING, "postprocessing: onnxruntime; image nvcr.io/nvidia/tritonserver:",
        five("postprocessing", 'backend: "python"', 'backend: "onnxruntime"'), five()),
    "M04": Case("PF21", WARNING, "tensorrt_llm true, tensorrt_llm_bls false",
        five("tensorrt_llm_bls", "decoupled: true", "decoupled: false"), five()),
    "M05": Case("PF21", INFO, "ensemble and decoupled, accumulate_tokens off", five(),
        five("tensorrt_llm_bls", '"false"', '"true"')),
    "M06": Case("PF21", WARNING, "accumulate_tokens and decoupled true, max_beam_width 4",
        lambda place: write_five_models(place / "r", {"tensorrt_llm": {'"1"\n  }\n}\nparameters: {\n  key: "FORCE':
            '"4"\n  }\n}\nparameters: {\n  key: "FORCE'}, "tensorrt_llm_bls": {'"false"': '"true"'}}),
        five("tensorrt_llm_bls", '"false"', '"true"')),
    "M10": Case("PF21", WARNING, "tensorrt_llm: max_batch_size 64, the engine's 8", on_engine(8), on_engine(64),
        ENGINES),
    "M11": Case("PF21", WARNING, "tensorrt_llm: max_queue_delay_microseconds 2,000,000",
        five("tensorrt_llm", "microseconds: 0", "microseconds: 2000000"), five()),
    "M12": Case("PF21", WARNING, "preprocessing: tokenizer_dir /models/lama",
        five("preprocessing", '"/tokenizers/llama"', '"/models/lama"'),
        five("preprocessing", '"/tokenizers/llama"', '"/models/llama"'), mounts=True),
    "M13": Case("PF21", WARNING, "preprocessing: tokenizer_type auto",
        five("preprocessing", '"max_num_images"', '"tokenizer_type"\n  value: {\n    string_value: "auto"\n  }\n}\n'
             'parameters: {\n  key: "max_num_images"'), five()),
    "M17": Case("PF21", WARNING, "tensorrt_llm: max_beam_wdth 1",
        five("tensorrt_llm", '"max_beam_width"', '"max_beam_wdth"'), five()),
    "L01": Case("PF20", WARNING, "shm-region-prefix-name a_ more than once",
        script(f"{PREFIX}a_ &> one.log &", f"{PREFIX}a_ --http-port 9000 2>&1 &"),
        script(f"{PREFIX}a_ &", f"{PREFIX}b_ --http-port 9000 &")),
    "L02": Case("PF21", WARNING, "tensorrt_llm: KIND_GPU, count 1, gpus [0, 1]",
        five("tensorrt_llm", "count: 1 kind : KIND_CPU", "count: 1 kind: KIND_GPU gpus: [0, 1]"), five()),
    "L03": Case("PF20", WARNING, "2 models with engines, 2 MPI ranks", two_models, five(),
        (("parallelism.tensor", 2),)),
    "L11": Case("PF20", WARNING, "tensorrt_llm in the working folder", in_a_folder("tensorrt_llm"), in_a_folder("docs"),
        (("trtllm_version", "1.1.0"),)),
    "K14": Case("PF23", WARNING, "use_kv_cache_manager_v2 true",
        document("kv_cache_config: {use_kv_cache_manager_v2: true}\n"), document("kv_cache_config: {}\n"),
        (("trtllm_version", "1.3.0rc20"),)),
    "D07": Case("PF25", WARNING, "eagle_choices is set",
        document("speculative_config: {decoding_type: Eagle, max_draft_len: 3, eagle_choices: [[0]]}\n"),
        document("speculative_config: {decoding_type: Eagle, max_draft_len: 3}\n")),
    "H03": Case("PF23", WARNING, "return_perf_metrics and enable_iter_perf_stats not true",
        document("max_seq_len: 4096\n"),
        document("return_perf_metrics: true\nenable_iter_perf_stats: true\n"),
        (("alerts", {"queue-depth": {"ok": "0:0"}}),)),
    "H08": Case("PF20", WARNING, "liveness /v2/health/ready", pod("/v2/health/ready"), pod("/v2/health/live")),
}  # fmt: skip
"""By the id of the case."""


def spoken(case: Case, given: Given, place: Path) -> list[Finding]:
    """Plan, and return what is said of a given thing beside the plan."""
    (place / "host" / "llama").mkdir(parents=True)
    loaded, machine = profile(dict(case.changes)), case.machine()
    plan = settle(case.model(), loaded, machine)
    mounts = ((place / "host", "/models"),) if case.mounts else ()
    read = Beside((given(place),), mounts).read(plan, loaded, machine)
    return [one.finding for _, found in read for one in found.findings]


def of_rule(case: Case, found: list[Finding]) -> list[str]:
    """Return what a rule compared, by its numbers."""
    return [one.compared for one in found if (one.rule, one.severity) == (case.rule, case.severity)
            and case.compared in one.compared]  # fmt: skip


@pytest.mark.parametrize("name", AGAINST)
def test_it_is_told_beside_the_plan(name: str, tmp_path: Path) -> None:
    """The finding names the numbers that the failure came from, once."""
    case = AGAINST[name]
    found = spoken(case, case.given, tmp_path)
    assert 1 == len(of_rule(case, found)), found


@pytest.mark.parametrize("name", AGAINST)
def test_a_near_thing_is_legal_for_every_rule(name: str, tmp_path: Path) -> None:
    """What does not have the fault is accused of nothing at all."""
    case = AGAINST[name]
    assert [] == [one for one in spoken(case, case.near, tmp_path) if one.severity is not INFO]


def test_the_verb_shows_both_and_fails_for_either(tmp_path: Path) -> None:
    """Findings stand under the path with file and line; without an error the plan's own exit code holds."""
    model = write_tiny_model(tmp_path / "model", max_position_embeddings=8192)
    words = ("plan", model, "-p", "cpu-rehearsal-smollm2", "--against")
    near, bad = five()(tmp_path), text(tmp_path / "bad.yaml", "# twice\nmax_batchsize: 1\n")
    clean, broken = trtkit(*words, near), trtkit(*words, near, "--against", bad)
    assert (0, 1) == (clean.code, broken.code)
    assert f"Against {bad}, LLM-API YAML\nERROR PF24 at bad.yaml:2" in broken.out
    assert clean.out.splitlines()[-1] == broken.out.splitlines()[-1], "the plan's digest is that of the plan alone"
    told = trtkit(*words, bad, "--json").json
    assert ("no", ["LLM-API YAML"]) == (told["verdict"], [one["kind"] for one in told["against"]])


def test_what_cannot_be_read_ends_the_verb(tmp_path: Path) -> None:
    """Half a look is no verdict."""
    model = write_tiny_model(tmp_path / "model", max_position_embeddings=8192)
    ran = trtkit("plan", model, "-p", "cpu-rehearsal-smollm2", "--against", tmp_path / "nothing")
    assert (3, True) == (ran.code, "nothing cannot be linted" in ran.err)
