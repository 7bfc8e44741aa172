"""The deploy profile: what the operator asks for. Validators refuse, they never fill in.

A profile is a strict YAML document (``spec.load`` reads it); ``auto`` asks the plan to decide.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from trtllm_kit.spec.profile_build import Build
from trtllm_kit.spec.profile_deploy import Deploy
from trtllm_kit.spec.profile_formats import Calibration, Quantization
from trtllm_kit.spec.profile_llm_api import LlmApi
from trtllm_kit.spec.profile_sections import Auto, Engine, Positive, Speculation
from trtllm_kit.spec.profile_sections import Strict as _Strict
from trtllm_kit.spec.quality import Quality
from trtllm_kit.spec.system_text import Environment, Host, PathText
from trtllm_kit.units import parse_bytes, parse_seconds

Seconds = Annotated[
    float,
    BeforeValidator(parse_seconds),
    Field(json_schema_extra={"type": ["number", "string"], "examples": ["250ms", "2 min"]}),
]
"""A duration such as ``250ms`` or ``2 min``; seconds inside."""
Bytes = Annotated[
    int,
    BeforeValidator(parse_bytes),
    Field(ge=1, json_schema_extra={"type": ["integer", "string"], "examples": ["24 GiB", "80GB"]}),
]
"""A size such as ``24 GiB``; bytes inside."""
Port = Annotated[int, Field(ge=1, le=65535)]
Runtime = Literal["tensorrt_llm", "reference", "simulated", "transformers"]


class Parallelism(_Strict):
    """How the model is split over GPUs; ``auto`` lets the plan choose."""

    tensor: Positive | Auto = Field("auto", description="Ranks that split every matrix.")
    pipeline: Positive = Field(1, description="Stages that split the layers.")
    expert: Positive = Field(1, description="Ranks that share out the experts; must divide tensor.")
    attention_dp: bool = Field(
        False,
        description="Attention data parallelism: each tensor rank serves requests of its own with whole attention, and "
        "the ranks share out the routed experts alone; limits.max_batch_size and max_num_tokens are then of each rank. "
        "It costs a copy of everything but the experts on every rank, and time of a single request.",
    )
    context: Positive = Field(
        1,
        description="Ranks that each take a part of every sequence (context parallelism of built engines): it shortens "
        "the prefill of very long prompts and splits the KV cache. Raising it costs GPUs, each with a copy of its "
        "tensor rank's weights, and an exchange of heads in every layer.",
    )
    replicas: Positive = Field(
        1,
        description="Copies of the whole server, each on GPUs of its own. Raising it costs GPUs; load.min_concurrency "
        "is what each copy must hold, and one deploy writes the repository of one copy.",
    )


class Limits(_Strict):
    """What the server accepts at once."""

    max_batch_size: Positive = Field(32, description="Requests in one step. Raising it costs KV cache and logits.")
    max_num_tokens: Positive = Field(8192, description="Tokens in one step. Raising it costs activation memory.")
    max_seq_len: Positive = Field(4096, description="Prompt plus answer, tokens. Raising it costs KV cache a sequence.")
    max_beam_width: Positive = Field(
        1,
        description="Beams of a request; every request must ask for exactly as many. Raising it costs KV cache and "
        "logits for each beam.",
    )


class KvCache(_Strict):
    """The KV cache of the runtime."""

    free_gpu_memory_fraction: float = Field(
        0.9, gt=0, lt=1, description="Share of the memory left after weights and buffers that the KV cache takes."
    )
    tokens_per_block: Positive = Field(32, description="Tokens in one block; a power of two.")
    enable_block_reuse: bool = Field(True, description="Keep blocks of equal prefixes.")
    enable_partial_reuse: bool = Field(
        True, description="Reuse a block of which only the beginning is equal. It costs a copy of the block."
    )
    max_attention_window: Auto | Annotated[tuple[Positive, ...], Field(min_length=1)] = Field(
        "auto",
        description="Tokens each layer keeps in the KV cache: a list that is repeated over the layers; auto "
        "takes the model's own windows. Raising it costs KV cache; below a full layer's context it costs quality.",
    )
    host_cache_bytes: Bytes | None = Field(
        None, description="Host memory of each rank that evicted blocks move to. Raising it costs pinned host memory."
    )
    secondary_offload_min_priority: int | None = Field(
        None,
        ge=0,
        le=100,
        description="Retention priority from which an evicted block moves to the host (upstream's 35 is every block's "
        "own). Raising it costs reuse: fewer blocks are kept.",
    )


class Scheduler(_Strict):
    """How requests are admitted."""

    policy: Literal["guaranteed_no_evict", "max_utilization"] = Field(
        "guaranteed_no_evict", description="Whether an admitted request can be paused again."
    )
    chunked_prefill: bool = Field(True, description="Split prompts longer than max_num_tokens over steps.")


class Load(_Strict):
    """The traffic the deployment must carry."""

    input_tokens: Positive = Field(1024, description="Prompt length to size for, tokens.")
    output_tokens: Positive = Field(1024, description="Answer length to size for, tokens.")
    min_concurrency: Positive = Field(
        1, description="Sequences of that length that must fit the KV cache at once, in each replica."
    )


class Serve(_Strict):
    """How the server is reached and how long it may take to start."""

    host: Host = Field("127.0.0.1", description="IP address or host name to bind; 0.0.0.0 for all, :: with IPv6.")
    http_port: Port = Field(8000, description="Port of the HTTP endpoints.")
    grpc_port: Port = Field(8001, description="Port of the gRPC endpoints.")
    metrics_port: Port = Field(8002, description="Port of /metrics, which check-health reads.")
    start_grace: Seconds = Field(
        600.0, description="Time from start in which a server that refuses is starting, not dead."
    )
    checkpoint_path: PathText | None = Field(
        None, description="Where the serving container sees the checkpoint, when not beside the repository."
    )
    engine_path: PathText | None = Field(
        None, description="Where the serving container sees the engine folder, when not beside the repository."
    )
    token_seconds: Seconds = Field(0.02, description="Pace of the simulated runtime: time of one step.")
    warm_up_requests: Annotated[int, Field(ge=0, le=64)] = Field(
        0,
        description="Short requests that the llmapi model answers itself before it is ready. Raising it makes a start "
        "longer, and the first clients' answers faster.",
    )
    instances: Positive = Field(
        1,
        description="Copies of the engine in one server of the llmapi model, each on GPUs of its own; "
        "parallelism.replicas counts them all.",
    )


class AlertOverride(_Strict):
    """Changes one shipped alert, whose keys left out keep the shipped value; with ``metric`` it may be a new one."""

    enabled: bool | None = Field(None, description="False switches the alert off, true one that is shipped off.")
    metric: str | None = Field(None, description="What it compares; a new alert needs it, and a range.")
    ok: str | None = Field(None, description="Nagios range of healthy values, e.g. 0.70:0.85 or :10.")
    severity: Literal["warning", "critical"] | None = Field(None, description="What it counts as outside the range.")
    samples: Positive | None = Field(None, description="Consecutive samples outside the range before it counts.")
    window: Positive | None = Field(None, description="Seconds between the two moments that a change is taken over.")
    clear: str | None = Field(None, description="Nagios range that ends the alert once it has fired.")
    when: Literal["always", "busy", "queued", "crowded"] | None = Field(None, description="In which samples it asks.")
    on_missing: Literal["ok", "unknown", "warning", "critical"] | None = Field(
        None, description="What it counts as that the server does not report the metric."
    )
    summary: str | None = Field(None, description="What is wrong when it fires, in one sentence.")
    advice: str | None = Field(None, description="What to do then.")
    runbook: str | None = Field(None, description="Address of what to do at length.")


class DeployProfile(_Strict):
    """One document that says what to run, on what, and how well."""

    schema_version: Literal[1] = Field(description="Version of this format.")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", description="Lower case, digits, dot, dash, underscore.")
    summary: str = Field("", description="One line for `trtkit profiles list`.")
    model_class: str = Field("", description="The models this profile was written for, in words.")
    hardware: str = Field(description="Name of a hardware profile, or the file of one.")
    gpu_memory: Bytes | None = Field(
        None, description="Memory of one GPU to plan with, when it is not the hardware profile's (shared, MIG, CPU)."
    )
    trtllm_version: str = Field(description="TensorRT-LLM release that will serve.", examples=["1.2.1", "main"])
    toolchain: Literal["llm-api", "trtllm-build", "mock"] | Auto = Field("auto", description="How the engine is made.")
    runtime: Runtime = Field("tensorrt_llm", description="What answers behind the tensors.")
    quantization: Quantization = Quantization()
    calibration: Calibration = Calibration()
    quality: Quality = Quality()
    parallelism: Parallelism = Parallelism()
    limits: Limits = Limits()
    kv_cache: KvCache = KvCache()
    scheduler: Scheduler = Scheduler()
    engine: Engine = Engine()
    build: Build = Build()
    llm_api: LlmApi = LlmApi()
    speculation: Speculation | None = Field(None, description="Speculative decoding; absent means none.")
    load: Load = Load()
    serve: Serve = Serve()
    deploy: Deploy = Deploy()
    alerts: dict[str, AlertOverride] = Field({}, description="Changes to the shipped alerts, by name.")
    environment: Environment = Field(
        {},
        description="Environment variables of the server process, beside those of the shell that starts it; what "
        "belongs to the machine (PATH, LD_LIBRARY_PATH, LD_PRELOAD, PYTHONPATH and the like) is set there.",
    )
