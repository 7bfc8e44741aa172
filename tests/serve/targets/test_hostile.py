"""Hostile strings in every free text of a profile: quoted or refused by key, and never part of the structure."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.serve.targets.manifests import check
from tests.serve.targets.support import NODE, RACK, in_pods, subject
from tests.support.specs import profile
from trtllm_kit.errors import KitError
from trtllm_kit.serve.targets.subject import Subject
from trtllm_kit.serve.targets.table import TARGETS
from trtllm_kit.spec.profile import DeployProfile

PIECES = [
    "'", '"', "$(touch hacked)", "`touch hacked`", "${x}", "$$(HOME)", "\\", "\n", "\r", "\t", "..", "/../", "{{ .x }}",
    "#", "---\n", ": ", "- a", "&a", "*a", "!!python/object:os.system", "|", ">", "%", "\x1b[2J", "\x85", "\u2028",
    "é", "你好", "\U0001f600", "; touch hacked;", "&& touch hacked", "@", "~", "null", "1e3", "0x10", "a,b", "a:b", "=",
]  # fmt: skip
HOSTILE = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)
FREE = ["summary", "model_class", "environment.A", "environment.B"]
"""Free text that a profile may hold whatever it says; names, images, hosts and the like have a form of their own."""


def texts_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield every key of a profile that takes a text of no fixed list."""
    for name, field in model.model_fields.items():
        kinds = [field.annotation, *get_args(field.annotation)]
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from texts_of(kind, f"{prefix}{name}.")
        if any(kind is str for kind in kinds):
            yield f"{prefix}{name}"


def files_of(target: str, changes: Mapping[str, Any]) -> tuple[Subject, dict[str, str]] | None:
    """Make a target; None when the profile, or its deployment, is refused."""
    wanted = {"trtllm_version": "1.3.0rc19", "deploy.image": "registry.example.com/a:1", "parallelism.tensor": 8}
    try:
        make = in_pods if TARGETS[target].pods else subject
        made = make(wanted | {key: changes[key] for key in sorted(changes)}, NODE)
        return made, TARGETS[target].files(made)
    except (ValueError, KitError):
        return None


def shape(value: Any) -> Any:
    """Return the structure of a document: its keys, and the kinds of its values."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return type(value).__name__


def documents(files: Mapping[str, str]) -> dict[str, Any]:
    """Read every file that is a document."""
    found: dict[str, Any] = {}
    for name, text in files.items():
        if name.endswith(".yaml"):
            found[name] = list(yaml.safe_load_all(text))
        elif name.endswith(".json"):
            found[name] = json.loads(text)
    return found


def with_values(text: str, values: Mapping[str, str]) -> str:
    """Put other values into the lines of a script that set the variables."""
    for key, value in values.items():
        name = key.removeprefix("environment.")
        text = text.replace(f"\n{name}=x\n", f"\n{name}={shlex.quote(value)}\n")
    return text


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=12, deadline=None)
@given(values=st.fixed_dictionaries(dict.fromkeys(FREE, HOSTILE)))
def test_no_text_changes_the_structure(target: str, values: dict[str, str]) -> None:
    """Documents keep their keys and kinds, scripts their commands, whatever the free texts hold."""
    harmless = files_of(target, dict.fromkeys(FREE, "x"))
    found = files_of(target, values)
    assert harmless is not None
    assert found is not None
    assert harmless[1].keys() == found[1].keys()
    assert shape(documents(harmless[1])) == shape(documents(found[1]))
    for name, text in found[1].items():
        if name.endswith((".sh", ".sbatch")):
            assert with_values(harmless[1][name], values) == text


@settings(max_examples=20, deadline=None)
@given(value=HOSTILE)
def test_a_variable_arrives_as_it_was(value: str) -> None:
    """The value that a pod, or a shell, gives to the server is the profile's."""
    pods = files_of("kubernetes", {"environment.A": value})
    assert pods is not None
    (container,) = (
        one["spec"]["template"]["spec"]["containers"][0]
        for one in yaml.safe_load_all(pods[1]["servers.yaml"])
        if one["kind"] == "Deployment"
    )
    assert value == expanded(container["env"][0]["value"], {"HOME": "/root", "A": "b"})
    here = files_of("local", {"environment.A": value})
    assert here is not None
    head = here[1]["tritonserver.sh"].partition("TRTKIT_HERE=")[0]
    ran = subprocess.run(["sh", "-c", f'{head}\nprintf %s "$A"'], capture_output=True, check=True)
    assert value.encode() == ran.stdout


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Expand a text as the kubelet does: ``$(NAME)`` is a variable that there is, ``$$`` a dollar sign."""
    found, place = "", 0
    while place < len(text):
        if text.startswith("$$", place):
            found, place = found + "$", place + 2
        elif text.startswith("$(", place) and ")" in text[place:]:
            end = text.index(")", place)
            name = text[place + 2 : end]
            found += variables.get(name, text[place : end + 1])
            place = end + 1
        else:
            found, place = found + text[place], place + 1
    return found


@pytest.mark.parametrize("key", sorted(set(texts_of(DeployProfile)) - set(FREE)))
@pytest.mark.parametrize("piece", ["$(touch hacked)", "a\nb: c", "'; touch hacked; '", "../x", "{{ x }}"])
def test_every_other_text_is_refused_or_changes_nothing(key: str, piece: str) -> None:
    """A text with a form of its own is refused with its key; one that is accepted changes no structure either."""
    try:
        profile({key: piece})
    except ValueError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert key.partition(".")[0] in refused
        return
    for target in TARGETS:
        found = files_of(target, {key: piece})
        if found is None:
            continue
        harmless = files_of(target, {key: "/models/x" if key.endswith("path") else "x"})
        assert harmless is not None
        assert shape(documents(harmless[1])) == shape(documents(found[1]))


@settings(max_examples=6, deadline=None)
@given(values=st.fixed_dictionaries(dict.fromkeys(FREE, HOSTILE)))
def test_the_cluster_takes_hostile_manifests(values: dict[str, str]) -> None:
    """Objects with any text pass the strict schemas, of groups over nodes too."""
    made = in_pods(values | {"parallelism.tensor": 8}, RACK)
    for text in TARGETS["kubernetes"].files(made).values():
        if not text.startswith("#!"):
            for one in yaml.safe_load_all(text):
                check(one)


def test_no_script_runs_what_a_text_says(tmp_path: Path) -> None:
    """With every piece in a variable at once, a shell that runs the script's head makes no file."""
    found = files_of("local", {"environment.A": "".join(PIECES), "environment.B": "\n".join(PIECES)})
    assert found is not None
    head = found[1]["tritonserver.sh"].partition("TRTKIT_HERE=")[0]
    subprocess.run(["sh", "-c", head], check=True, cwd=tmp_path)
    assert [] == list(tmp_path.iterdir())
