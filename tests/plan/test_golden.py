"""The plan of every shipped profile, on a model of its class, compared with the recorded one.

After a wanted change: ``pytest tests/plan --update-golden``, and read the diff before committing it.
"""

from __future__ import annotations

import json

import pytest

from tests.plan.conftest import GOLDEN, golden_model
from trtllm_kit.build.llm_api import llm_api_yaml
from trtllm_kit.findings import errors
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan, digest_of
from trtllm_kit.spec.load import hardware_for, load_profile, shipped_profiles

MODEL_OF = {
    "b200x8-llama4-maverick-fp8": "llama-4-maverick",
    "cpu-rehearsal-simulated": "smollm2-135m",
    "cpu-rehearsal-smollm2": "smollm2-135m",
    "gh200-nvl32-llama3.1-405b-fp8": "llama-3.1-405b",
    "h200x1-llama3.1-8b-fp8": "llama-3.1-8b",
    "h200x8-llama3.1-70b-fp8": "llama-3.1-70b",
}


def shipped_plan(name: str) -> Plan:
    """Plan a shipped profile on a model of its class."""
    loaded = load_profile(name)
    return make_plan(golden_model(MODEL_OF[name]), loaded, hardware_for(loaded.profile))


def golden_text(made: Plan) -> str:
    """Lay a plan out for a diff; the model stands as its digest."""
    document = made.model_dump(mode="json", exclude={"model", "serve", "environment"})
    document = {"model": digest_of(made.model.model_dump(mode="json"))} | document
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


def test_no_golden_file_is_left_over() -> None:
    """A profile that is gone takes its golden files with it."""
    files = {path.name for path in (GOLDEN / "plans").iterdir()}
    assert files == {f"{name}.{kind}" for name in MODEL_OF for kind in ("json", "llm_args.yaml")}


def test_public_parameter_counts() -> None:
    """The dimensions in tests/golden/models are the real ones."""
    from trtllm_kit.spec.tensors import parameters

    counts = {name: parameters(golden_model(name)) for name in sorted(set(MODEL_OF.values()))}
    assert {
        "llama-3.1-405b": 405_853_388_800,
        "llama-3.1-70b": 70_553_706_496,
        "llama-3.1-8b": 8_030_261_248,
        "llama-4-maverick": 400_711_848_960,
        "smollm2-135m": 134_515_008,
    } == counts
