"""Subjects of targets: a plan of a known model on a machine, with a small repository in the place of the real one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from tests.support.specs import hardware, llama_70b, profile, rehearsal
from trtllm_kit.health.load import rules_for
from trtllm_kit.health.prometheus import rule_groups
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.serve.targets.objects import CHECKPOINT_PATH, ENGINE_PATH
from trtllm_kit.serve.targets.subject import Subject
from trtllm_kit.spec.hardware import Hardware

REPOSITORY = {
    "trtkit-plan.json": "{}\n",
    "tensorrt_llm/config.pbtxt": 'name: "tensorrt_llm"\n',
    "tensorrt_llm/1/model.py": "import json\n",
}
OF_ENGINES = {
    "preprocessing/config.pbtxt": 'name: "preprocessing"\n',
    "tensorrt_llm/config.pbtxt": 'name: "tensorrt_llm"\n',
}
NODE = hardware(8, 141.0)
RACK = hardware(4, 186.0, capability=100, nodes=18, nvlink=72)
"""18 trays of 4 GPUs in one NVLink domain."""
CLUSTER = hardware(4, 141.0, nodes=4)
CPU = rehearsal()


def subject(changes: Mapping[str, Any] | None = None, machine: Hardware = NODE, **fields: Any) -> Subject:
    """Make a subject; ``changes`` are dotted profile keys."""
    loaded = profile({"parallelism.tensor": machine.gpus_per_node} | dict(changes or {}))
    plan = make_plan(llama_70b(), loaded, machine)
    made = Subject(
        plan=plan,
        hardware=machine,
        deploy=loaded.profile.deploy,
        repository=REPOSITORY,
        place="../repository",
        linked=not plan.serve.checkpoint_path,
    )
    groups = rule_groups(rules_for(loaded.profile, machine), made.name, start_grace_seconds=600, scrape_seconds=15)
    return replace(made, **({"rules": groups} | fields))


def in_pods(changes: Mapping[str, Any] | None = None, machine: Hardware = NODE, **fields: Any) -> Subject:
    """Make a subject whose servers are pods."""
    wanted = {"serve.checkpoint_path": CHECKPOINT_PATH, "serve.engine_path": ENGINE_PATH} | dict(changes or {})
    return subject(wanted, machine, in_pods=True, **fields)


def objects(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """Read every object of the manifests among the files."""
    texts = (text for name, text in files.items() if name.endswith(".yaml"))
    return [found for text in texts for found in yaml.safe_load_all(text)]


def of_kind(files: Mapping[str, str], kind: str) -> dict[str, Any]:
    """Return the one object of a kind."""
    (found,) = (one for one in objects(files) if one["kind"] == kind)
    return found
