"""Rules about given things: for each a thing that must be spoken of, one near it that must not, and other releases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

import trtllm_kit.plan as room
from tests.plan.test_checks import with_facts
from tests.plan.trials import ERROR, GONE, INFO, WARNING, Trial
from tests.support.specs import llama_8b, smollm2
from trtllm_kit.findings import Finding
from trtllm_kit.plan.given import TITLES
from trtllm_kit.plan.given.commands import Around, command_line, exporter, parse_command, plugin_command
from trtllm_kit.plan.given.documents import document
from trtllm_kit.plan.given.engines import files, lengths, plugin_types, request, reuse, serving
from trtllm_kit.plan.given.facts import (
    EngineFacts,
    Extent,
    InstanceGroup,
    LaunchFacts,
    RepositoryFacts,
    ServingFacts,
    TritonModel,
    WeightFacts,
    engine_facts,
)
from trtllm_kit.plan.given.launches import launch
from trtllm_kit.plan.given.other_release import other_release
from trtllm_kit.plan.given.repositories import repository
from trtllm_kit.plan.given.shown_metrics import shown_metrics
from trtllm_kit.plan.given.weights import weights as weight_rules
from trtllm_kit.spec.model import StoredFormats
from trtllm_kit.upstream.failures import known_failures


def engine(**facts: Any) -> EngineFacts:
    """Make a whole engine of 1.2.1 for one rank."""
    return EngineFacts(**({"version": "1.2.1", "dtype": "bfloat16", "files": {0: 10**9}} | facts))


def built(release: str, **facts: Any) -> Iterable[Finding]:
    """Serve an engine of 1.2.1 with a release."""
    return serving(engine(), ServingFacts(release, **facts))


def run(text: str, release: str, **around: Any) -> Iterable[Finding]:
    """Check a command line."""
    return command_line(parse_command(text.split()), Around(release, **around))


def repo(*models: TritonModel, release: str, **facts: Any) -> Iterable[Finding]:
    """Check a repository."""
    return repository(RepositoryFacts(models, release, **facts))


def llm(release: str = "1.2.1", *, bls: bool = False, name: str = "tensorrt_llm", **facts: Any) -> TritonModel:
    """Make a model of the engine backend."""
    backend = "python" if bls else "tensorrtllm"
    own = "tensorrt_llm_bls" if bls else name
    return TritonModel(**({"name": own, "backend": backend, "max_batch_size": 64} | facts))


def yaml(given: Mapping[str, Any], release: str, **more: Any) -> Iterable[Finding]:
    """Check an LLM-API document."""
    return document(given, release, **more)


GATHERS = llm(bls=True, decoupled=True, parameters={"accumulate_tokens": "true"})
HEAD, ROWS = "lm_head.weight", "model.embed_tokens.weight"
INDEX = {ROWS: "a.safetensors", HEAD: "b.safetensors"}
FOUR = ("a.safetensors", "b.safetensors", "c.safetensors", "d.safetensors")
WHOLE = {"a.safetensors": 5000, "b.safetensors": 5000}
EXTENTS = {"a.safetensors": Extent(50, 4950), "b.safetensors": Extent(50, 4950)}


def folder(release: str, tied: bool = False, **facts: Any) -> Iterable[Finding]:
    """Check a folder of two files."""
    told = WeightFacts(**({"sizes": WHOLE, "indexed": INDEX, "total_bytes": 9900} | facts))
    return weight_rules(told, smollm2() if tied else llama_8b(), release)


GIB = 2**30
SEVENTY = {"dtype": "bfloat16", "weights_bytes": 131 * GIB, "calibrated_bytes": 66 * GIB, "gpu_bytes": 317 * GIB}
QUARTER, WITHOUT = {"max_batch_size": 32, "max_input_len": 4096}, {"context_fmha": False}


def stored_int4(release: str, weights: Any, *, factors: bool = False, **stored: Any) -> Iterable[Finding]:
    """Check a folder whose linear layers come quantised, with or without the factors of their inputs."""
    modules = [f"model.layers.0.{one}" for one in ("self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj")]
    ends = (".weight", ".weight_scale", *((".pre_quant_scale",) if factors else ()))
    names = {f"{module}{end}": "a.safetensors" for module in modules for end in ends} | INDEX
    model = with_facts(llama_8b(), stored=StoredFormats(method="modelopt", weights=weights, **stored))
    return weight_rules(WeightFacts(sizes=WHOLE, indexed=names, total_bytes=9900), model, release)


TRIALS: dict[str, Trial] = {
    "git-lfs-pointer": Trial("PF9", ERROR, "4 of 4 files, first a.safetensors with 135 bytes",
        lambda v: folder(v, sizes=dict.fromkeys(FOUR, 135), pointers=frozenset(FOUR), indexed={n: n for n in FOUR}),
        folder, other=None),
    "missing-shard": Trial("PF9", ERROR, "1 of 2 missing: b.safetensors",
        lambda v: folder(v, sizes={"a.safetensors": 5000}), folder, other=None),
    "short-shard": Trial("PF9", ERROR, "1 of 2 files, first b.safetensors with 5,000 bytes, 5,010 by its header",
        lambda v: folder(v, extents=EXTENTS | {"b.safetensors": Extent(60, 4950)}),
        lambda v: folder(v, extents=EXTENTS), other=None),
    "long-shard": Trial("PF9", ERROR, "first a.safetensors with 5,000 bytes, 4,999 by its header",
        lambda v: folder(v, extents=EXTENTS | {"a.safetensors": Extent(49, 4950)}),
        lambda v: folder(v, extents=EXTENTS), other=None),
    "other-total": Trial("PF9", WARNING, "9,900 bytes there, total_size 20,000",
        lambda v: folder(v, total_bytes=20000, extents=EXTENTS), lambda v: folder(v, extents=EXTENTS), other=None),
    "total-of-unread-headers": Trial("PF9", WARNING, "10,000 bytes there, total_size 20,000",
        lambda v: folder(v, total_bytes=20000), lambda v: folder(v, total_bytes=10100), other=None),
    "file-outside-index": Trial("PF9", WARNING, "1: c.safetensors",
        lambda v: folder(v, sizes=WHOLE | {"c.safetensors": 9}), folder, other=None),
    "head-missing": Trial("PF10", ERROR, "tie_word_embeddings false, 1 tensors without lm_head.weight",
        lambda v: folder(v, indexed={ROWS: "a.safetensors"}, total_bytes=None, sizes={"a.safetensors": 5000}),
        lambda v: folder(v, tied=True, indexed={ROWS: "a.safetensors"}, total_bytes=None,
            sizes={"a.safetensors": 5000}),
        other=None),
    "head-stored-and-tied": Trial("PF10", WARNING, "tie_word_embeddings true, lm_head.weight stored",
        lambda v: folder(v, tied=True), folder, other=None),
    "embedding-rows": Trial("PF4", ERROR, "128,258 rows, vocab_size 128,256",
        lambda v: folder(v, shapes={ROWS: (128258, 4096)}), lambda v: folder(v, shapes={ROWS: (128256, 4096)}),
        other=None),
    "plugin-type": Trial("PF16", WARNING, "gemm_plugin float16, dtype bfloat16",
        lambda v: plugin_types(engine(plugins={"gemm_plugin": "float16"}), v),
        lambda v: plugin_types(engine(plugins={"gemm_plugin": "bfloat16", "nccl_plugin": "auto", "x_plugin": None}),
            v)),
    "float32-with-plugins": Trial("PF16", WARNING, "gemm_plugin float16, dtype float32",
        lambda v: plugin_types(plugin_command(parse_command(["trtllm-build", "--gemm_plugin", "float16"]), "float32",
            v), v),
        lambda v: plugin_types(plugin_command(parse_command(["trtllm-build", "--gemm_plugin", "auto"]), "float32",
            v), v)),
    "inherited-length": Trial("PF17", WARNING, "--max_seq_len absent, the model's positions 131,072",
        lambda v: run("trtllm-build --checkpoint_dir c", v, positions=131072),
        lambda v: run("trtllm-build --checkpoint_dir c --max_seq_len 8192", v, positions=131072)),
    "scores-in-memory": Trial("PF17", WARNING, "64 x 2,048 x 2,048 scores of 6 bytes = 1.50 GiB for every head",
        lambda v: lengths(engine(limits={"max_batch_size": 64, "max_input_len": 2048},
            plugins={"context_fmha": False}), v),
        lambda v: lengths(engine(limits={"max_batch_size": 64, "max_input_len": 2048},
            plugins={"context_fmha": True}), v)),
    "rope-lost": Trial("PF11", WARNING, "max_seq_len 131,072, max_position_embeddings 8,192, rotary_scaling absent",
        lambda v: lengths(engine(limits={"max_seq_len": 131072}, positions=8192), v),
        lambda v: lengths(engine(limits={"max_seq_len": 131072}, positions=8192, rope_scaling={"type": "llama3"}), v)),
    "engine-of-other-tensorrt": Trial("PF19", ERROR, "engine of 1.2.1 with TensorRT 10.14, served by 0.21.0 with 10.11",
        built, lambda v: serving(engine(version=v), ServingFacts(v)), release="0.21.0", other="1.2.1"),
    "engine-of-other-patch": Trial("PF19", ERROR, "TensorRT 9.2.0.4, served by 0.12.0 with 9.2.0.5",
        lambda v: serving(engine(version="0.12.0", tensorrt="9.2.0.4"), ServingFacts(v, "9.2.0.5")),
        lambda v: serving(engine(version="0.12.0", tensorrt="9.2.0.4"), ServingFacts(v, "9.2.0.4")), release="0.12.0"),
    "engine-of-old-builder": Trial("PF19", WARNING, "version absent, served by",
        lambda v: serving(engine(version=None), ServingFacts(v)),
            lambda v: serving(engine(version="0.17.0"), ServingFacts(v)),
        release="0.17.0", other=None),
    "engine-of-other-gpu": Trial("PF19", ERROR, "built on compute capability 90, served on 89",
        lambda v: serving(engine(compute_capability=90), ServingFacts(v, compute_capability=89)),
        lambda v: serving(engine(compute_capability=90), ServingFacts(v, compute_capability=90)), other=None),
    "engine-flow-gone": Trial("PF19", ERROR, "engine of 1.2.1, served by main", built, lambda _: built("1.2.1"),
        release="main", other="1.2.1"),
    "rank-file-empty": Trial("PF19", ERROR, "4 ranks by its mapping; missing [3], empty [2]",
        lambda _: files(engine(ranks=4, files={0: 9, 1: 9, 2: 0})),
        lambda _: files(engine(ranks=4, files={0: 9, 1: 9, 2: 9, 3: 9})), other=None),
    "engine-config-missing": Trial("PF19", ERROR, "1 rank files, 0 config.json",
        lambda _: files(engine_facts(None, {"rank0.engine": 9})), lambda _: files(engine()), other=None),
    "driver-of-consumer-gpu": Trial("PF19", WARNING, "driver 575.57.08; container 26.07 has CUDA 13.1, which runs on "
        "580 and newer; not confirmed",
        lambda v: built(v, driver="575.57.08", container="26.07", consumer_gpu=True),
        lambda v: built(v, driver="580.65.06", container="26.07", consumer_gpu=True), other=None),
    "driver-of-data-centre-gpu": Trial("PF19", WARNING, "driver 575.57.08; container 26.07 has CUDA 13.1, which runs "
        "on 580",
        lambda v: built(v, driver="575.57.08", container="26.07"),
        lambda v: built(v, driver="590.44.01", container="26.07"), other=None),
    "nccl": Trial("PF19", WARNING, "NCCL 2.25.1, 2.26 was seen to work",
        lambda v: serving(engine(version=v), ServingFacts(v, nccl="2.25.1")),
        lambda v: serving(engine(version=v), ServingFacts(v, nccl="2.26.2")), release="0.20.0rc2", other="0.20.0"),
    "ranks-of-world": Trial("PF20", WARNING, "1 MPI ranks, tensor x pipeline x context of the engine is 2",
        lambda v: launch(LaunchFacts(v, ranks=1, wanted_ranks=2)), lambda v: launch(LaunchFacts(v,
            ranks=2, wanted_ranks=2)),
        other=None),
    "leader-of-several": Trial("PF20", WARNING, "3 models with engines, 2 MPI ranks",
        lambda v: launch(LaunchFacts(v, models=3, ranks=2)),
        lambda v: launch(LaunchFacts(v, models=3, ranks=2, orchestrator=True))),
    "gpus-per-node": Trial("PF20", WARNING, "gpus_per_node 8, 1 GPUs a node",
        lambda v: launch(LaunchFacts(v, nodes=4, gpus_per_node=1, asked_gpus_per_node=8, names_hosts=True)),
        lambda v: launch(LaunchFacts(v, nodes=1, gpus_per_node=1, asked_gpus_per_node=8)), other=None),
    "hosts-not-named": Trial("PF20", WARNING, "2 nodes, no host list",
        lambda v: launch(LaunchFacts(v, nodes=2)), lambda v: launch(LaunchFacts(v, nodes=2, names_hosts=True)),
            other=None),
    "shared-prefix": Trial("PF20", WARNING, "shm-region-prefix-name a_ more than once",
        lambda v: launch(LaunchFacts(v, shm_prefixes=("a_", "b_", "a_"))),
        lambda v: launch(LaunchFacts(v, shm_prefixes=("a_", "b_"))), other=None),
    "small-shm": Trial("PF20", WARNING, "64.00 MiB, 1.00 GiB is what launch examples give",
        lambda v: launch(LaunchFacts(v, shm_bytes=2**26)), lambda v: launch(LaunchFacts(v, shm_bytes=GIB)), other=None),
    "clone-hides-package": Trial("PF20", WARNING, "tensorrt_llm in the working folder",
        lambda v: launch(LaunchFacts(v, folder_holds_clone=True)), lambda v: launch(LaunchFacts(v)), other="0.18.2"),
    "ucx-of-gh200": Trial("PF20", WARNING, "none of UCX_TLS,",
        lambda v: launch(LaunchFacts(v, machine="gh200-nvl32")),
        lambda v: launch(LaunchFacts(v, machine="gh200-nvl32", variables={"UCX_TLS": "tcp"})), release="0.17.0",
        other="1.2.1"),
    "fabric-down": Trial("PF20", WARNING, "tensor ranks over nodes, IMEX not up",
        lambda v: launch(LaunchFacts(v, tensor_over_nodes=True, fabric_up=False)),
        lambda v: launch(LaunchFacts(v, tensor_over_nodes=True, fabric_up=None)), other=None),
    "ready-as-liveness": Trial("PF20", WARNING, "liveness /v2/health/ready",
        lambda v: launch(LaunchFacts(v, liveness_path="/v2/health/ready")),
        lambda v: launch(LaunchFacts(v, liveness_path="/v2/health/live")), other=None),
    "startup-too-short": Trial("PF20", WARNING, "5.00 s allowed, 2 min 0 s estimated",
        lambda v: launch(LaunchFacts(v, startup_seconds=5, load_seconds=120)),
        lambda v: launch(LaunchFacts(v, startup_seconds=120, load_seconds=120)), other=None),
    "flag-gone": Trial("PF15", ERROR, "--max_output_len is gone since 0.12",
        lambda v: run("trtllm-build --max_output_len 100 --max_seq_len 9", v),
        lambda v: run("trtllm-build --max_seq_len 100", v), release="0.12.0", other="0.11.0"),
    "flag-gone-later": Trial("PF15", WARNING, "--builder_opt is gone since 0.14",
        lambda v: run("trtllm-build --builder_opt=3 --max_seq_len 9", v), lambda v: run("other --builder_opt 3", v),
        release="0.14.0", other="0.13.0"),
    "rotary-flag": Trial("PF15", WARNING, "--rotary_scaling is gone since 0.11.0; not confirmed for this release",
        lambda v: run("python3 convert_checkpoint.py --rotary_scaling yarn", v),
        lambda v: run("python3 convert_checkpoint.py --model_dir m", v), release="0.16.0", other="0.10.0"),
    "build-with-ranks": Trial("PF15", ERROR, "--tp_size is gone since 0.12",
        lambda v: run("trtllm-build --tp_size 4 --max_seq_len 9", v),
            lambda v: run("convert_checkpoint.py --tp_size 4", v),
        release="0.12.0", other="0.11.0"),
    "serve-option-gone": Trial("PF48", WARNING, "--set: it is there from 1.4.0rc0 on; not confirmed for this release",
        lambda v: run("trtllm-serve m --set max_batch_size=8", v), lambda v: run("trtllm-serve m --tp_size 8", v),
        release="1.2.1", other="main"),
    "serve-backend-gone": Trial("PF48", WARNING, "--backend tensorrt; it takes pytorch, _autodeploy",
        lambda v: run("trtllm-serve m --backend tensorrt", v), lambda v: run("trtllm-serve m --backend pytorch", v),
        release="main", other="1.2.1"),
    "image-of-another": Trial("PF49", WARNING, "FROM tritonserver:25.05",
        lambda v: other_release("0.19.0", "FROM tritonserver:25.05", v),
        lambda v: other_release(v, "FROM tritonserver:26.06", v), release="1.2.1", other="0.19.0"),
    "metrics-of-engines": Trial("PF50", WARNING, "nv_trt_llm_general_metrics: from the first release on; the backend",
        lambda v: shown_metrics("rate(nv_trt_llm_general_metrics[5m]) > 1", v),
        lambda v: shown_metrics("rate(trtllm_num_requests_running[5m]) > other_metric", v),
        release="main", other="1.2.1"),
    "flag-misspelt": Trial("PF15", WARNING, "--max_batchsize is in no list of options that was read for it",
        lambda v: run("trtllm-build --max_batchsize 4 --max_seq_len 9", v),
        lambda v: run("trtllm-build --max_batch_size 4 --max_seq_len 9", v)),
    "flag-of-later-release": Trial("PF15", WARNING, "--monitor_memory is in no list of options that was read for it",
        lambda v: run("trtllm-build --monitor_memory --max_seq_len 9", v),
            lambda v: run("trtllm-build --max_seq_len 9", v),
        release="0.14.0", other="0.16.0"),
    "key-renamed": Trial("PF24", ERROR, "use_cuda_graph became cuda_graph_config in 1.0",
        lambda v: yaml({"use_cuda_graph": True}, v), lambda v: yaml({"cuda_graph_config": {}}, v), other="0.20.0"),
    "command-gone": Trial("PF15", ERROR, "asked of 1.3.0rc21, the last with it is 1.3.0rc20",
        lambda v: run("trtllm-build --max_seq_len 9", v), lambda v: run("trtllm-serve m", v), release=GONE,
        other="1.3.0rc20"),
    "converter-calibrates": Trial("PF12", WARNING, "--use_fp8, weights not quantised",
        lambda v: run("convert_checkpoint.py --use_fp8", v),
            lambda v: run("convert_checkpoint.py --use_fp8", v, quantised=True)),
    "rowwise-experts": Trial("PF12", WARNING, "--use_fp8_rowwise, a model with experts",
        lambda v: run("convert_checkpoint.py --use_fp8_rowwise --tp_size 2", v, experts=True),
        lambda v: run("convert_checkpoint.py --use_fp8_rowwise --tp_size 2", v), release="0.12.0"),
    "workers-load-whole": Trial("PF14", WARNING, "8 x 130.00 GiB = 1.02 TiB, 512.00 GiB there",
        lambda v: run("convert_checkpoint.py --workers 8", v, weights_bytes=130 * GIB, host_bytes=512 * GIB),
        lambda v: run("convert_checkpoint.py --workers 3", v, weights_bytes=130 * GIB, host_bytes=512 * GIB)),
    "build-in-cpu-memory": Trial("PF14", WARNING, "2 x 2 x 33.00 GiB = 132.00 GiB, 128.00 GiB there",
        lambda v: run("trtllm-build --workers 2 --max_seq_len 9", v, rank_bytes=33 * GIB, host_bytes=128 * GIB),
        lambda v: run("trtllm-build --max_seq_len 9", v, rank_bytes=33 * GIB, host_bytes=128 * GIB)),
    "float32-load": Trial("PF14", WARNING, "131.00 GiB as float32 + 66.00 GiB of the result = 328.00 GiB, 317.00 GiB",
        lambda v: run("quantize.py --dtype float32 --qformat fp8", v, **SEVENTY),
        lambda v: run("quantize.py --dtype bfloat16 --qformat fp8", v, **SEVENTY)),
    "exporter": Trial("PF13", WARNING, "ModelOpt 0.27.1, 0.29 exports it",
        lambda _: exporter("Gemma3ForCausalLM", "0.27.1"), lambda _: exporter("Gemma3ForCausalLM", "0.29.0"),
            other=None),
    "placeholder-bare": Trial("PF21", ERROR, "tensorrt_llm: ${decoupled_mode}",
        lambda v: repo(llm(bare_placeholders=("${decoupled_mode}",)), release=v), lambda v: repo(llm(),
            release=v), other=None),
    "placeholder-needed": Trial("PF21", ERROR, "tensorrt_llm: parameter gpt_model_path is ${engine_dir}",
        lambda v: repo(llm(parameters={"gpt_model_path": "${engine_dir}"}), release=v),
        lambda v: repo(llm(parameters={"gpt_model_path": "/engines"}), release=v), other=None),
    "placeholder-optional": Trial("PF21", INFO, "tensorrt_llm: parameter medusa_choices is ${medusa_choices}",
        lambda v: repo(llm(parameters={"medusa_choices": "${medusa_choices}"}), release=v),
        lambda v: repo(llm(parameters={"medusa_choices": ""}), release=v), other=None),
    "decoupled-differs": Trial("PF21", WARNING, "tensorrt_llm true, tensorrt_llm_bls false",
        lambda v: repo(llm(decoupled=True), llm(bls=True), release=v),
        lambda v: repo(llm(decoupled=True), llm(bls=True, decoupled=True), release=v), other=None),
    "words-without-spaces": Trial("PF21", INFO, "ensemble and decoupled, accumulate_tokens off",
        lambda v: repo(llm(decoupled=True), llm(name="ensemble", backend="", platform="ensemble"), release=v),
        lambda v: repo(llm(), llm(name="ensemble", backend="", platform="ensemble"), release=v)),
    "accumulate-with-beams": Trial("PF21", WARNING, "accumulate_tokens and decoupled true, max_beam_width 4",
        lambda v: repo(llm(parameters={"max_beam_width": "4"}, decoupled=True), GATHERS, release=v),
        lambda v: repo(llm(parameters={"max_beam_width": "1"}, decoupled=True), GATHERS, release=v)),
    "accumulate-without-stream": Trial("PF21", WARNING, "accumulate_tokens and decoupled true, max_beam_width 4",
        lambda v: repo(llm(parameters={"max_beam_width": "4"}, decoupled=True), GATHERS, release=v),
        lambda v: repo(llm(parameters={"max_beam_width": "4"}),
                       llm(bls=True, parameters={"accumulate_tokens": "true"}), release=v)),
    "tensor-of-other-type": Trial("PF21", ERROR, "tensorrt_llm: end_id is TYPE_INT32, the client sends TYPE_UINT32",
        lambda v: repo(llm(tensors={"end_id": "TYPE_INT32"}), release=v, client_tensors={"end_id": "TYPE_UINT32"}),
        lambda v: repo(llm(tensors={"end_id": "TYPE_INT32"}), release=v, client_tensors={"end_id": "TYPE_INT32"}),
        other=None),
    "batch-above-engine": Trial("PF21", WARNING, "tensorrt_llm: max_batch_size 64, the engine's 8",
        lambda v: repo(llm(), release=v, engine=engine(limits={"max_batch_size": 8})),
        lambda v: repo(llm(), release=v, engine=engine(limits={"max_batch_size": 64})), other=None),
    "preferred-above-batch": Trial("PF21", ERROR, "tensorrt_llm: preferred 100, max_batch_size 64",
        lambda v: repo(llm(preferred_batch_sizes=(50, 100)), release=v),
        lambda v: repo(llm(preferred_batch_sizes=(50, 64)), release=v), other=None),
    "queue-delay": Trial("PF21", WARNING, "max_queue_delay_microseconds 200,000,000 is 3 min 20 s",
        lambda v: repo(llm(queue_delay_microseconds=200_000_000), release=v),
        lambda v: repo(llm(queue_delay_microseconds=10_000), release=v), other=None),
    "tokenizer-not-there": Trial("PF21", WARNING, "preprocessing: tokenizer_dir /models/tok",
        lambda v: repo(llm(name="preprocessing", parameters={"tokenizer_dir": "/models/tok"}), release=v,
                       paths={"/models/tok": False}),
        lambda v: repo(llm(name="preprocessing", parameters={"tokenizer_dir": "/models/tok"}), release=v,
                       paths={"/models/tok": True}), other=None),
    "key-nobody-reads": Trial("PF21", WARNING, "preprocessing: tokenizer_type auto",
        lambda v: repo(llm(name="preprocessing", parameters={"tokenizer_type": "auto"}), release=v),
        lambda v: repo(llm(name="mine", parameters={"tokenizer_type": "auto"}), release=v), other=None),
    "key-of-later-release": Trial("PF21", WARNING, "tensorrt_llm: num_nodes 2",
        lambda v: repo(llm(parameters={"num_nodes": "2"}), release=v),
        lambda v: repo(llm(parameters={"participant_ids": "1"}), release=v), release="0.18.2", other="0.19.0"),
    "length-in-pbtxt": Trial("PF21", WARNING, "tensorrt_llm: max_input_len 5000",
        lambda v: repo(llm(parameters={"max_input_len": "5000"}), release=v),
        lambda v: repo(llm(parameters={"max_beam_width": "1"}), release=v), other=None),
    "invented-key": Trial("PF21", WARNING, "tensorrt_llm: tensor_parallel_size 2",
        lambda v: repo(llm(parameters={"tensor_parallel_size": "2"}), release=v),
        lambda v: repo(llm(llmapi=True, backend="python", parameters={"tensor_parallel_size": "2"}), release=v),
            other=None),
    "gpus-of-instances": Trial("PF21", WARNING, "tensorrt_llm: KIND_GPU, count 2, gpus [0, 1]",
        lambda v: repo(llm(instances=(InstanceGroup("KIND_GPU", 2, (0, 1)),)), release=v),
        lambda v: repo(llm(instances=(InstanceGroup("KIND_GPU", 2, (0, 1)),),
            parameters={"gpu_device_ids": "0;1"}), release=v),
        other=None),
    "llmapi-instances": Trial("PF21", WARNING, "tensorrt_llm: 2 instances",
        lambda v: repo(llm(llmapi=True, backend="python", instances=(InstanceGroup("KIND_CPU", 2),)), release=v),
        lambda v: repo(llm(llmapi=True, backend="python", instances=(InstanceGroup("KIND_CPU", 1),)), release=v)),
    "backend-of-image": Trial("PF21", WARNING, "onnx: onnxruntime_onnx; image nvcr.io/nvidia/tritonserver:25.05",
        lambda v: repo(llm(name="onnx", backend="", platform="onnxruntime_onnx"), release=v,
                       image="nvcr.io/nvidia/tritonserver:25.05-trtllm-python-py3"),
        lambda v: repo(llm(), release=v, image="nvcr.io/nvidia/tritonserver:25.05-trtllm-python-py3"), other=None),
    "logits-of-half": Trial("PF21", WARNING, "gathered logits, logits_dtype float16",
        lambda v: repo(llm(), release=v, engine=engine(gathers_logits=True, logits_dtype="float16")),
        lambda v: repo(llm(), release=v, engine=engine(gathers_logits=True, logits_dtype="float32"))),
    "beams-of-request": Trial("PF22", WARNING, "12 beams asked, max_beam_width 4",
        lambda v: request(engine(limits={"max_beam_width": 4}), v, beams=12),
        lambda v: request(engine(limits={"max_beam_width": 4}), v, beams=1)),
    "prompt-of-engine": Trial("PF22", WARNING, "prompt 5,056, max_input_len 2,048; not confirmed",
        lambda v: request(engine(limits={"max_input_len": 2048}), v, prompt=5056),
        lambda v: request(engine(limits={"max_input_len": 5056}), v, prompt=5056)),
    "tokens-of-engine": Trial("PF22", WARNING, "prompt 9,351, max_num_tokens 8,192; not confirmed",
        lambda v: request(engine(limits={"max_num_tokens": 8192}), v, prompt=9351),
        lambda v: request(engine(limits={"max_num_tokens": 8192}, plugins={"use_paged_context_fmha": True}), v,
            prompt=9351)),
    "scores-above-free": Trial("PF17", WARNING, "96.00 GiB for the 32 of a rank; 60.00 GiB free; not confirmed",
        lambda v: lengths(engine(limits=QUARTER, plugins=WITHOUT, heads=32), v, 60 * GIB),
        lambda v: lengths(engine(limits=QUARTER, plugins=WITHOUT, heads=8), v, 60 * GIB),
        beside=("32 x 4,096 x 4,096 scores of 6 bytes = 3.00 GiB for every head, 24.00 GiB for the 8 of a rank; "
                "60.00 GiB free",)),
    "factors-of-awq": Trial("PF12", WARNING, "2 layers without pre_quant_scale, first model.layers.0.mlp.down_proj",
        lambda v: stored_int4(v, "int4_awq"), lambda v: stored_int4(v, "int4_awq", factors=True), other="0.21.0"),
    "factors-of-a-mixture": Trial("PF12", WARNING, "1 layers without pre_quant_scale, first model.layers.0.self_attn",
        lambda v: stored_int4(v, "mixed", layers=(("*.o_proj", "int4_awq"), ("*", "fp8"))),
        lambda v: stored_int4(v, "mixed", layers=(("*", "fp8"),)), other="0.21.0"),
    "chunks-without-paged": Trial("PF23", WARNING, "chunked context asked, use_paged_context_fmha false",
        lambda v: reuse(engine(plugins={"use_paged_context_fmha": False}), v, wants_reuse=False, wants_chunks=True),
        lambda v: reuse(engine(plugins={"use_paged_context_fmha": True}), v, wants_reuse=True, wants_chunks=True)),
    "reuse-without-paged": Trial("PF23", WARNING, "block reuse asked, use_paged_context_fmha false",
        lambda v: reuse(engine(plugins={"use_paged_context_fmha": False}), v, wants_reuse=True, wants_chunks=False),
        lambda v: reuse(engine(plugins={"use_paged_context_fmha": False}), v, wants_reuse=False, wants_chunks=False)),
    "drafts-of-request": Trial("PF25", WARNING, "56 draft tokens, max_draft_len 0",
        lambda v: request(engine(), v, drafts=56), lambda v: request(engine(limits={"max_draft_len": 56}), v,
            drafts=56)),
    "metrics-off": Trial("PF23", WARNING, "return_perf_metrics and enable_iter_perf_stats not true",
        lambda v: yaml({}, v, scraped=True),
        lambda v: yaml({"return_perf_metrics": True, "enable_iter_perf_stats": True}, "1.2.1", scraped=True),
        other="0.21.0"),
    "offload-with-reuse": Trial("PF23", WARNING, "host_cache_size 64, enable_block_reuse true",
        lambda v: yaml({"kv_cache_config": {"host_cache_size": 64}}, v),
        lambda v: yaml({"kv_cache_config": {"host_cache_size": 64, "enable_block_reuse": False}}, v),
            release="1.2.0rc1",
        other="1.2.1"),
    "cache-manager": Trial("PF23", WARNING, "use_kv_cache_manager_v2 true; not confirmed for this release",
        lambda v: yaml({"kv_cache_config": {"use_kv_cache_manager_v2": True}}, v),
        lambda v: yaml({"kv_cache_config": {}}, v), release="1.3.0rc20", other="1.2.1"),
    "grammar-with-reuse": Trial("PF23", WARNING, "guided_decoding_backend xgrammar, enable_block_reuse true",
        lambda v: yaml({"guided_decoding_backend": "xgrammar"}, v),
        lambda v: yaml({"kv_cache_config": {"enable_block_reuse": True}}, v),
        release="0.16.0", other="0.17.0"),
    "unknown-key": Trial("PF24", ERROR, "the key is in main",
        lambda v: yaml({"allow_request_chat_template": True}, v), lambda v: yaml({"max_batch_size": 8}, v),
            other="main"),
    "graph-lists": Trial("PF24", WARNING, "batch_sizes up to 4, max_batch_size 8",
        lambda v: yaml({"cuda_graph_config": {"batch_sizes": [1, 4], "max_batch_size": 8}}, v),
        lambda v: yaml({"cuda_graph_config": {"batch_sizes": [1, 8], "max_batch_size": 8}}, v), other="0.21.0"),
    "given-twice": Trial("PF24", WARNING, "YAML 8, command line 16",
        lambda v: yaml({"max_batch_size": 8}, v, command_line={"max_batch_size": 16}),
        lambda v: yaml({"max_batch_size": 8}, v, command_line={"max_batch_size": 8}), other=None),
    "draft-trees": Trial("PF25", WARNING, "eagle_choices is set",
        lambda v: yaml({"speculative_config": {"decoding_type": "Eagle", "eagle_choices": [[0]]}}, v),
        lambda v: yaml({"speculative_config": {"decoding_type": "Eagle", "max_draft_len": 3}}, v),
        other="1.4.0rc0", beside=("decoding_type Eagle",)),
    "eagle-is-eagle3": Trial("PF25", INFO, "decoding_type Eagle",
        lambda v: yaml({"speculative_config": {"decoding_type": "Eagle"}}, v),
        lambda v: yaml({"speculative_config": {"decoding_type": "MTP"}}, v),
        other="0.21.0"),
    "two-models-forced": Trial("PF25", WARNING, "eagle3_one_model false",
        lambda v: yaml({"speculative_config": {"eagle3_one_model": False}}, v),
        lambda v: yaml({"speculative_config": {"decoding_type": "Eagle3"}}, v),
        release="main", other="1.2.1"),
    "threshold-is-a-share": Trial("PF25", ERROR, "acceptance_rate_threshold 60, from 0 to 1",
        lambda v: yaml({"speculative_config": {"decoding_type": "Eagle3", "acceptance_rate_threshold": 60}}, v),
        lambda v: yaml({"speculative_config": {"decoding_type": "Eagle3", "acceptance_rate_threshold": 0.6}}, v),
        release="main", other="1.1.0", beside=("acceptance_rate_threshold 0.6",)),
    "suffix-of-nothing": Trial("PF25", WARNING, "max_matching_ngram_size 0",
        lambda v: yaml({"speculative_config": {"decoding_type": "SA", "max_matching_ngram_size": 0}}, v),
        lambda v: yaml({"speculative_config": {"decoding_type": "SA", "max_matching_ngram_size": -1}}, v),
        release="main", other="1.3.0rc2"),
    "suffix-pool": Trial("PF25", WARNING, "global_pool_size 8, max_batch_size 16",
        lambda v: yaml({"max_batch_size": 16, "speculative_config": {"decoding_type": "SA", "global_pool_size": 8}}, v),
        lambda v: yaml({"max_batch_size": 8, "speculative_config": {"decoding_type": "SA", "global_pool_size": 8}}, v),
        release="main", other="1.3.0rc2"),
    "auto-ignores": Trial("PF25", INFO, "AUTO beside max_draft_len",
        lambda v: yaml({"speculative_config": {"decoding_type": "AUTO", "max_draft_len": 3}}, v),
        lambda v: yaml({"speculative_config": {"decoding_type": "AUTO"}}, v), other="0.21.0"),
    "no-kind-of-drafts": Trial("PF24", ERROR, "decoding_type Eagle3; it has AUTO, DraftTarget, Eagle,",
        lambda v: yaml({"speculative_config": {"decoding_type": "Eagle3"}}, v),
        lambda v: yaml({"speculative_config": {"decoding_type": "NGram"}}, v), other="main"),
    "off-for-good": Trial("PF25", INFO, "acceptance_rate_threshold 0.6",
        lambda v: yaml({"speculative_config": {"decoding_type": "Eagle3", "acceptance_rate_threshold": 0.6}}, v),
        lambda v: yaml({"speculative_config": {"decoding_type": "Eagle3", "max_draft_len": 3}}, v),
        release="main", other="1.1.0"),
}  # fmt: skip


def said(trial: Trial, found: Iterable[Finding]) -> list[Finding]:
    """Return what the trial's rule said with its severity about its numbers."""
    return [f for f in found if (f.rule, f.severity) == (trial.rule, trial.severity) and trial.compared in f.compared]


@pytest.mark.parametrize("name", TRIALS)
def test_fires(name: str) -> None:
    """The rule names the numbers that it compared."""
    trial = TRIALS[name]
    found = list(trial.speaks(trial.release))
    assert said(trial, found), found


@pytest.mark.parametrize("name", TRIALS)
def test_a_near_miss_is_no_finding(name: str) -> None:
    """What is legal is not spoken of by any rule that runs, not by that one alone."""
    trial = TRIALS[name]
    said_of_it = list(trial.near(trial.release))
    assert [] == [f for f in said_of_it if f.severity is not INFO or f.compared not in trial.beside]


@pytest.mark.parametrize("name", [name for name, trial in TRIALS.items() if trial.other])
def test_another_release_answers_otherwise(name: str) -> None:
    """The same thing gets another answer where the release's table says so."""
    trial = TRIALS[name]
    assert trial.other is not None
    assert [] == said(trial, trial.speaks(trial.other))


WITHOUT_RANGE: dict[str, str] = {
    **dict.fromkeys(("git-lfs-pointer", "missing-shard", "short-shard", "long-shard", "other-total",
        "total-of-unread-headers", "file-outside-index", "embedding-rows", "rank-file-empty",
        "engine-config-missing"), "a file is whole or not, whatever reads it"),
    **dict.fromkeys(("head-missing", "head-stored-and-tied"), "wrong in every release, in different ways"),
    **dict.fromkeys(("placeholder-bare", "placeholder-needed", "placeholder-optional", "tensor-of-other-type",
        "preferred-above-batch", "queue-delay", "backend-of-image", "ready-as-liveness"),
        "Triton decides it, whose every release that was read does the same"),
    **dict.fromkeys(("engine-of-other-gpu", "driver-of-consumer-gpu", "driver-of-data-centre-gpu"),
        "TensorRT and the driver decide it, in every release of the engine road"),
    "engine-of-old-builder": "every release that serves engines reads it so",
    **dict.fromkeys(("decoupled-differs", "batch-above-engine", "tokenizer-not-there", "key-nobody-reads",
        "length-in-pbtxt", "invented-key", "gpus-of-instances"),
        "reported of early releases; in which one it changed was not read"),
    **dict.fromkeys(("ranks-of-world", "gpus-per-node", "hosts-not-named", "shared-prefix", "small-shm",
        "fabric-down", "startup-too-short"), "a matter of machine and launcher, reported over the whole range"),
    "exporter": "the version of ModelOpt decides it",
    "given-twice": "which of the two wins changes and the finding says which; that they differ does not",
}  # fmt: skip
"""Rules whose table has no range of releases, and why."""


def test_a_rule_without_a_range_says_why() -> None:
    """Each trial names a release that answers otherwise, or stands among those that have none."""
    assert {name for name, trial in TRIALS.items() if trial.other is None} == WITHOUT_RANGE.keys()


@pytest.mark.parametrize("name", WITHOUT_RANGE)
def test_a_rule_without_a_range_answers_the_same_in_far_releases(name: str) -> None:
    """What no release was seen to change is said of the oldest release that the kit knows and of 1.2.1 alike."""
    trial = TRIALS[name]
    oldest = "1.0.0" if name == "given-twice" else "0.12.0"
    assert [True, True] == [bool(said(trial, trial.speaks(version))) for version in (oldest, "1.2.1")]


def test_which_of_two_wins_changes_with_the_release() -> None:
    """The YAML wins in one release and the command line in another, and the finding names the winner."""
    wins = {version: next(iter(yaml({"max_batch_size": 8}, version, command_line={"max_batch_size": 16}))).message
            for version in ("1.2.1", "main")}  # fmt: skip
    assert "in release 1.2.1 the YAML wins" in wins["1.2.1"]
    assert "in release main the command line wins" in wins["main"]


OF_READERS = {"PF51", "PF52"}
"""Settings that mean something else, and what was not read: `upgrade-check` and `lint` say so themselves."""


def test_every_rule_about_given_things_alone_is_tried() -> None:
    """Each id that no rule of plans has is made to speak above; those of whoever reads files, where files are read."""
    assert TITLES.keys() - OF_READERS <= {trial.rule for trial in TRIALS.values()}


def test_every_row_of_known_failures_has_a_source_and_a_name_that_is_asked_for() -> None:
    """A row that no rule asks for would be a fact that decides nothing."""
    asked = "\n".join(path.read_text("utf-8") for path in sources())
    assert [] == sorted({row.name for row in known_failures() if f'"{row.name}"' not in asked})


def sources() -> list[Path]:
    """Return the modules that may ask."""
    return sorted(Path(str(room.__file__)).parent.rglob("*.py"))


def test_an_engines_config_is_read_as_it_stands() -> None:
    """Ranks are the product of the mapping; lengths, plugins and rope come from where the builder writes them."""
    config = {
        "version": "0.16.0",
        "pretrained_config": {"dtype": "float16", "mapping": {"tp_size": 2, "pp_size": 2},
                              "max_position_embeddings": 8192, "rotary_scaling": {"type": "llama3"}},
        "build_config": {"max_seq_len": 4096, "plugin_config": {"gemm_plugin": "float16"},
                         "gather_context_logits": True},
    }  # fmt: skip
    facts = engine_facts(config, {"rank0.engine": 5, "rank1.engine": 6, "config.json": 7})
    assert ("0.16.0", "float16", 4, 8192) == (facts.version, facts.dtype, facts.ranks, facts.positions)
    assert ({"max_seq_len": 4096}, {"gemm_plugin": "float16"}) == (dict(facts.limits), dict(facts.plugins))
    assert ({0: 5, 1: 6}, True) == (dict(facts.files), facts.gathers_logits)
    assert {"type": "llama3"} == facts.rope_scaling


@pytest.mark.parametrize("config", [{}, {"build_config": 3}, {"pretrained_config": {"mapping": None, "dtype": 5}}])
def test_an_engines_config_of_any_shape_is_read(config: dict[str, Any]) -> None:
    """What is absent or of another type is not known, and no error."""
    assert (None, 1) == (engine_facts(config, {}).dtype, engine_facts(config, {}).ranks)
