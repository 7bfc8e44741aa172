"""The figures of three published texts, recomputed by the plan; ``docs/explanation/seed-figures.md`` shows the sums."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.specs import llama, llama_405b, maverick, profile
from trtllm_kit.plan.communication import communication_plan
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.memory import kv_bytes_per_token
from trtllm_kit.plan.parallelism import Split, kv_replication
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.settle import settle
from trtllm_kit.plan.weights import held_by_stage
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.tensors import Role, layer_tensors, parameters

GB, TB = 1e9, 1e12
BATCH = {"limits.max_batch_size": 32, "limits.max_seq_len": 4096, "load.min_concurrency": 32}
FP8 = {"quantization.weights": "fp8", "quantization.kv_cache": "fp8"}


def llama2_70b() -> ModelSpec:
    """Llama 2 70B."""
    return llama(80, 8192, 64, 8, 28672, vocab=32000, max_position=4096)


def planned(machine: str, changes: dict[str, Any]) -> Plan:
    """Plan Llama 2 70B with ranks left to the plan."""
    return settle(llama2_70b(), profile({"parallelism.tensor": "auto", **changes}), load_hardware(machine))


def whole(model: ModelSpec, formats: Formats) -> int:
    """Return the bytes of all weights on one rank."""
    return held_by_stage(model, Split(), formats, range(len(model.layers))).bytes


@pytest.mark.parametrize(("machine", "tensor"), [("h200x1", 1), ("h100x2", 2), ("h100x8", 2)])
@pytest.mark.parametrize("lengths", [(1024, 1024), (3072, 1024)])
def test_llama_2_70b_takes_one_h200_or_two_h100(machine: str, tensor: int, lengths: tuple[int, int]) -> None:
    """With 32 sequences asked, one H200 holds what needs two H100."""
    load = dict(zip(("load.input_tokens", "load.output_tokens"), lengths, strict=True))
    made = planned(machine, BATCH | FP8 | load)

    assert (tensor, True) == (made.parallelism.tensor.value, made.memory.fits)


def test_the_weights_alone_fit_one_h100_and_the_sequences_do_not() -> None:
    """64.7 GiB of FP8 weights lie on an H100, with room for 28 short or 14 full sequences of the 32 asked."""
    weights = held_by_stage(llama2_70b(), Split(), Formats("fp8", "fp8"), range(80)).bytes
    memory = load_hardware("h100x8").gpu.memory_bytes.value
    short = planned("h100x8", BATCH | FP8 | {"parallelism.tensor": 1})
    full = planned("h100x8", BATCH | FP8 | {"parallelism.tensor": 1, "load.input_tokens": 3072})

    assert 64.7 == pytest.approx(weights / 2**30, abs=0.05)
    assert weights < memory
    assert (28, 14) == (short.memory.sequences, full.memory.sequences)


def test_llama_2_70b_weights_in_bf16_are_138_gb() -> None:
    """So no KV paging brings 140 GB down to 92 GB: the weights stay."""
    assert 138 == pytest.approx(whole(llama2_70b(), Formats()) / GB, abs=0.1)


def test_one_token_reads_every_weight_once() -> None:
    """One byte for each of 69.0 billion parameters over 4.8 TB/s is 14.4 ms, and 20.6 ms over an H100's 3.35 TB/s."""
    h200, h100 = (load_hardware(name).gpu.memory_bandwidth.value for name in ("h200x1", "h100x8"))
    count = parameters(llama2_70b())

    assert 69.0 == pytest.approx(count / GB, abs=0.05)
    assert 14.4 == pytest.approx(count / h200 * 1e3, abs=0.05)
    assert 20.6 == pytest.approx(count / h100 * 1e3, abs=0.05)
    assert 3.2 / 2.3 == pytest.approx(h200 / h100, rel=0.04)


def test_405b_over_32_ranks() -> None:
    """12.68 billion parameters by even split; 13.08 billion held, since 8 KV heads lie four times on 32 ranks."""
    model = llama_405b()
    held = held_by_stage(model, Split(32), Formats("fp8", "fp8"), range(126))

    assert 12.68 == pytest.approx(parameters(model) / 32 / 1e9, abs=0.005)
    assert 13.08 == pytest.approx(held.parameters / 1e9, abs=0.005)
    assert 4 == kv_replication(model, 32)


def test_405b_prefill_of_122880_tokens() -> None:
    """252 all-reduces of 1.015 TB in all; each GPU sends 1.97 TB in a ring, 62.9 TB over the 32; 114 TB is neither."""
    traffic = communication_plan(llama_405b(), Split(32), 122_880)
    sent = traffic.sent_bytes_per_gpu

    assert 252 == traffic.all_reduces
    assert (1.015, 1.97, 62.9) == (
        pytest.approx(traffic.payload_bytes / TB, abs=5e-4),
        pytest.approx(sent / TB, abs=5e-3),
        pytest.approx(32 * sent / TB, abs=0.05),
    )


def test_405b_kv_growth_from_4k_to_122k() -> None:
    """7.7 GB in BF16 and 3.8 GB in FP8 on each of 32 GPUs, where a table says 14 GB."""
    more = 122_880 - 4_096
    bf16, fp8 = (kv_bytes_per_token(llama_405b().layers, 32, size) * more / GB for size in (2, 1))

    assert (7.7, 3.8) == (pytest.approx(bf16, abs=0.05), pytest.approx(fp8, abs=0.05))


def test_nvl32_rates() -> None:
    """63.3 PFLOPS of dense FP8, about 127 with 2:4 sparsity, 28.8 TB/s of NVLink counted in both directions."""
    machine = load_hardware("gh200-nvl32")
    gpu = machine.gpu
    assert gpu.nvlink_bytes_per_second is not None

    assert 63.3 == pytest.approx(machine.gpus * gpu.dense_flops["fp8"].value / 1e15, abs=0.05)
    assert 126.6 == pytest.approx(machine.gpus * gpu.sparse_flops["fp8"].value / 1e15, abs=0.1)
    assert 28.8e12 == machine.gpus * 2 * gpu.nvlink_bytes_per_second.value


def test_maverick_takes_400_gb_in_fp8_and_800_in_bf16() -> None:
    """400.7 billion parameters: 801 GB in BF16, 403 GB in FP8, 228 GB in NVFP4, ends and routers in 16 bit."""
    patterns = ("*lm_head", "*router")
    sizes = [whole(maverick(), Formats(chosen, "bf16", patterns)) / GB for chosen in ("bf16", "fp8", "nvfp4")]

    assert [801, 403, 228] == [round(size) for size in sizes]


def test_query_key_and_value_are_a_tenth_of_a_layer() -> None:
    """Halving their bytes alone speeds up reading all weights by 1.05, not by 1.8."""
    facts = list(layer_tensors(llama2_70b(), 0))
    share = sum(f.elements for f in facts if f.role in (Role.QUERY, Role.KEY, Role.VALUE)) / sum(
        f.elements for f in facts
    )

    assert 0.098 == pytest.approx(share, abs=5e-4)
    assert 1.05 == pytest.approx(1 / (1 - share / 2), abs=5e-3)
