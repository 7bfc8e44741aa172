"""The section of a profile for arguments of the LLM API, as a document gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trtllm_kit.errors import ProfileError
from trtllm_kit.spec.load import LoadedProfile, load_profile

HEAD = "base: h200x8-offline\nname: adapters\nllm_api:\n  options:\n"


def loaded(folder: Path, body: str, name: str = "p.yaml") -> LoadedProfile:
    """Read a profile with those options."""
    (folder / name).write_text(HEAD + body)
    return load_profile(str(folder / name))


def options(folder: Path, body: str) -> dict[str, Any]:
    """Return the options of such a profile."""
    return loaded(folder, body).profile.llm_api.options


def test_values_keep_their_kind_and_dotted_names_are_one_word(tmp_path: Path) -> None:
    """Numbers, switches, null, lists and mappings come as what they are; each has the line that set it."""
    body = (
        "    lora_config.max_lora_rank: 64\n    enable_lora: true\n    load_format: null\n    a.b: [1, x, [2.5]]\n"
        "    ray_placement_config: {any key: {deep: 1}}\n"
    )
    found = loaded(tmp_path, body)

    assert {
        "lora_config.max_lora_rank": 64, "enable_lora": True, "load_format": None, "a.b": (1, "x", (2.5,)),
        "ray_placement_config": {"any key": {"deep": 1}},
    } == found.profile.llm_api.options  # fmt: skip
    assert f"{tmp_path}/p.yaml:5" == found.origins["llm_api.options.lora_config.max_lora_rank"]


def test_options_of_a_base_are_inherited_one_by_one(tmp_path: Path) -> None:
    """A list takes the place of the base's list."""
    loaded(tmp_path, "    enable_lora: true\n    lora_config.lora_dir: [a, b]\n", "base.yaml")
    (tmp_path / "p.yaml").write_text("base: ./base.yaml\nname: p\nllm_api: {options: {lora_config.lora_dir: [c]}}\n")

    assert {"enable_lora": True, "lora_config.lora_dir": ("c",)} == load_profile(
        str(tmp_path / "p.yaml")
    ).profile.llm_api.options


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    --max_lora_rank: 8\n", "no name that may stand here"),
        ("    a..b: 8\n", "no name that may stand here"),
        ('    "a\\n  b": 8\n', "no name that may stand here"),
        ("    'a: b': 8\n", "no name that may stand here"),
        ('    a: "x\\0y"\n', "found the character U+0000"),
        ('    a: {"x\\x1b[31m": 1}\n', "found the character U+001B"),
        ("    otlp_traces_endpoint: http://user:word@host/v1\n", "looks like a secret"),
        ("    kv_connector_config: {url: x, api_key: abc}\n", "looks like a secret"),
        ("    a: 1e999\n", "allowed finite numbers"),
        (f"    a: {'x' * 9000}\n", "found 9,000 characters"),
        (f"    a: [{', '.join(['1'] * 5000)}]\n", "found 5,001 values"),
    ],
)
def test_what_no_yaml_of_a_server_can_hold_is_refused(tmp_path: Path, body: str, said: str) -> None:
    """The error names the line and what is wrong with it."""
    with pytest.raises(ProfileError) as caught:
        options(tmp_path, body)

    (problem,) = caught.value.problems
    assert (True, True) == (said in problem, "p.yaml:5: llm_api.options" in problem)


def test_a_mapping_in_place_of_the_options_is_said_in_words(tmp_path: Path) -> None:
    """What may stand there, also of values of any kind."""
    (tmp_path / "p.yaml").write_text("base: h200x8-offline\nname: x\nllm_api: {options: 3}\n")
    with pytest.raises(ProfileError) as caught:
        load_profile(str(tmp_path / "p.yaml"))

    (problem,) = caught.value.problems
    assert "allowed a mapping of names to true or false or a number or text or a list or a mapping or null" in problem
