"""The machine of a migration: the one that was named, or the only one that the files point to (pure)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trtllm_kit.errors import UsageError
from trtllm_kit.migrate.engine.chosen import choose, written
from trtllm_kit.migrate.engine.meaning import rows_of
from trtllm_kit.migrate.found import Found, Reader, Setting, Where
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.upstream.engine_settings import gpu_named

_RANKS = ("world_size", "mapping.world_size", "pretrained_config.mapping.world_size")
_DEVICES = "gpu_device_ids"
_PROCESSES = ("n", "np", "c")
_GPUS = ("gpus", "nvidia.com/gpu", "resources.limits.nvidia.com/gpu", "resources.requests.nvidia.com/gpu")
_HINTS = ("cluster_key", "gpu_product", "nvidia.com/gpu.product", "node_selector.nvidia.com/gpu.product")


@dataclass(frozen=True)
class Chosen:
    """A hardware profile's name, and why it is that one."""

    name: str
    why: str


def choose_machine(found: Found, gpus: int, machines: Mapping[str, Hardware]) -> Chosen:
    """Return the smallest machine with the GPU that the files name and ``gpus`` of it.

    Raises ``UsageError`` with the machines there are when no file names a GPU, when two name different ones, or when
    no machine or several as small have it: a machine is never guessed.
    """
    hints = dict(_hints(found))
    if len(hints) != 1:
        told = "no file names a GPU" if not hints else f"the files name {', '.join(sorted(hints))}"
        raise _ask(told, machines)
    gpu, where = next(iter(hints.items()))
    fit = sorted((one.gpus, name) for name, one in machines.items() if one.gpu.name == gpu and one.gpus >= gpus)
    smallest = [name for size, name in fit if size == fit[0][0]]
    if len(smallest) != 1:
        several = f"{', '.join(smallest)} all have it" if smallest else f"no machine has {gpus} of it"
        raise _ask(f"{where} names {gpu}, and {several}", machines)
    return Chosen(smallest[0], f"{where} names {gpu}; it is the smallest machine with {gpus} of them")


def _hints(found: Found) -> Iterator[tuple[str, Where]]:
    for setting in found.settings:
        if setting.name in _HINTS and setting.value:
            name = gpu_named(str(setting.value))
            if name is not None:
                yield name, setting.where


def _ask(why: str, machines: Mapping[str, Hardware]) -> UsageError:
    return UsageError(
        "the machine of the new deployment is not known",
        why=f"{why}; a profile needs one, and machines are {', '.join(machines)}",
        hint="--hardware NAME, or the file of a hardware profile",
    )


def gpus_of(found: Found, release: str) -> int:
    """Return the GPUs that the migrated deployment needs, as far as the files say it: the ranks of all copies.

    A copy has the ranks of its split, or as many as are started, or the GPUs of its pods, whichever is more.
    """
    keys = {key: row.value for key, row in written(choose(rows_of(found, release))).items()}
    split = math.prod(int(keys.get(f"parallelism.{name}", 1)) for name in ("tensor", "pipeline"))
    ranks = (one.value for one in found.settings if one.name in _RANKS or _is_processes(one))
    started = max((value for value in ranks if isinstance(value, int) and not isinstance(value, bool)), default=1)
    whole = max(split, started, _gpus_of_pods(found)) * int(keys.get("parallelism.replicas", 1))
    return max(whole, *(len(re.findall(r"\d+", str(one.value))) for one in found.settings if one.name == _DEVICES), 1)


def _is_processes(setting: Setting) -> bool:
    return setting.reader is Reader.MPI and setting.name in _PROCESSES


def _gpus_of_pods(found: Found) -> int:
    """Return the GPUs of one copy's pods: those of the largest container, in each pod of a group."""
    gpus, pods = 1, 1
    for setting in found.settings:
        size = str(setting.value)
        if setting.reader is Reader.CONTAINER and size.isdecimal():
            gpus = max(gpus, int(size)) if setting.name in _GPUS else gpus
            pods = max(pods, int(size)) if setting.name == "group_size" else pods
    return gpus * pods


def model_folders(found: Found) -> tuple[str, ...]:
    """Return the Hugging Face folders that conversions and servers name, each once."""
    readers = (Reader.CONVERT, Reader.QUANTIZE, Reader.SERVE)
    named = (one.value for one in found.settings if one.reader in readers and one.name in ("model_dir", "model"))
    return tuple(dict.fromkeys(value for value in named if isinstance(value, str) and value))
