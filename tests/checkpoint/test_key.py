"""Key and bytes of a checkpoint agree: over one source, equal keys mean equal bytes and other keys other bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoint.plans import plan_for
from tests.faults.killing import tree
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.artifact import MANIFEST
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.plan.plan import Plan
from trtllm_kit.progress import Silent

ASKED = st.fixed_dictionaries(
    {
        "weights": st.sampled_from(["bf16", "fp8"]),
        "kv_cache": st.sampled_from(["bf16", "fp8"]),
        "exclude": st.sampled_from([("lm_head",), ("lm_head", "*.o_proj")]),
        "samples": st.sampled_from([1, 2]),
        "text": st.sampled_from([None, "here.txt", "there/same.txt", "other.txt"]),
        "profile": st.sampled_from(["one", "two"]),
        "port": st.sampled_from([8000, 9000]),
    }
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and three calibration texts, two of them the same."""
    root = tmp_path_factory.mktemp("key")
    (root / "there").mkdir()
    (root / "here.txt").write_text("the end of the tin man in the land of winds " * 20)
    shutil.copy(root / "here.txt", root / "there" / "same.txt")
    (root / "other.txt").write_text("an inn at the thin end of the line, and then none " * 20)
    return write_tiny_model(root / "model")


def plan_of(source: Path, asked: dict[str, Any]) -> Plan:
    """Plan a conversion, with a profile's name and a port that a checkpoint has nothing to do with."""
    text = None if asked["text"] is None else str(source.parent / asked["text"])
    formats = {name: asked[name] for name in ("weights", "kv_cache", "exclude", "samples")}
    plan = plan_for(source, **formats, text=text)
    serve = plan.serve.model_copy(update={"http_port": asked["port"]})
    return plan.model_copy(update={"profile": asked["profile"], "serve": serve})


@given(one=ASKED, other=ASKED)
@settings(max_examples=30, deadline=None)
def test_two_checkpoints_have_one_key_exactly_when_they_have_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, source: Path, one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Who asked, under which name and for which port is in neither; formats, calibration and text are in both."""
    root = tmp_path_factory.mktemp("made")
    keys, contents, manifests = [], [], []
    for name, asked in (("a", one), ("longer-name", other)):
        manifest = convert(source, plan_of(source, asked), root / name / "out", Silent()).manifest
        keys.append(manifest.key)
        manifests.append(manifest.digest)
        contents.append({path: data for path, data in tree(root / name / "out").items() if path != MANIFEST})
    same = keys[0] == keys[1]
    assert same == (contents[0] == contents[1])
    assert same == (manifests[0] == manifests[1])


def test_no_place_name_or_port_is_in_a_checkpoint(source: Path, tmp_path: Path) -> None:
    """A checkpoint can be given away without telling where or for whom it was made."""
    asked = {"weights": "fp8", "kv_cache": "fp8", "exclude": ("lm_head",), "samples": 1, "text": "here.txt"}
    plan = plan_of(source, asked | {"profile": "secret-project", "port": 47_111})
    convert(source, plan, tmp_path / "out", Silent())
    for name, data in tree(tmp_path / "out").items():
        for word in (b"secret-project", b"47111", b"here.txt", str(source.parent).encode(), str(tmp_path).encode()):
            assert word not in data, (name, word)
