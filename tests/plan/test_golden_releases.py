"""One profile on every release and toolchain, a hybrid model, ways to draft: plan, steps and LLM-API YAML as recorded.

The shipped profiles, all of them for one release, are in ``test_golden.py``. After a wanted change:
``pytest tests/plan --update-golden``, and read the diff.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.plan.conftest import GOLDEN, golden_model
from tests.plan.test_golden import golden_text
from trtllm_kit.build.llm_api import llm_api_yaml
from trtllm_kit.build.step import Run, WriteFile
from trtllm_kit.build.toolchain import LLM_ARGS, steps
from trtllm_kit.checkpoint.plan_file import PLAN_FILE
from trtllm_kit.findings import errors
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.spec.load import hardware_for, load_profile
from trtllm_kit.upstream import known_releases, release

FOLDER = GOLDEN / "releases"
BASE, MODEL = "h200x1-llama3.1-8b-fp8", "llama-3.1-8b"
PAIRS = tuple(
    (version, toolchain)
    for version in known_releases()
    for toolchain in ("trtllm-build", "llm-api")
    if toolchain in release(version).toolchains
)
PLAIN = {"quantization.weights": "bf16", "quantization.kv_cache": "bf16"}
HYBRID = {"nemotron-3-nano-30b": "1.2.1"}
"""Models whose layers keep a recurrent state or attend, with a release that lists them."""
DRAFTED: dict[str, tuple[str, dict[str, Any]]] = {
    "drafts-pard": ("main", {"kind": "pard", "draft_tokens": 4, "draft_checkpoint": "/models/draft"}),
    "drafts-sa": ("main", {"kind": "sa", "draft_tokens": 4, "max_ngram": 3}),
    "drafts-auto": ("1.2.1", {"kind": "auto", "draft_tokens": 4}),
}
"""Speculation that the shipped profiles do not ask for, with a release that has it."""
NAMES = (*(f"{version}.{toolchain}" for version, toolchain in PAIRS), *HYBRID, *DRAFTED)


def planned(model: str, version: str, toolchain: str, changes: dict[str, Any] | None = None) -> Plan:
    """Plan a model on one release with one toolchain."""
    wanted = {"trtllm_version": version, "toolchain": toolchain} | (PLAIN if model in HYBRID else {}) | (changes or {})
    loaded = with_changes(load_profile(BASE), wanted)
    return make_plan(golden_model(model), loaded, hardware_for(loaded.profile))


def made_for(name: str) -> Plan:
    """Plan what a golden file is named after."""
    if name in HYBRID:
        return planned(name, HYBRID[name], "llm-api")
    if name in DRAFTED:
        release_of_it, asked = DRAFTED[name]
        return planned(MODEL, release_of_it, "llm-api", {"speculation": asked})
    version, _, toolchain = name.rpartition(".")
    return planned(MODEL, version, toolchain)


def recorded(made: Plan) -> str:
    """Lay out the plan and what its toolchain does; written files stand by their names."""
    done = [
        step.model_dump(mode="json", exclude={"text"} if isinstance(step, WriteFile) else None) for step in steps(made)
    ]
    return json.dumps({"plan": json.loads(golden_text(made)), "steps": done}, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_every_release_is_as_recorded(name: str, request: pytest.FixtureRequest) -> None:
    """No decision, figure, option or key of any release changes unseen."""
    made = made_for(name)
    wanted = {f"{name}.json": recorded(made)}
    if made.toolchain.value == "llm-api":
        wanted[f"{name}.llm_args.yaml"] = llm_api_yaml(made)
    for file, text in wanted.items():
        path = FOLDER / file
        if request.config.getoption("--update-golden", default=False):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.read_text("utf-8") == text


def test_every_release_from_0_12_to_main_is_there() -> None:
    """Engines from 0.12 to the last release with them, the LLM API from 1.0 to main; 1.2 has both."""
    engines = [version for version, toolchain in PAIRS if toolchain == "trtllm-build"]
    written = [version for version, toolchain in PAIRS if toolchain == "llm-api"]

    assert ("0.12.0", "1.3.0rc20") == (engines[0], engines[-1])
    assert ("1.0.0", "main") == (written[0], written[-1])
    assert set(known_releases()) == {*engines, *written}


@pytest.mark.parametrize("name", NAMES)
def test_the_small_model_plans_on_every_release(name: str) -> None:
    """A dense model of 8B, and a hybrid on a release that lists it, plan without an error."""
    assert () == errors(made_for(name).findings)


@pytest.mark.parametrize(("version", "toolchain"), PAIRS)
def test_each_toolchain_leaves_its_own_files(version: str, toolchain: str) -> None:
    """Engines are built by one command, and the LLM API reads one file beside the plan."""
    done = steps(planned(MODEL, version, toolchain))
    runs = [step.argv[0] for step in done if isinstance(step, Run)]
    files = [step.path for step in done if isinstance(step, WriteFile)]

    assert runs == (["trtllm-build"] if toolchain == "trtllm-build" else [])
    assert files == ([PLAN_FILE] if toolchain == "trtllm-build" else [PLAN_FILE, LLM_ARGS])


def test_a_hybrid_keeps_states_beside_its_cache() -> None:
    """Of Nemotron-3-Nano 6 layers attend with 2 KV heads of 128, and 23 keep 64 x 64 x 128 numbers of 4 B a request."""
    made = planned("nemotron-3-nano-30b", "1.2.1", "llm-api")
    terms = {term.name: term.bytes for term in made.memory.terms}
    state, convolution = 64 * 64 * 128 * 4, (4 - 1) * (64 * 64 + 2 * 8 * 128) * 2

    assert 64 * 23 * (state + convolution) == terms["recurrent states"]
    assert 6 * 2 * 2 * 128 * 2 == made.memory.kv_bytes_per_token


def test_no_recorded_release_is_left_over() -> None:
    """A release that is gone takes its files with it."""
    written = [name for name in NAMES if name in HYBRID or name in DRAFTED or name.endswith(".llm-api")]
    wanted = {f"{name}.json" for name in NAMES} | {f"{name}.llm_args.yaml" for name in written}

    assert wanted == {path.name for path in FOLDER.iterdir()}
