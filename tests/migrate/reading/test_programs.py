"""What programs of the engine backend are given, word by word."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtllm_kit.errors import NothingToMigrate
from trtllm_kit.migrate.found import Found, Reader
from trtllm_kit.migrate.reading.path import found


def read(folder: Path, text: str, name: str = "input.sh") -> Found:
    """Return what is found in a text."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return found(path)


def named(answer: Found, reader: Reader) -> list[tuple[str, object]]:
    """Return the names and values that one program reads."""
    return [(one.name, one.value) for one in answer.settings if one.reader is reader]


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("trtllm-build --max_batch_size=8", [("max_batch_size", 8)]),
        ("trtllm-build --max_batch_size 8 --max_batch_size 9", [("max_batch_size", 8), ("max_batch_size", 9)]),
        ("trtllm-build --fast_build --strip_plan", [("fast_build", True), ("strip_plan", True)]),
        ("trtllm-build --lora_dir a b --workers 2", [("lora_dir", ["a", "b"]), ("workers", 2)]),
        ("/usr/local/bin/trtllm-build --gemm_p auto", [("gemm_plugin", "auto")]),
        ("time nohup trtllm-build --workers 2", [("workers", 2)]),
        ("trtllm-build --strongly_typed --enable_xqa disable", [("strongly_typed", True), ("enable_xqa", "disable")]),
        ("command trtllm-build --checkpoint_dir 'a b'", [("checkpoint_dir", "a b")]),
        ("OUT=$(trtllm-build --workers 2)", [("workers", 2)]),
        ("if ! trtllm-build --workers 2; then exit 1; fi", [("workers", 2)]),
        ("trtllm-build --workers 2 | tee log", [("workers", 2)]),
    ],
)
def test_options_of_the_builder(tmp_path: Path, text: str, settings: list[tuple[str, object]]) -> None:
    """Options come with the type that the builder gives them, wherever the command stands."""
    answer = read(tmp_path, text)
    assert settings == named(answer, Reader.BUILD)
    assert () == answer.unread


@pytest.mark.parametrize("program", ["trtllm-refit", "hf_lora_convert.py", "nemo_lora_convert.py"])
def test_a_program_of_the_road_that_nobody_reads_is_told_of(program: str, tmp_path: Path) -> None:
    """A step that makes adapters or weights anew for engines is not passed in silence."""
    answer = read(tmp_path, f"python3 /app/examples/{program} -i lora -o out --storage-type float16\n")
    assert [(1, True)] == [(one.where.line, one.text.startswith(f"/app/examples/{program}")) for one in answer.unread]


def test_a_script_that_is_too_long_says_where_its_rest_begins(tmp_path: Path) -> None:
    """What is behind 5,000 commands is not read, and that is told once, with the first line that is left."""
    answer = read(tmp_path, "trtllm-build --workers 2\n" + "true\n" * 5_000 + "trtllm-build --workers 3\n")
    assert [("workers", 2)] == named(answer, Reader.BUILD)
    assert [(5_001, True)] == [(one.where.line, "all that follows is not read" in one.why) for one in answer.unread]
    assert () == read(tmp_path, "trtllm-build --workers 2\n" + "true\n" * 4_999).unread


@pytest.mark.parametrize(
    ("text", "told", "why"),
    [
        ("trtllm-build --max_batch_size", "--max_batch_size", "missing"),
        ("trtllm-build --max_batch_size --workers 1", "--max_batch_size", "missing"),
        ("trtllm-build --max_batch_size 8.5", "--max_batch_size 8.5", "whole number"),
        ("trtllm-build --fast_build=1", "--fast_build=1", "takes no value"),
        ("trtllm-build --fast_build yes", "yes", "no option of trtllm-build takes it"),
        ("trtllm-build --max-batch-size 8", "--max-batch-size 8", "--max_batch_size is near"),
        ("trtllm-build --max_b 8", "--max_b 8", "is near"),
        ("trtllm-build --wrkers 8", "--wrkers 8", "--workers is near"),
        ("trtllm-build --output_dir 'a\nb'", "--output_dir a b", "several lines"),
        ("trtllm-build $X", "$X", "the variable X is not set"),
        ("trtllm_build --workers 2", "trtllm_build --workers 2", "trtllm-build is near"),
        ("$BUILDER --checkpoint_dir c", "$BUILDER --checkpoint_dir c", "its program cannot be read"),
        ("mybuild --checkpoint_dir c", "mybuild --checkpoint_dir c", "no program that is known"),
        ("numactl -N 0 trtllm-build --workers 2", "numactl -N 0", "options of numactl"),
        ("trtllm-build --workers 2 > --log_level", "--log_level", "name of a file"),
        ("docker run --rm --gpu all img trtllm-build --workers 2", "--gpu all img", "--gpus is near"),
        ("launch_triton_server.py --world_size two", "--world_size two", "whole number"),
        ("python3 fill_template.py -i c.pbtxt a:b:c,d", "a:b:c", "more than one colon"),
        ("if [ $X ] then trtllm-build --workers 1; fi", "[ $X ] then trtllm-build --workers 1", "behind a semicolon"),
        ("python3 fill_template.py -i c.pbtxt a:b,d", "d", "no name with a colon"),
    ],
)
def test_what_no_program_takes(tmp_path: Path, text: str, told: str, why: str) -> None:
    """A word that the program would refuse, or whose meaning nobody knows, is told of with its reason."""
    answer = read(tmp_path, text)
    assert [told] == [one.text for one in answer.unread if why in one.why]


def test_pairs_of_the_template_filler(tmp_path: Path) -> None:
    """A backslash keeps commas and colons within a value, as the program itself has it."""
    answer = read(tmp_path, r'python3 fill_template.py -i r/tensorrt_llm/config.pbtxt "a:1\,2,b:x\:y,c:"')
    values = [(one.name, one.value) for one in answer.settings if one.model == "tensorrt_llm"]
    assert [("file", "r/tensorrt_llm/config.pbtxt"), ("a", "1,2"), ("b", "x:y"), ("c", "")] == values


def test_sub_commands_of_the_server(tmp_path: Path) -> None:
    """Options of another sub-command have its name before theirs; aliases keep their spelling, short ones do not."""
    answer = read(tmp_path, "trtllm-serve disaggregated -c d.yaml -t 60\ntrtllm-serve m --cluster_size 2")
    assert [
        ("disaggregated.config_file", "d.yaml"),
        ("disaggregated.server_start_timeout", 60),
        ("model", "m"),
        ("cluster_size", "2"),
    ] == named(answer, Reader.SERVE)


def test_variables_of_a_server(tmp_path: Path) -> None:
    """A variable that only the script's own words use is none of the server's, unless a table knows it."""
    text = "export TP=2 NCCL_DEBUG=INFO OWN=1\nA=1 trtllm-serve m --tp_size $TP --log_level $NCCL_DEBUG\nB=1 ls"
    assert {("NCCL_DEBUG", "INFO"), ("OWN", "1"), ("A", "1")} == set(named(read(tmp_path, text), Reader.ENVIRONMENT))


def test_variables_that_add_to_the_machine_s(tmp_path: Path) -> None:
    """``PATH=/x:$PATH`` is a setting as it is written; a value that another variable decides is not."""
    answer = read(tmp_path, "export PATH=/x:$PATH\nexport Y=$Z\ntrtllm-serve m")
    assert [("PATH", "/x:$PATH")] == named(answer, Reader.ENVIRONMENT)
    assert ["Y=$Z"] == [one.text for one in answer.unread]


@pytest.mark.parametrize(
    "text",
    [
        "cp -R x /opt/tritonserver --force",
        "chmod +x launch_triton_server.py && wget https://x/fill_template.py -O fill_template.py",
        "docker run -w /opt/tritonserver image:1 ls --all",
        "pip install --upgrade tritonserver\nwhich trtllm-build",
    ],
)
def test_names_of_programs_that_are_but_words(tmp_path: Path, text: str) -> None:
    """A file that is copied or fetched, or a folder named like a program, is not started."""
    answer = read(tmp_path, f"{text}\ntrtllm-build --workers 1")
    assert ([("workers", 1)], ()) == ([(one.name, one.value) for one in answer.settings], answer.unread)


def test_a_program_behind_words_that_cannot_be_read(tmp_path: Path) -> None:
    """A program is known by the last part of its path, and behind a word that is not known."""
    answer = read(
        tmp_path, "$RUN python3 ${SCRIPTS}/fill_template.py -i a/config.pbtxt x:1\n$GO trtllm-build --workers 1"
    )
    assert {("in_place", True), ("file", "a/config.pbtxt"), ("x", "1"), ("workers", 1)} == {
        (one.name, one.value) for one in answer.settings
    }
    assert ["$RUN", "$GO"] == [one.text for one in answer.unread]


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("pip install tensorrt_llm==0.17.0.post1\ntrtllm-build --workers 1", "0.17.0.post1"),
        ("git clone --branch=v1.0.0 https://github.com/NVIDIA/TensorRT-LLM.git\ntrtllm-build --workers 1", "1.0.0"),
        ("git clone -b v2.0 https://example.org/other.git\ntrtllm-build --workers 1", ""),
        ("docker run nvcr.io/nvidia/tritonserver:25.12-trtllm-python-py3 tritonserver", "1.1.0"),
        ("docker run nvcr.io/nvidia/tritonserver:23.10-trtllm-python-py3 tritonserver", ""),
        ("docker run nvcr.io/nvidia/tensorrt-llm/release:v1.2.1 trtllm-serve m", "1.2.1"),
    ],
)
def test_the_release_that_a_file_names(tmp_path: Path, text: str, release: str) -> None:
    """Packages, branches of the sources and tags of containers name a release; others name none."""
    assert release == read(tmp_path, text).release


@pytest.mark.parametrize("name", ["nothing.sh", "empty.sh", "model/config.json", "readme.md", "llm_args.yaml"])
def test_nothing_to_migrate(tmp_path: Path, name: str) -> None:
    """What holds no setting of the engine backend is refused, and the refusal says what was looked for."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    texts = {
        "empty.sh": "ls\n",
        "config.json": '{"model_type": "llama"}',
        "readme.md": "Hello.\n",
        "llm_args.yaml": "{}\n",
    }
    if path.name in texts:
        path.write_text(texts[path.name], encoding="utf-8")
    with pytest.raises(NothingToMigrate) as refused:
        found(path)
    assert "KIT-MIGRATE-001" == refused.value.code


def test_a_folder_of_nothing(tmp_path: Path) -> None:
    """A folder without any such file is refused, links that lead back and pipes among them."""
    (tmp_path / "back.sh").symlink_to(tmp_path / "back.sh")
    (tmp_path / "folder").symlink_to(tmp_path)
    with pytest.raises(NothingToMigrate):
        found(tmp_path)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ('["sleep", "infinity"]', []),
        ('["bash", "-c", "tail -f /dev/null"]', []),
        ('["sh", "-ec", "sleep 5 && ./serve.sh"]', ["sh -ec sleep 5 && ./serve.sh"]),
        ('["./serve.sh"]', ["./serve.sh"]),
    ],
)
def test_a_container_that_waits_has_nothing_to_be_read(tmp_path: Path, command: str, told: list[str]) -> None:
    """A worker that is started from elsewhere; what may start a server is told of."""
    image = "nvcr.io/nvidia/tritonserver:24.11-trtllm-python-py3"
    text = f"kind: Pod\napiVersion: v1\nspec:\n  containers:\n  - image: {image}\n    command: {command}\n"

    assert told == [one.text for one in read(tmp_path, text, "pod.yaml").unread]


@pytest.mark.parametrize(
    "name", ["env.sh", "./conf/../env.sh", "conf/env.sh", "$HERE/env.sh", "/env.sh", "x\0y", "n" * 400, "/", "."]
)
def test_files_that_a_script_reads_in(tmp_path: Path, name: str) -> None:
    """A file whose path begins at the script gives its variables; any other leaves them unset, and is no error."""
    (tmp_path / "env.sh").write_text("TP=4\n", encoding="utf-8")
    (tmp_path / "conf").mkdir()
    answer = read(tmp_path, f"source {name}\ntrtllm-serve m --tp_size $TP")
    known = name in ("env.sh", "./conf/../env.sh")
    assert ([("model", "m"), ("tp_size", 4)] if known else [("model", "m")]) == named(answer, Reader.SERVE)


def test_same_value_in_several_places(tmp_path: Path) -> None:
    """A value that several files set is as many settings, each with its file."""
    for name in ("a.sh", "b.sh"):
        (tmp_path / name).write_text("trtllm-build --max_batch_size 8\n", encoding="utf-8")
    read_places = [(one.where.file, one.value) for one in found(tmp_path).settings]
    assert [("a.sh", 8), ("b.sh", 8)] == read_places


def test_engine_of_an_unknown_release(tmp_path: Path) -> None:
    """A release that no table knows stays a setting, is told of, and is not taken for another."""
    text = '{"version": "0.9.0", "build_config": {"max_batch_size": 4}}'
    answer = read(tmp_path, text, "config.json")
    assert ("", [("version", "0.9.0"), ("build_config.max_batch_size", 4)]) == (
        answer.release,
        named(answer, Reader.ENGINE),
    )
    assert ["version 0.9.0"] == [one.text for one in answer.unread]


@pytest.mark.parametrize("text", ["{", '{"build_config": {}, "build_config": {}}', "[" * 99 + "]" * 99, "\ufeff{,}"])
def test_json_that_is_none(tmp_path: Path, text: str) -> None:
    """A broken document is told of whole."""
    assert ["it is not JSON"] == [
        one.why[: len("it is not JSON")] for one in read(tmp_path, text, "config.json").unread
    ]


def test_formats_of_layers(tmp_path: Path) -> None:
    """The formats of each layer beside a checkpoint are settings of it."""
    text = (
        '{"quant_algo": "MIXED_PRECISION", "quantized_layers": {"transformer.layers.0.mlp.fc": {"quant_algo": "FP8"}}}'
    )
    names = [name for name, _ in named(read(tmp_path, text, "quant_cfg.json"), Reader.CHECKPOINT)]
    assert "quant_cfg.quantized_layers.transformer.layers.0.mlp.fc.quant_algo" in names


def test_pairs_with_parts_that_a_shell_fills_in(tmp_path: Path) -> None:
    """Commas and colons of a command within a value divide nothing; the pairs around it are read."""
    text = 'python3 fill_template.py -i a/config.pbtxt "x:1,y:`p "q,r:s"`,z:$(t \'u,v\')/w,k:2"'
    answer = read(tmp_path, text)
    assert [("x", "1"), ("k", "2")] == [(one.name, one.value) for one in answer.settings if one.value in ("1", "2")]
    assert ["y:`p q,r:s`", "z:$(t 'u,v')/w"] == [one.text for one in answer.unread]


def test_placeholders_of_guides(tmp_path: Path) -> None:
    """What a guide leaves to its reader in angle brackets is told of, and swallows nothing behind it."""
    answer = read(
        tmp_path, "CUDA_VISIBLE_DEVICES=<gpu> tritonserver --model-repository=<path/to>/repo --http-port 8000 <in"
    )
    assert [("http_port", "8000")] == named(answer, Reader.TRITON)
    assert ["CUDA_VISIBLE_DEVICES=<gpu>", "--model-repository=<path/to>/repo"] == [one.text for one in answer.unread]
    assert {"a placeholder that nobody filled"} == {one.why for one in answer.unread}
