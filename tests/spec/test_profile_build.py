"""The section of a profile for ``trtllm-build``, as a document gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtllm_kit.errors import ProfileError
from trtllm_kit.spec.load import load_profile

HEAD = "base: h200x8-offline\nname: engines\nbuild:\n"


def loaded(folder: Path, body: str) -> object:
    """Read a profile with that section."""
    (folder / "p.yaml").write_text(HEAD + body)
    return load_profile(str(folder / "p.yaml")).profile.build.model_dump()


def test_values_keep_their_kind(tmp_path: Path) -> None:
    """Numbers, switches, words and lists come as what they are, and a duration in seconds."""
    body = "  timeout: 90 min\n  options: {workers: 2, weight_streaming: true, gemm_plugin: fp8, lora_dir: [a, b]}\n"
    assert {
        "runner": "local",
        "image": None,
        "template": None,
        "timeout": 5400.0,
        "options": {"workers": 2, "weight_streaming": True, "gemm_plugin": "fp8", "lora_dir": ("a", "b")},
    } == loaded(tmp_path, body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("  runner: template\n", "needs the words of its command line"),
        ("  template: [env, '{command}']\n", "has no meaning with runner local"),
        ("  runner: template\n  template: [env]\n", "has no word {command}"),
        ("  runner: template\n  template: ['{command}', '{checkpont}']\n", "did you mean {checkpoint}?"),
        ("  runner: template\n  template: ['{command}', '--to={Engine}']\n", "did you mean {engine}?"),
        ("  runner: podman\n", "podman"),
        ("  timeout: 0 s\n", "timeout"),
        ("  options: {Gemm-Plugin: fp8}\n", "Gemm-Plugin"),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path: Path, body: str, said: str) -> None:
    """The error names the key and what is wrong with it."""
    with pytest.raises(ProfileError) as caught:
        loaded(tmp_path, body)
    assert said in "\n".join(caught.value.problems)


@pytest.mark.parametrize(
    "word", ["${HOME}", "{job}", "{print $1}", "--name={engine}", "{image}:/x", "{}", "{engine}{draft}"]
)
def test_braces_of_a_template_s_own_are_left_to_it(tmp_path: Path, word: str) -> None:
    """Variables of a shell, places of another program and the kit's own places are no mistakes."""
    body = f"  runner: template\n  template: ['{{command}}', '{word}']\n"
    assert ("{command}", word) == loaded(tmp_path, body)["template"]
