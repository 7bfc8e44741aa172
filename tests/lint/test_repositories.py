"""Linting repositories: every rule about one is reached from the files, and is shown at its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lint.five_models import write_five_models
from trtllm_kit.findings import Severity
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.report import Read
from trtllm_kit.lint.run import lint
from trtllm_kit.spec.load import hardware_for, load_profile

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
CONTEXT = Context("1.2.1")


def told(read: Read, least: Severity = WARNING) -> list[tuple[str, str, str, str]]:
    """Return severity, rule, place and numbers of what is at least so grave."""
    order = list(Severity)
    return [
        (one.finding.severity.value, one.finding.rule, one.place, one.finding.compared)
        for one in read.findings
        if order.index(one.finding.severity) <= order.index(least)
    ]


def of_five(
    tmp_path: Path, model: str, old: str, new: str, context: Context = CONTEXT
) -> list[tuple[str, str, str, str]]:
    """Change one text of one model, and return what is told."""
    return told(lint(write_five_models(tmp_path / "r", {model: {old: new}}), context))


@pytest.mark.parametrize(
    ("model", "old", "new", "severity", "place", "compared"),
    [
        ("tensorrt_llm", "max_batch_size: 64", "max_batch_size: ${triton_max_batch_size}", "error",
         "tensorrt_llm/config.pbtxt", "tensorrt_llm: ${triton_max_batch_size}"),
        ("tensorrt_llm", '"/engines/llama"', '"${engine_dir}"', "error", "tensorrt_llm/config.pbtxt:",
         "tensorrt_llm: parameter gpt_model_path is ${engine_dir}"),
        ("preprocessing", '"/tokenizers/llama"', '"${tokenizer_dir}"', "error", "preprocessing/config.pbtxt:",
         "preprocessing: parameter tokenizer_dir is ${tokenizer_dir}"),
        ("tensorrt_llm_bls", "decoupled: true", "decoupled: false", "warning", "",
         "tensorrt_llm true, tensorrt_llm_bls false"),
        ("tensorrt_llm", "preferred_batch_size: [ 64 ]", "preferred_batch_size: [ 64, 128 ]", "error",
         "tensorrt_llm/config.pbtxt:", "tensorrt_llm: preferred 128, max_batch_size 64"),
        ("tensorrt_llm", "microseconds: 0", "microseconds: 2000000", "warning", "tensorrt_llm/config.pbtxt:",
         "tensorrt_llm: max_queue_delay_microseconds 2,000,000"),
        ("tensorrt_llm", "count: 1 kind : KIND_CPU", "count: 1 kind: KIND_GPU gpus: [0, 1]", "warning",
         "tensorrt_llm/config.pbtxt", "tensorrt_llm: KIND_GPU, count 1, gpus [0, 1]"),
        ("tensorrt_llm", '"max_beam_width"', '"max_beam_wdth"', "warning", "tensorrt_llm/config.pbtxt:",
         "tensorrt_llm: max_beam_wdth 1"),
        ("tensorrt_llm", '"max_beam_width"', '"max_num_tokens"', "warning", "tensorrt_llm/config.pbtxt:",
         "tensorrt_llm: max_num_tokens 1"),
        ("ensemble", "max_batch_size: 64", "max_batch_size: 128", "error", "ensemble/config.pbtxt",
         "ensemble: max_batch_size 128, preprocessing has 64"),
        ("ensemble", "TYPE_FP16", "TYPE_BF16", "error", "ensemble/config.pbtxt", "prompt_embedding_table is TYPE_BF16"),
        ("ensemble", '"postprocessing"', '"detokenizer"', "warning", "ensemble/config.pbtxt",
         "ensemble: step detokenizer, no folder of that name"),
        ("tensorrt_llm", '"inflight_fused_batching"', '"inflight"', "warning", "tensorrt_llm/config.pbtxt:",
         "tensorrt_llm: gpt_model_type is inflight"),
    ],
)  # fmt: skip
def test_a_change_of_one_text_is_told(
    model: str, old: str, new: str, severity: str, place: str, compared: str, tmp_path: Path
) -> None:
    """Of a repository that is otherwise filled in, with severity, place and numbers."""
    found = of_five(tmp_path, model, old, new)
    match = [one for one in found if compared in one[3]]
    assert match, found
    assert severity == match[0][0]
    assert match[0][2].startswith(place)


def test_the_line_is_that_of_the_parameter(tmp_path: Path) -> None:
    """An editor jumps to it."""
    root = write_five_models(tmp_path / "r", {"tensorrt_llm": {'"/engines/llama"': '"${engine_dir}"'}})
    found = [one for one in lint(root, CONTEXT).findings if one.finding.severity is ERROR]
    lines = (root / "tensorrt_llm" / "config.pbtxt").read_text().splitlines()
    assert '  key: "gpt_model_path"' == lines[int(found[0].line or 0)]


def test_one_broken_file_does_not_hide_the_others(tmp_path: Path) -> None:
    """A file that was cut off is an ERROR at its last line, and what the other models have is told too."""
    root = write_five_models(tmp_path / "r", {"preprocessing": {'"/tokenizers/llama"': '"${tokenizer_dir}"'}})
    path = root / "tensorrt_llm" / "config.pbtxt"
    path.write_text(path.read_text()[:-6])
    found = told(lint(root, CONTEXT), ERROR)
    assert {"tensorrt_llm/config.pbtxt", "preprocessing/config.pbtxt"} == {
        place.partition(":")[0] for *_, place, _ in found
    }
    assert any("found the end of the file" in compared for *_, compared in found)


def test_a_binary_file_in_the_place_of_a_configuration_is_an_error(tmp_path: Path) -> None:
    """The server stops at it, and the lint says where."""
    root = write_five_models(tmp_path / "r")
    (root / "ensemble" / "config.pbtxt").write_bytes(b"\x08\x96\x01\xff\xfe" * 100)
    assert [("error", "PF21", "ensemble/config.pbtxt:1", "ensemble: line 1: byte 0x96 is not UTF-8")] == told(
        lint(root, CONTEXT), ERROR
    )


def test_empty_version_folders_that_git_left_out_are_told(tmp_path: Path) -> None:
    """Each model without one."""
    root = write_five_models(tmp_path / "r")
    (root / "ensemble" / "1").rmdir()
    assert [
        (
            "warning",
            "PF21",
            "ensemble/config.pbtxt",
            "ensemble: no folder named by a number; not confirmed for this release",
        )
    ] == told(lint(root, CONTEXT))


def test_the_engine_that_a_model_names_is_read_where_it_is_here(tmp_path: Path) -> None:
    """Its batch, its reuse and its ranks are compared, and it names the release."""
    engine = write_engine(tmp_path / "engine", plugin={"use_paged_context_fmha": False})
    root = write_five_models(tmp_path / "r", {"tensorrt_llm": {"/engines/llama": str(engine)}})
    read = lint(root, Context())
    assert ("0.19.0", "what is linted") == (read.release, read.release_from)
    found = told(read)
    assert ("warning", "PF21") in [one[:2] for one in found if "max_batch_size 64, the engine's 8" in one[3]]
    assert ("warning", "PF23") in [one[:2] for one in found if "block reuse asked" in one[3]]
    again = told(lint(root, Context("1.2.1")))
    assert ["PF19"] == [one[1] for one in again if "engine of 0.19.0" in one[3]]


def test_an_engine_of_the_paged_kind_is_passed(tmp_path: Path) -> None:
    """The near miss of the same repository."""
    engine = write_engine(tmp_path / "engine", plugin={"use_paged_context_fmha": True}, max_batch_size=64)
    root = write_five_models(tmp_path / "r", {"tensorrt_llm": {"/engines/llama": str(engine)}})
    assert [] == told(lint(root, Context()))


def write_engine(folder: Path, *, plugin: dict[str, Any] | None = None, **limits: int) -> Path:
    """Write an engine folder of 0.19.0 for one rank."""
    build = {"max_batch_size": 8, "max_seq_len": 2048, "max_input_len": 1024, "max_beam_width": 1} | limits
    config = {
        "version": "0.19.0",
        "pretrained_config": {"dtype": "float16", "mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1}},
        "build_config": build | {"plugin_config": plugin or {}},
    }
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "rank0.engine").write_bytes(b"engine")
    return folder


LLMAPI = 'name: "tensorrt_llm"\nbackend: "python"\ninstance_group [ { count: 1 kind: KIND_CPU } ]\n'
MODEL_YAML = "model: /models/llama\nbackend: pytorch\ntriton_config:\n  max_batch_size: 0\n  decoupled: false\n"


def llmapi(tmp_path: Path, config: str = LLMAPI, arguments: str = MODEL_YAML) -> Path:
    """Write an llmapi repository as upstream's template gives it: no policy in config.pbtxt."""
    (tmp_path / "r" / "tensorrt_llm" / "1").mkdir(parents=True)
    (tmp_path / "r" / "tensorrt_llm" / "config.pbtxt").write_text(config)
    (tmp_path / "r" / "tensorrt_llm" / "1" / "model.yaml").write_text(arguments)
    return tmp_path / "r"


def test_an_llmapi_template_filled_in_is_clean(tmp_path: Path) -> None:
    """From the first release that has it."""
    root = llmapi(tmp_path)
    for version in ("1.0.0", "1.2.1", "main"):
        assert [] == told(lint(root, Context(version))), version


@pytest.mark.parametrize(
    ("arguments", "severity", "rule", "place", "compared"),
    [
        (MODEL_YAML + "cuda_graph_padding_enabled: true\n", "error", "PF24", ":6",
         "became cuda_graph_config.enable_padding"),
        (MODEL_YAML + "kv_cache_config:\n  free_gpu_mem_fraction: 0.8\n", "error", "PF24", ":7",
         "no release that was read"),
        (MODEL_YAML.replace("decoupled: false", "decoupled: true"), "warning", "PF21", ":5",
         "model_transaction_policy absent"),
        (MODEL_YAML.replace("batch_size: 0", "batch_size: 8"), "warning", "PF21", ":4",
         "triton_config.max_batch_size 8"),
        ("model: x\n", "warning", "PF21", "", "triton_config lacks max_batch_size and decoupled"),
        ("model: [x\n", "error", "PF24", ":2", "line 2: while parsing a flow sequence"),
        (MODEL_YAML + "model: y\n", "warning", "PF24", ":6", "model on lines 1 and 6"),
    ],
)  # fmt: skip
def test_the_yaml_of_an_llmapi_model_is_linted_with_its_lines(
    arguments: str, severity: str, rule: str, place: str, compared: str, tmp_path: Path
) -> None:
    """Keys, the settings of the model files, and YAML that does not load."""
    found = told(lint(llmapi(tmp_path, arguments=arguments), CONTEXT))
    assert [(severity, rule, f"tensorrt_llm/1/model.yaml{place}")] == [one[:3] for one in found]
    assert compared in found[0][3]


def test_one_model_folder_is_linted_alone(tmp_path: Path) -> None:
    """The same findings, placed from that folder."""
    root = llmapi(tmp_path, arguments=MODEL_YAML + "kv_cache_free_fraction: 1\n")
    read = lint(root / "tensorrt_llm", CONTEXT)
    assert "model of a Triton repository" == read.kind
    assert ["1/model.yaml:6"] == [one.place for one in read.findings]


def test_a_tensorrt_backend_in_yaml_is_not_judged_by_pytorch_keys(tmp_path: Path) -> None:
    """Keys of another backend are legal, and the tables do not know them all."""
    arguments = MODEL_YAML.replace("pytorch", "tensorrt") + "enable_build_cache: true\n"
    assert [] == told(lint(llmapi(tmp_path, arguments=arguments), CONTEXT))


def test_two_copies_of_a_model_link_are_two_models(tmp_path: Path) -> None:
    """A link to a model's folder has another name than its configuration."""
    root = llmapi(tmp_path)
    (root / "copy").symlink_to("tensorrt_llm")
    assert ["copy/config.pbtxt:1"] == [one[2] for one in told(lint(root, CONTEXT))]


def test_paths_of_the_container_are_looked_up_under_mounts(tmp_path: Path) -> None:
    """Under a mount they are there or not; elsewhere nobody can say."""
    root = write_five_models(tmp_path / "r")
    write_engine(tmp_path / "srv" / "llama", plugin={"use_paged_context_fmha": True}, max_batch_size=64)
    mounted = Context("0.19.0", mounts=((tmp_path / "srv", "/engines"), (tmp_path / "srv", "/tokenizers")))
    assert [] == told(lint(root, mounted))
    assert "/engines/llama" == lint(root, mounted).facts["engine"]
    empty = Context("0.19.0", mounts=((tmp_path / "none", "/engines"), (tmp_path / "none", "/tokenizers")))
    assert {
        ("PF21", "tensorrt_llm: gpt_model_path /engines/llama; not confirmed for this release"),
        ("PF21", "preprocessing: tokenizer_dir /tokenizers/llama; not confirmed for this release"),
        ("PF21", "postprocessing: tokenizer_dir /tokenizers/llama; not confirmed for this release"),
    } == {(one[1], one[3]) for one in told(lint(root, empty))}
    assert [] == told(lint(root, Context("0.19.0", mounts=((tmp_path / "none", "/engine"),))))


@pytest.mark.parametrize("version", ["0.11.0", "0.20.0rc3.dev20250501", "0.5.0", "nobody's"])
def test_an_engine_of_a_release_that_no_table_names_is_read(version: str, tmp_path: Path) -> None:
    """Rules of the ranges it lies in answer; a text that is no version is not taken for one."""
    engine = write_engine(tmp_path / "engine", plugin={"use_paged_context_fmha": True}, max_batch_size=64)
    config = (engine / "config.json").read_text()
    (engine / "config.json").write_text(config.replace("0.19.0", version))
    root = write_five_models(tmp_path / "r", {"tensorrt_llm": {"/engines/llama": str(engine)}})
    for path in (engine, root):
        read = lint(path, Context())
        assert ("1.2.1" if version == "nobody's" else version) == read.release


@pytest.mark.parametrize(("backend", "count"), [("onnxruntime", 1), ("python", 0)])
def test_a_profile_names_the_image_and_so_the_backends(backend: str, count: int, tmp_path: Path) -> None:
    """The container of the profile's release holds three of them; without a profile the image is not known."""
    folder = tmp_path / "r" / "m" / "1"
    folder.mkdir(parents=True)
    (tmp_path / "r" / "m" / "config.pbtxt").write_text(f'name: "m"\nbackend: "{backend}"\n')
    loaded = load_profile("h200x4-online")
    context = Context(loaded=loaded, hardware=hardware_for(loaded.profile))
    assert count == len([one for one in told(lint(tmp_path / "r", context)) if f"m: {backend}; image" in one[3]])
    assert [] == told(lint(tmp_path / "r", CONTEXT))


@pytest.mark.parametrize(
    ("more", "said"),
    [("", ["3 models with engines, 2 MPI ranks; not confirmed for this release"]),
     ('environment: {TRTLLM_ORCHESTRATOR: "1"}', [])],
)  # fmt: skip
def test_a_profile_with_ranks_cannot_lead_several_models(more: str, said: list[str], tmp_path: Path) -> None:
    """One launch is made for one model's ranks, unless the orchestrator starts them."""
    root = write_five_models(tmp_path / "r")
    text = (root / "tensorrt_llm" / "config.pbtxt").read_text()
    for name in ("second", "third"):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(text.replace('"tensorrt_llm"', f'"{name}"'))
    profile = "name: led\nbase: h200x8-offline\nparallelism: {tensor: 2, pipeline: 1}\n"
    (tmp_path / "led.yaml").write_text(profile + more)
    loaded = load_profile(str(tmp_path / "led.yaml"))
    context = Context(loaded=loaded, hardware=hardware_for(loaded.profile))
    assert said == [one[3] for one in told(lint(root, context)) if one[1] == "PF20"]
    assert [] == [one for one in told(lint(root, CONTEXT)) if one[1] == "PF20"]
