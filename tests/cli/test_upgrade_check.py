"""``trtkit upgrade-check`` as its users run it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import MODELS, trtkit

PROFILE = "base: h200x1-llama3.1-8b-fp8\nname: ours\ntrtllm_version: '1.2.1'\n"


def findings(folder: Path, *options: str, to: str = "main") -> list[dict[str, Any]]:
    """Return the findings about a project."""
    ran = trtkit("upgrade-check", folder, "--to", to, "--json", *options)
    assert ran.code in (0, 1), ran.err
    found: list[dict[str, Any]] = ran.json["findings"]
    return found


def write(folder: Path, name: str, text: str) -> Path:
    """Write a file of a project."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("name", "text", "rule", "line", "mend"),
    [
        ("a/extra.yaml", "backend: pytorch\nuse_cuda_graph: true\n", "PF24", 2,
         "trtkit migrate yaml {} --from 0.21.0 --to main --in-place"),
        ("build.sh", "echo\ntrtllm-build --checkpoint_dir x\n", "PF15", 2, "trtkit migrate engine {} --to main"),
        ("serve.sbatch", "trtllm-serve m --max_batchsize 8\n", "PF48", 1,
         "trtkit migrate yaml {} --from RELEASE --to main --in-place"),
        ("serve.sh", "cat > a.yaml <<EOF\nkv_cache_dtype: fp8\nEOF\ntrtllm-serve m --config a.yaml\n", "PF24", 2,
         "trtkit migrate yaml {} --from RELEASE --to main --in-place"),
        ("Dockerfile", "FROM nvcr.io/nvidia/tritonserver:25.05-trtllm-python-py3\n"
         "RUN trtllm-build --workers 2\n",
         "PF15", 2, "trtkit migrate engine {} --to main"),
        ("Dockerfile.serve", "FROM nvcr.io/nvidia/tritonserver:25.05-trtllm-python-py3\nCMD trtllm-serve m\n",
         "PF49", 1, ""),
        ("rules/a.yml", "groups:\n- name: a\n  rules:\n  - alert: A\n    expr: nv_trt_llm_general_metrics > 1\n",
         "PF50", 5, "trtkit migrate engine ENGINE --to main --rules {}"),
        ("board.json", '{"panels": [\n{"expr": "nv_trt_llm_kv_cache_block_metrics"}]}', "PF50", 2, ""),
        ("ours.yaml", PROFILE + "toolchain: trtllm-build\n", "KIT-BUILD-002", 4,
         "trtllm_version: main, and what the finding says"),
        ("ours.yaml", PROFILE + "limits:\n  max_batch_size: no\n", "KIT-PROFILE-001", 5,
         "trtllm_version: main, and what the finding says"),
    ],
)  # fmt: skip
def test_what_a_release_breaks_is_found_where_it_stands(
    name: str, text: str, rule: str, line: int, mend: str, tmp_path: Path
) -> None:
    """With the file from the project's folder, the line, and the command that mends it."""
    write(tmp_path, name, text)
    found = [(one["file"], one["rule"], one["line"], one["mend"] or "") for one in findings(tmp_path)]
    assert (name, rule, line, mend.format(tmp_path / name)) in found


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("build.sh", "trtllm-build --context_fmha disable\ntrtllm-build --context_fmha enable\n", [1]),
        ("Dockerfile", "FROM a\nRUN trtllm-build --context_fmha disable\nRUN trtllm-build --context_fmha enable\n",
         [2]),
        ("Dockerfile", "FROM a\nRUN trtllm-build --context_fmha disable && \\\n  trtllm-build --context_fmha disable\n",
         [2, 3]),
        ("job.yaml", "apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {\ninitContainers: [\n"
         "{name: a, image: x, command: [trtllm-build, --context_fmha, disable]},\n"
         "{name: b, image: x, command: [trtllm-build, --context_fmha, enable]}],\n"
         "containers: [{name: c, image: x, command: [trtllm-serve, m]}]}}}\n", [5]),
        ("compose.yaml", "services:\n  a:\n    image: x\n    command: trtllm-build --context_fmha disable\n"
         "  b:\n    image: x\n    command: trtllm-build --context_fmha enable\n", [4]),
    ],
)  # fmt: skip
def test_each_of_several_commands_is_judged_by_itself(name: str, text: str, lines: list[int], tmp_path: Path) -> None:
    """What a later build in the same file is given says nothing of an earlier one."""
    write(tmp_path, name, text)
    assert lines == [one["line"] for one in findings(tmp_path, to="0.17.0") if "context FMHA" in one["message"]]


def test_engines_checkpoints_and_repositories_are_one_thing_each(tmp_path: Path) -> None:
    """What lies inside of them is not looked at a second time."""
    write(tmp_path, "engine/config.json", json.dumps({"version": "1.2.1", "build_config": {}, "pretrained_config": {}}))
    write(tmp_path, "engine/rank0.engine", "bytes")
    write(tmp_path, "ckpt/config.json", json.dumps({"architecture": "LlamaForCausalLM", "mapping": {}}))
    write(tmp_path, "repo/tensorrt_llm/config.pbtxt", 'name: "tensorrt_llm"\nbackend: "tensorrtllm"\n')
    write(tmp_path, "repo/tensorrt_llm/1/model.yaml", "use_cuda_graph: true\n")
    found = {(one["file"], one["rule"]) for one in findings(tmp_path) if one["severity"] == "error"}
    assert ("engine/config.json", "PF19") in found
    assert ("ckpt/config.json", "PF19") in found
    assert ("repo/tensorrt_llm/config.pbtxt", "PF19") in found
    read = {one["path"] for one in trtkit("upgrade-check", tmp_path, "--to", "main", "--json").json["read"]}
    assert {"engine", "ckpt", "repo"} == read


def test_the_document_of_a_repository_is_mended_in_its_place(tmp_path: Path) -> None:
    """The llmapi model's model.yaml lies inside of one thing, and the command names the file."""
    write(tmp_path, "repo/llm/config.pbtxt", 'name: "llm"\nbackend: "python"\n')
    file = write(tmp_path, "repo/llm/1/model.yaml", "model: m\nsampler_type: auto\ntriton_config:\n  decoupled: true\n")
    mends = [one["mend"] for one in findings(tmp_path) if one["rule"] == "PF24"]
    assert [f"trtkit migrate yaml {file} --from 1.3.0rc29 --to main --in-place"] == mends


def test_profiles_are_planned_for_the_release_with_the_model_of_the_project(tmp_path: Path) -> None:
    """The findings of the plan are those of the profile; another profile's machine does not matter."""
    (tmp_path / "model").mkdir()
    shutil.copy(MODELS / "llama-3.1-8b.json", tmp_path / "model" / "config.json")
    write(tmp_path, "ours.yaml", PROFILE + "limits:\n  max_seq_len: 400000\n  max_num_tokens: 8192\n")
    rules = {one["rule"] for one in findings(tmp_path) if one["file"] == "ours.yaml"}
    assert rules & {"PF11", "PF18"}


def test_an_option_of_the_llm_api_is_found_on_its_own_line(tmp_path: Path) -> None:
    """The plan says what the release dropped of a profile's own keys; the way out is the profile's."""
    (tmp_path / "model").mkdir()
    shutil.copy(MODELS / "llama-3.1-8b.json", tmp_path / "model" / "config.json")
    options = "  options:\n    print_iter_log: true\n    kv_cache_config.onboard_blocks: false\n"
    write(tmp_path, "ours.yaml", PROFILE + "llm_api:\n" + options)
    (dropped,) = [one for one in findings(tmp_path, "--from", "1.2.1") if one["rule"] == "PF24"]
    assert (7, "leave llm_api.options.kv_cache_config.onboard_blocks out") == (dropped["line"], dropped["suggestion"])


def test_what_the_release_takes_is_no_finding(tmp_path: Path) -> None:
    """A project for that release is clean, and so are files of other programs."""
    write(tmp_path, "extra.yaml", "kv_cache_config:\n  dtype: fp8\ncuda_graph_config:\n  enable_padding: true\n")
    write(tmp_path, "serve.sh", "trtllm-serve m --config extra.yaml --max_batch_size 8\n")
    write(tmp_path, "ci.yaml", "jobs:\n  test:\n    steps: [a]\n")
    write(tmp_path, "ours.yaml", PROFILE)
    write(tmp_path, "Dockerfile", "FROM nvcr.io/nvidia/tritonserver:26.06-trtllm-python-py3\n")
    assert [] == findings(tmp_path, to="1.2.1")


def test_only_what_is_new_is_told_with_the_release_of_today(tmp_path: Path) -> None:
    """A key that no release takes is no news; one that the next release dropped is."""
    write(tmp_path, "extra.yaml", "colour: red\nsampler_type: auto\nmax_batch_size: 8\ndtype: auto\n")
    lines = [one["line"] for one in findings(tmp_path, "--from", "1.2.1") if one["rule"] != "PF51"]
    assert [2] == lines
    assert [1, 2] == sorted(one["line"] for one in findings(tmp_path))


def test_folders_of_tools_loops_and_other_kinds_of_files_are_passed(tmp_path: Path) -> None:
    """No copy of a package is judged, no link is followed round, and what cannot be read is listed."""
    bad = "use_cuda_graph: true\n"
    for place in (".git", "node_modules/x", ".venv", "env"):
        write(tmp_path, f"{place}/extra.yaml", bad)
    write(tmp_path, "env/pyvenv.cfg", "")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "lost.yaml").symlink_to(tmp_path / "nowhere")
    write(tmp_path, "big.yaml", "# " + "x" * (2 << 20))
    os.mkfifo(tmp_path / "pipe.yaml")
    write(tmp_path, "broken.yaml", "a: [1\nuse_cuda_graph: true\n")
    ran = trtkit("upgrade-check", tmp_path, "--to", "main", "--json")
    assert ([], 0) == (ran.json["findings"], ran.code)
    listed = {Path(one["path"]).name for one in ran.json["not_read"]}
    assert {"lost.yaml", "big.yaml", "pipe.yaml", "broken.yaml"} == listed
    assert 1 == trtkit("upgrade-check", tmp_path, "--to", "main", "--strict").code


def test_the_exit_code_says_whether_an_error_was_found(tmp_path: Path) -> None:
    """A WARNING counts under --strict alone; a folder that is not there is no clean one."""
    write(tmp_path, "serve.sh", "trtllm-serve m --max_batchsize 8\n")
    assert 0 == trtkit("upgrade-check", tmp_path, "--to", "1.2").code
    assert 1 == trtkit("upgrade-check", tmp_path, "--to", "1.2", "--strict").code
    assert 3 == trtkit("upgrade-check", tmp_path / "nothing", "--to", "1.2").code
    assert 2 == trtkit("upgrade-check", tmp_path, "--to", "9.9").code


def test_what_both_releases_take_and_do_not_do_alike_is_told(tmp_path: Path) -> None:
    """1.2 goes by the document, main by the command line; and by itself 1.2 has other kernels of experts."""
    write(tmp_path, "a.yaml", "tensor_parallel_size: 4\nmax_batch_size: 8\n")
    write(tmp_path, "serve.sh", "\ntrtllm-serve m --config a.yaml --tp_size 2 --max_batch_size 8\n")
    told = findings(tmp_path, "--from", "1.2")
    assert {"PF51"} == {one["rule"] for one in told}
    warned = [(one["file"], one["line"], one["compared"]) for one in told if one["severity"] == "warning"]
    assert [("serve.sh", 2, "1.2.1 goes by the document: 4; main by the command line: 2")] == warned
    assert "write moe_config.backend: CUTLASS" in {one["suggestion"] for one in told}
    assert [] == findings(tmp_path)
