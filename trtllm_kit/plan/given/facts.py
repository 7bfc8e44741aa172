"""What rules about things that exist already are told: plain data, whoever read it from wherever."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from trtllm_kit.light import dataclass

_RANK = r"rank(\d+)\.engine"


@dataclass(frozen=True)
class EngineFacts:
    """What ``config.json`` of an engine folder says, and the files beside it; None is what nobody said."""

    version: str | None = None
    dtype: str | None = None
    logits_dtype: str | None = None
    ranks: int = 1
    """Tensor x pipeline x context ranks of its mapping."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """``max_batch_size``, ``max_seq_len`` ... as the builder settled them."""
    plugins: Mapping[str, object] = field(default_factory=dict)
    heads: int | None = None
    """Attention heads of a rank."""
    positions: int | None = None
    """``max_position_embeddings`` of the checkpoint."""
    rope_scaling: Mapping[str, object] | None = None
    gathers_logits: bool = False
    config: bool = True
    """Whether there is a ``config.json`` at all."""
    files: Mapping[int, int] = field(default_factory=dict)
    """Bytes of each ``rankN.engine``."""
    tensorrt: str | None = None
    compute_capability: int | None = None
    """Of the GPU it was built on; an engine folder does not say it by itself."""


def engine_facts(config: Mapping[str, Any] | None, sizes: Mapping[str, int]) -> EngineFacts:
    """Read the parsed ``config.json`` of an engine folder (None: there is none) and the sizes of its files by name."""
    ranks = {int(match[1]): size for name, size in sizes.items() if (match := re.fullmatch(_RANK, name))}
    if config is None:
        return EngineFacts(config=False, files=ranks)
    model, build = _section(config, "pretrained_config"), _section(config, "build_config")
    mapping = _section(model, "mapping")
    whole = 1
    for name in ("tp_size", "pp_size", "cp_size"):
        whole *= _number(mapping.get(name)) or 1
    numbers = {name: _number(value) for name, value in build.items() if name.startswith("max_")}
    version = config.get("version")
    return EngineFacts(
        version=version if isinstance(version, str) else None,
        dtype=_text(model.get("dtype")),
        logits_dtype=_text(model.get("logits_dtype")),
        ranks=whole,
        limits={name: number for name, number in numbers.items() if number is not None},
        plugins=_section(build, "plugin_config"),
        heads=_heads(model, mapping),
        positions=_number(model.get("max_position_embeddings")),
        rope_scaling=_section(model, "rotary_scaling") or _section(model, "rope_scaling") or None,
        gathers_logits=build.get("gather_generation_logits") is True or build.get("gather_context_logits") is True,
        files=ranks,
    )


def _heads(model: Mapping[str, Any], mapping: Mapping[str, Any]) -> int | None:
    """Return the attention heads of a rank, in whole heads."""
    heads = _number(model.get("num_attention_heads"))
    return None if heads is None else -(-heads // (_number(mapping.get("tp_size")) or 1))


@dataclass(frozen=True)
class ServingFacts:
    """Where an engine or a model is to be served."""

    release: str
    """Of TensorRT-LLM in the image, as the table of releases spells it."""
    tensorrt: str | None = None
    """Full version in the image, where somebody looked."""
    compute_capability: int | None = None
    driver: str | None = None
    container: str | None = None
    """Tag's month, ``25.12``."""
    consumer_gpu: bool = False
    nccl: str | None = None


@dataclass(frozen=True)
class LaunchFacts:
    """How the server is to be started, as far as it is known."""

    release: str
    ranks: int = 1
    """MPI ranks that are started."""
    wanted_ranks: int | None = None
    """Ranks of the engine or of the plan."""
    nodes: int = 1
    gpus_per_node: int | None = None
    """GPUs a node really has."""
    asked_gpus_per_node: int | None = None
    names_hosts: bool = False
    """Whether a host list, Slurm or a launcher a rank starts them on other nodes."""
    models: int = 1
    """Models with engines in the repository."""
    orchestrator: bool = False
    shm_prefixes: tuple[str, ...] = ()
    """Of every server and rank on one machine."""
    shm_bytes: int | None = None
    machine: str | None = None
    """``gh200``, ``gb200`` ... by the hardware profile's name."""
    variables: Mapping[str, str] = field(default_factory=dict)
    folder_holds_clone: bool = False
    """Whether the working folder holds a folder ``tensorrt_llm``."""
    fabric_up: bool | None = None
    """State of the NVLink fabric between nodes; None where nobody asked."""
    tensor_over_nodes: bool = False
    liveness_path: str | None = None
    startup_seconds: float | None = None
    """What the probes allow the start."""
    load_seconds: float | None = None
    """What loading the weights is expected to take."""


@dataclass(frozen=True)
class InstanceGroup:
    """One ``instance_group`` of a model."""

    kind: str = "KIND_AUTO"
    count: int = 1
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class TritonModel:
    """One model of a rendered repository, as its ``config.pbtxt`` says."""

    name: str
    backend: str = ""
    platform: str = ""
    max_batch_size: int = 0
    decoupled: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    instances: tuple[InstanceGroup, ...] = ()
    preferred_batch_sizes: tuple[int, ...] = ()
    queue_delay_microseconds: int = 0
    tensors: Mapping[str, str] = field(default_factory=dict)
    """Inputs and outputs: name -> ``TYPE_INT32`` ..."""
    bare_placeholders: tuple[str, ...] = ()
    """``${...}`` outside quotes, which the text format cannot hold."""
    llmapi: bool = False
    """Whether it is the llmapi model: Python with an LLM-API document."""


@dataclass(frozen=True)
class RepositoryFacts:
    """A rendered model repository, and what is known of where it will be served."""

    models: tuple[TritonModel, ...]
    release: str
    engine: EngineFacts | None = None
    paths: Mapping[str, bool] = field(default_factory=dict)
    """Paths that the models name, and whether they exist inside the image."""
    image: str | None = None
    client_tensors: Mapping[str, str] = field(default_factory=dict)
    """Types a client sends, where it is known."""


@dataclass(frozen=True)
class Extent:
    """How long a weight file is by its own header, bytes."""

    header: int
    """The header with the eight bytes of its length."""
    data: int
    """To the end of the last tensor; 0 where the file ends within its header."""


@dataclass(frozen=True)
class WeightFacts:
    """A Hugging Face folder's weights by index, sizes and headers."""

    sizes: Mapping[str, int]
    """Bytes of every ``*.safetensors`` file that is there."""
    pointers: frozenset[str] = frozenset()
    """Files that begin as a git-LFS pointer does."""
    indexed: Mapping[str, str] | None = None
    """Tensor -> file, as the index says; None without an index."""
    total_bytes: int | None = None
    """The index's ``metadata.total_size``."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes read from the headers."""
    extents: Mapping[str, Extent] = field(default_factory=dict)
    """What the header of each file says of its size; a file whose header was not read is absent."""


def _section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
