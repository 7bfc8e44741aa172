"""The GPUs of one instance, where several stand in one server: chosen before anything looks for a GPU."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from settings import BadSettings

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def devices_of(args: Mapping[str, str]) -> str:
    """Return the GPUs of the instance that Triton gives these to ``initialize``, as ``0,1``; empty where all are its.

    Parameter ``gpu_device_ids`` has a set for every instance (``0,1;2,3``), and an instance's name ends with its
    number. Raises ``BadSettings`` for another number of sets, and for a set that is no list of numbers.
    """
    parameters = json.loads(args["model_config"]).get("parameters", {})
    text = parameters.get("gpu_device_ids", {}).get("string_value", "")
    sets, count = text.split(";") if text else [], instances_of(args)
    if count == 1 and not sets:
        return ""
    if any(not one.isdecimal() for group in sets for one in group.split(",")):
        raise BadSettings(f"config.pbtxt: parameter gpu_device_ids must be like 0,1;2,3, got {text!r}")
    if len(sets) != count:
        raise BadSettings(f"config.pbtxt: gpu_device_ids has {len(sets)} sets for {count} instances")
    return sets[int(args["model_instance_name"].rpartition("_")[2])]


def instances_of(args: Mapping[str, str]) -> int:
    """Return how many instances of the model the server has."""
    groups = json.loads(args["model_config"]).get("instance_group") or [{}]
    return sum(int(group.get("count", 1)) for group in groups)


def subject_of(args: Mapping[str, str]) -> str:
    """Return what metrics are about: the model, or the instance where there are several, which would share a series."""
    return args["model_name"] if instances_of(args) == 1 else args["model_instance_name"]


def use(devices: str) -> None:
    """Let this process, and what it starts, see these GPUs alone: of those that the server sees, by their places."""
    if not devices:
        return
    seen = os.environ.get(_VISIBLE)
    names = None if seen is None else [one.strip() for one in seen.split(",")]
    wanted = [int(one) for one in devices.split(",")]
    if names is not None and max(wanted) >= len(names):
        raise BadSettings(f"gpu_device_ids {devices}, and the server sees {len(names)} GPUs ({_VISIBLE}={seen})")
    os.environ[_VISIBLE] = ",".join(str(one) if names is None else names[one] for one in wanted)
