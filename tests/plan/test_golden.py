"""The plan of every shipped profile, on a model of its class, compared with the recorded one.

After a wanted change: ``pytest tests/plan --update-golden``, and read the diff before committing it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.plan.conftest import GOLDEN, golden_model
from trtllm_kit.build.llm_api import llm_api_yaml
from trtllm_kit.findings import Severity, errors
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan, digest_of
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.spec.load import hardware_for, load_profile, profile_file, shipped_profiles

MODEL_OF = {
    "b200x8-agent-1m": "llama-4-scout",
    "b200x8-llama4-maverick-latency": "llama-4-maverick",
    "cpu-rehearsal-simulated": "smollm2-135m",
    "cpu-rehearsal-smollm2": "smollm2-135m",
    "gb200-nvl72-llama3.1-405b-nvfp4": "llama-3.1-405b",
    "gh200-nvl32-llama3.1-405b-fp8": "llama-3.1-405b",
    "gh200-nvl32-llama3.1-70b-fp8": "llama-3.1-70b",
    "h100x2-llama2-70b-fp8": "llama-2-70b",
    "h200x1-7b-200ms": "mistral-7b",
    "h200x1-llama3.1-8b-fp8": "llama-3.1-8b",
    "h200x4-online": "llama-3.1-70b",
    "h200x8-offline": "llama-3.1-70b",
    "l40s-cluster": "llama-3.1-8b",
}


def shipped_plan(name: str) -> Plan:
    """Plan a shipped profile on a model of its class."""
    loaded = load_profile(name)
    return make_plan(golden_model(MODEL_OF[name]), loaded, hardware_for(loaded.profile))


_APART = ("model", "serve", "environment")


def golden_text(made: Plan) -> str:
    """Lay a plan out for a diff; the model stands as its digest."""
    document = {"model": digest_of(made.model.model_dump())}
    document |= {name: part for name, part in made.model_dump().items() if name not in _APART}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def test_every_shipped_profile_has_a_model() -> None:
    """A profile that is added gets a golden plan."""
    assert set(MODEL_OF) == set(shipped_profiles())


@pytest.mark.parametrize("name", MODEL_OF)
def test_the_plan_is_as_recorded(name: str, request: pytest.FixtureRequest) -> None:
    """No decision, number or reason of a shipped profile changes unseen."""
    made = shipped_plan(name)
    wanted = {f"{name}.json": golden_text(made), f"{name}.llm_args.yaml": llm_api_yaml(made)}
    for file, text in wanted.items():
        path = GOLDEN / "plans" / file
        if request.config.getoption("--update-golden", default=False):
            path.write_text(text, encoding="utf-8")
        assert path.read_text("utf-8") == text


@pytest.mark.parametrize("name", MODEL_OF)
def test_a_shipped_profile_can_run_on_its_model_class(name: str) -> None:
    """What ships plans without an error."""
    assert () == errors(shipped_plan(name).findings)


def test_the_warning_on_shipped_profiles_cannot_be_helped() -> None:
    """The draft model of a hub id is not on this machine; nothing else is warned of."""
    warned = {
        name: [finding.rule for finding in shipped_plan(name).findings if finding.severity is Severity.WARNING]
        for name in MODEL_OF
    }
    assert {"b200x8-llama4-maverick-latency": ["PF25"]} == {name: rules for name, rules in warned.items() if rules}


OTHER_MODEL = {"l40s-cluster": "llama-3.1-70b"}
"""Models of head overrides that are about another one."""


@pytest.mark.parametrize("name", MODEL_OF)
def test_the_override_in_the_head_of_a_profile_plans(name: str, tmp_path: Path) -> None:
    """What the head comment says to put into a file of one's own loads, and plans without an error."""
    head = profile_file(name).read_text("utf-8").split("# Override")[1].split("# Limits")[0].replace("\n#", " ")
    lines = [one for one in re.findall(r"`([^`]+)`", head) if not one.startswith(("base:", "name:"))]
    file = tmp_path / "mine.yaml"
    file.write_text("\n".join([f"base: {name}", "name: mine", *lines]) + "\n")

    loaded = load_profile(str(file))
    made = make_plan(golden_model(OTHER_MODEL.get(name, MODEL_OF[name])), loaded, hardware_for(loaded.profile))

    assert lines
    assert () == errors(made.findings)


@pytest.mark.parametrize(("hardware", "tensor"), [("h100x2", 2), ("h200x1", 1)])
def test_the_h100_pair_and_the_single_h200(hardware: str, tensor: int) -> None:
    """The same profile takes two H100 or one H200, at its own min_concurrency."""
    loaded = with_changes(load_profile("h100x2-llama2-70b-fp8"), {"hardware": hardware})
    made = make_plan(golden_model("llama-2-70b"), loaded, hardware_for(loaded.profile))

    assert tensor == made.parallelism.tensor.value
    assert f"tensor {tensor} holds" in made.parallelism.tensor.reason


def test_the_offline_and_online_profiles_serve_llama_2_too() -> None:
    """Its 4,096 positions are their limit, so both plan without an error on it."""
    for name in ("h200x8-offline", "h200x4-online"):
        loaded = load_profile(name)
        assert () == errors(make_plan(golden_model("llama-2-70b"), loaded, hardware_for(loaded.profile)).findings)


def test_offline_ranks_that_share_nothing_hold_a_full_batch_each() -> None:
    """Eight replicas of one GPU hold their 128 requests each, so no second GPU is needed to keep the batch full."""
    made = shipped_plan("h200x8-offline")

    assert (1, 8, 128) == (
        made.parallelism.tensor.value,
        made.parallelism.replicas.value,
        made.limits.max_batch_size.value,
    )
    assert made.limits.max_batch_size.value <= made.memory.sequences


def test_maverick_decodes_within_one_attention_chunk() -> None:
    """No sequence reaches the model's attention chunk, from which on the release takes slower kernels."""
    chunks = {layer.attention.window for layer in golden_model("llama-4-maverick").layers} - {None}

    assert shipped_plan("b200x8-llama4-maverick-latency").limits.max_seq_len.value < min(filter(None, chunks))


def test_no_golden_file_is_left_over() -> None:
    """A profile that is gone takes its golden files with it."""
    files = {path.name for path in (GOLDEN / "plans").iterdir()}
    assert files == {f"{name}.{kind}" for name in MODEL_OF for kind in ("json", "llm_args.yaml")}


def test_public_parameter_counts() -> None:
    """The dimensions in tests/golden/models are the real ones."""
    from trtllm_kit.spec.tensors import parameters

    counts = {name: parameters(golden_model(name)) for name in sorted(set(MODEL_OF.values()))}
    assert {
        "llama-2-70b": 68_976_648_192,
        "llama-3.1-405b": 405_853_388_800,
        "llama-3.1-70b": 70_553_706_496,
        "llama-3.1-8b": 8_030_261_248,
        "llama-4-maverick": 400_711_848_960,
        "llama-4-scout": 107_769_861_120,
        "mistral-7b": 7_248_023_552,
        "smollm2-135m": 134_515_008,
    } == counts
