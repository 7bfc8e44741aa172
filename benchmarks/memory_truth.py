"""Predicted against measured KV capacity: ``make bench``, or ``memory_truth.py [CONTRACT]``.

Published measurements say how many sequences real servers admitted. Printed are the mean and the worst error of the
memory model by GPU system: with the coefficients it has, and with the runtime's memory fitted on one system alone,
which shows what the coefficients are worth on systems that took no part in their choice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.specs import GIB, hardware, llama, llama_8b  # noqa: E402  # needs the path above
from trtllm_kit.plan.formats import Formats  # noqa: E402
from trtllm_kit.plan.memory import Sizing, memory_plan  # noqa: E402
from trtllm_kit.plan.parallelism import Split  # noqa: E402
from trtllm_kit.plan.plan import MemoryPlan  # noqa: E402
from trtllm_kit.spec.model import Attention, Dense, Layer, ModelSpec  # noqa: E402
from trtllm_kit.spec.profile import KvCache, Limits, Load  # noqa: E402
from trtllm_kit.upstream.memory import buffer_bytes, kv_reserved_share  # noqa: E402

CONTRACT = ROOT.parent / "shared" / "contract" / "llmapi-contract.yaml"
FITTED_ON = "h100_sxm"
ROOM = 1000
"""Tokens that the measured servers allowed beyond prompt and answer."""


@dataclass(frozen=True)
class Measured:
    """One server: what it ran, and the most sequences it admitted at once."""

    system: str
    capacity: int
    model: str
    tensor: int
    prompt: int
    answer: int
    fraction: float
    sequences: int

    @cached_property
    def plan(self) -> MemoryPlan:
        """What the memory model says of it."""
        quantised = self.model.endswith("FP8")
        return memory_plan(
            Sizing(
                model=qwen3_32b() if quantised else llama_8b(),
                hardware=hardware(8, self.capacity / GIB),
                split=Split(self.tensor),
                formats=Formats("fp8_block" if quantised else "bf16"),
                runtime="tensorrt_llm",
                limits=Limits(max_num_tokens=2 * self.prompt),
                kv_cache=KvCache(free_gpu_memory_fraction=self.fraction),
                load=Load(input_tokens=self.prompt, output_tokens=self.answer + ROOM),
            )
        )

    @property
    def free_bytes(self) -> int:
        """What the terms leave, the runtime's own not among them."""
        others = (term.bytes for term in self.plan.terms if term.name != "runtime")
        return self.plan.capacity_bytes - sum(others)

    @property
    def sequences_per_byte(self) -> float:
        """Sequences for each byte that is free."""
        return self.fraction * (1 - kv_reserved_share()) / self.plan.kv_bytes_per_sequence

    def with_runtime(self, size: float) -> int:
        """Return the sequences when the runtime takes that many bytes."""
        return int((self.free_bytes - size) * self.sequences_per_byte)


def qwen3_32b() -> ModelSpec:
    """Qwen3 32B."""
    attention = Attention(kind="full", heads=64, kv_heads=8, head_dim=128, qk_norm="per_head")
    layers = (Layer(mixer=attention, feed_forward=Dense(intermediate=25600)),) * 64
    return llama(64, 5120, 64, 8, 25600, 151936, family="qwen3").model_copy(update={"layers": layers})


def measured_rows(contract: Path) -> list[Measured]:
    """Read the measured capacities of a file."""
    document = yaml.safe_load(contract.read_text("utf-8"))
    measured, systems = document["memory"]["kv_capacity_measured"], document["gpu_specs_aiconfigurator"]
    rows = (dict(zip(measured["columns"], row, strict=True)) for row in measured["rows"])
    return [_measured(row, systems[row["system"]]["mem_capacity_bytes"]) for row in rows]


def _measured(row: Mapping[str, Any], capacity: int) -> Measured:
    return Measured(
        system=row["system"],
        capacity=capacity,
        model=row["model"],
        tensor=row["tp"],
        prompt=row["isl"],
        answer=row["osl"],
        fraction=row["fraction"],
        sequences=row["max_sequences"],
    )


@dataclass(frozen=True)
class Errors:
    """How far predictions are from what was measured, as shares of it."""

    rows: int
    mean: float
    worst: float
    worst_beyond_one: float
    """The worst of those that are off by more than one sequence; 0 without any."""


def errors_of(rows: Iterable[Measured], predict: Callable[[Measured], int]) -> Errors:
    """Compare predictions with measurements."""
    off = [(abs(predict(row) - row.sequences), row.sequences) for row in rows]
    shares = [apart / real for apart, real in off]
    beyond = [apart / real for apart, real in off if apart > 1]
    return Errors(len(off), sum(shares) / len(off), max(shares), max(beyond, default=0.0))


def fitted_runtime(rows: Iterable[Measured]) -> float:
    """Return the bytes of the runtime with the least squared relative error on some rows.

    A measured number is rounded down, so half a sequence more is what it stands for. The error of a row is linear in
    the bytes, so the least has a closed form.
    """
    above = below = 0.0
    for row in rows:
        real = row.sequences + 0.5
        slope = row.sequences_per_byte / real
        above += slope * (row.free_bytes * slope - 1)
        below += slope * slope
    return above / below


def by_system(rows: Iterable[Measured]) -> dict[str, list[Measured]]:
    """Sort rows by GPU system, the one that is fitted on first."""
    systems: dict[str, list[Measured]] = {FITTED_ON: []}
    for row in rows:
        systems.setdefault(row.system, []).append(row)
    return systems


def main(arguments: list[str]) -> int:
    """Print the errors by system; 0 too when there is nothing to compare with, which is said."""
    contract = Path(arguments[0]) if arguments else CONTRACT
    if not contract.is_file():
        print(f"memory against measured servers: SKIPPED, no file of measurements at {contract}")
        return 0
    systems = by_system(measured_rows(contract))
    fitted = fitted_runtime(systems[FITTED_ON])
    shipped = buffer_bytes("runtime", 1)
    print(f"KV capacity, predicted against measured; runtime {shipped / GIB:.2f} GiB as in upstream/memory.yaml")
    _report(systems, lambda row: row.plan.sequences)
    print(f"the same, runtime {fitted / GIB:.2f} GiB as fitted on {FITTED_ON} alone")
    _report(systems, lambda row: row.with_runtime(fitted))
    return 0


def _report(systems: Mapping[str, list[Measured]], predict: Callable[[Measured], int]) -> None:
    for name, rows in systems.items():
        found = errors_of(rows, predict)
        print(
            f"  {name:10} {found.rows:3} servers   mean {found.mean:6.2%}   worst {found.worst:6.2%}"
            f"   worst of more than one sequence {found.worst_beyond_one:6.2%}"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
