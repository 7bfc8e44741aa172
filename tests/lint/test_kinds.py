"""What stands under a path is said by what is there; anything else is refused, with what was looked for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from trtllm_kit.errors import NotLinted, StorageError
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.kinds import LOOKED_FOR, Kind, kind_of
from trtllm_kit.lint.read import MOST_BYTES
from trtllm_kit.lint.run import lint


def put(folder: Path, files: dict[str, Any]) -> Path:
    """Write files; what is no text is written as JSON."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"config.json": {"build_config": {}, "pretrained_config": {}}}, Kind.ENGINE),
        ({"rank0.engine": ""}, Kind.ENGINE),
        ({"config.json": {"builder_config": {}}}, Kind.ENGINE),
        ({"encoder/config.json": {}, "decoder/config.json": {}}, Kind.ENGINE),
        ({"llm_args.yaml": "model: x\n"}, Kind.ARGUMENTS),
        ({"rank0.safetensors": ""}, Kind.CHECKPOINT),
        ({"config.json": {"architecture": "LlamaForCausalLM", "mapping": {}}}, Kind.CHECKPOINT),
        ({"config.json": {"architectures": ["LlamaForCausalLM"]}}, Kind.MODEL),
        ({"config.json": {"model_type": "llama"}, "model.safetensors": ""}, Kind.MODEL),
        ({"model.safetensors.index.json": {}}, Kind.MODEL),
        ({"m/config.pbtxt": ""}, Kind.REPOSITORY),
        ({"m/config.pbtxt": "", "trtkit-plan.json": {}, "config.json": {"model_type": "x"}}, Kind.REPOSITORY),
        ({"config.pbtxt": "", "1/model.yaml": ""}, Kind.TRITON_MODEL),
    ],
)
def test_a_folder_is_known_by_its_files(files: dict[str, Any], kind: Kind, tmp_path: Path) -> None:
    """Whoever wrote it."""
    assert kind == kind_of(put(tmp_path, files))


@pytest.mark.parametrize("name", ["a.yaml", "b.yml"])
def test_a_yaml_file_is_a_document(name: str, tmp_path: Path) -> None:
    """By its name, since YAML itself has no mark."""
    assert Kind.DOCUMENT == kind_of(put(tmp_path, {name: "a: 1\n"}) / name)


@pytest.mark.parametrize(
    "text",
    [
        'trtllm_version: "1.2.1"\nhardware: dgx-h200\nlimits: {}\n',
        "# mine\nbase: h200x8-offline\nname: mine\n",
        "schema_version: 1\nhardware: dgx-h200\nlimit: {}\n",
    ],
)
def test_a_deploy_profile_is_sent_to_the_verb_that_checks_it(text: str, tmp_path: Path) -> None:
    """It is no document of a server's, also with a misspelt key."""
    with pytest.raises(NotLinted) as refused:
        kind_of(put(tmp_path, {"my profile.yaml": text}) / "my profile.yaml")
    assert f"trtkit profiles validate '{tmp_path}/my profile.yaml'" == refused.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "model: x\nspeculative_config:\n  hardware: a\n  trtllm_version: b\n",
        "hardware: x\nkv_cache_config: {}\nmoe_config: {}\n",
        "quantization: x\nlimits: {}\nname: x\n",
    ],
)
def test_a_document_that_looks_a_little_like_a_profile_is_none(text: str, tmp_path: Path) -> None:
    """Keys inside of others say nothing, nor does one key among others, nor keys that any document may have."""
    assert Kind.DOCUMENT == kind_of(put(tmp_path, {"a.yaml": text}) / "a.yaml")


@pytest.mark.parametrize(
    ("files", "name", "found"),
    [
        ({"README.md": "x", "docs/a": "x"}, "", "a folder of 2 entries: README.md, docs"),
        ({}, "", "a folder of 0 entries: none"),
        ({"config.json": {"sample_size": 64}}, "", "a folder whose config.json holds sample_size"),
        ({"a.txt": "x"}, "a.txt", "a file named a.txt"),
        ({"a.safetensors": "x"}, "a.safetensors", "a file named a.safetensors"),
    ],
)
def test_anything_else_is_refused_with_what_was_looked_for(
    files: dict[str, Any], name: str, found: str, tmp_path: Path
) -> None:
    """The error says what was found, and lists every kind with its mark."""
    with pytest.raises(NotLinted) as refused:
        kind_of(put(tmp_path, files) / name)
    assert f"it is {found}, and none of these was found" == refused.value.why
    assert LOOKED_FOR == refused.value.problems


def test_a_configuration_alone_is_sent_to_its_folder(tmp_path: Path) -> None:
    """The rules compare it with what lies around it."""
    with pytest.raises(NotLinted) as refused:
        kind_of(put(tmp_path, {"m/config.pbtxt": ""}) / "m" / "config.pbtxt")
    assert f"trtkit lint {tmp_path}/m" == refused.value.hint


def test_nothing_there_and_a_loop_of_links_are_refused(tmp_path: Path) -> None:
    """Each by what it is."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c").symlink_to("gone")
    os.mkfifo(tmp_path / "d.yaml")
    for name, why in (
        ("none", "nothing stands there"), ("a", "it is a symbolic link that leads back to itself"),
        ("c", "it is a symbolic link to gone, which is not there"), ("d.yaml", "it is a named pipe"),
    ):  # fmt: skip
        with pytest.raises(NotLinted) as refused:
            kind_of(tmp_path / name)
        assert why == refused.value.why


ENGINE = {"build_config": {}, "pretrained_config": {}}


@pytest.mark.parametrize(
    ("files", "name", "why"),
    [
        ({"config.json": "{ not json"}, "", "it is not JSON"),
        ({"config.json": "[1]"}, "", "it holds a list, not an object"),
        ({"config.json": '{"a": 1, "a": 2}'}, "", 'the key "a" occurs twice'),
        ({"config.json": '{"a":' * 100 + "1" + "}" * 100}, "", "nested deeper than 64 levels"),
        ({"a.yaml": "a: [1\n"}, "a.yaml", "it is no YAML that a server loads: line 2"),
        ({"a.yaml": "- 1\n"}, "a.yaml", "line 1: it holds no mapping"),
    ],
)
def test_a_main_file_that_cannot_be_read_ends_the_lint(
    files: dict[str, Any], name: str, why: str, tmp_path: Path
) -> None:
    """There is nothing left to judge; a line is given where there is one."""
    with pytest.raises(NotLinted) as refused:
        lint(put(tmp_path, files) / name, Context())
    assert why in refused.value.why


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    """A file with a hole of a terabyte costs nothing."""
    put(tmp_path, {"a.yaml": "", "m/config.pbtxt": ""})
    for path in (tmp_path / "a.yaml", tmp_path / "m" / "config.pbtxt"):
        os.truncate(path, 1 << 40)
    for path in (tmp_path / "a.yaml", tmp_path):
        with pytest.raises(NotLinted, match="cannot be read") as refused:
            lint(path, Context())
        assert f"it holds more than {MOST_BYTES} bytes" == refused.value.why


@pytest.mark.parametrize("what", ["config.pbtxt", "1/model.yaml"])
def test_a_pipe_or_a_loop_in_the_place_of_a_part_ends_the_lint(what: str, tmp_path: Path) -> None:
    """No read waits for a writer or goes round for ever."""
    put(tmp_path, {"m/config.pbtxt": 'name: "m"\n', "m/1/model.yaml": "a: 1\n", "other/config.pbtxt": ""})
    (tmp_path / "m" / what).unlink()
    os.mkfifo(tmp_path / "m" / what)
    for path in (tmp_path / "m", tmp_path):
        with pytest.raises(NotLinted) as refused:
            lint(path, Context())
        assert (3, "it is a named pipe, not a file") == (refused.value.exit_code, refused.value.why)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_said(tmp_path: Path) -> None:
    """The system's own words, and the path."""
    put(tmp_path, {"a.yaml": "a: 1\n"})
    (tmp_path / "a.yaml").chmod(0)
    with pytest.raises(StorageError, match=r"a\.yaml"):
        lint(tmp_path / "a.yaml", Context())


def test_a_refused_permission_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where tests run as root: the system's refusal reaches the user as such."""

    def refuse(self: Path) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(StorageError, match="looking into what is to be linted"):
        lint(tmp_path, Context())
