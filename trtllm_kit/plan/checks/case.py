"""What a check looks at, and what a check is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

from trtllm_kit.findings import Finding
from trtllm_kit.light import dataclass
from trtllm_kit.plan.memory import Sizing
from trtllm_kit.plan.parallelism import Obstacle, Split, obstacles
from trtllm_kit.plan.plan import Plan
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.spec.profile import DeployProfile


@dataclass(frozen=True)
class Case:
    """A plan without findings, and what it was made from."""

    plan: Plan
    profile: DeployProfile
    hardware: Hardware
    sizing: Sizing
    loaded: LoadedProfile
    """The profile with what was read beside it: the draft model, hashes of tokenizers and texts."""

    @property
    def split(self) -> Split:
        """The ranks the plan settled on."""
        return self.sizing.split

    @cached_property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """What stands in the way of that split."""
        return obstacles(self.plan.model, self.split, self.hardware)

    def with_formats(self, change: str) -> str:
        """Return a change of number formats as a way out, which takes other weights where these are passed through."""
        passed = self.plan.quantization.formats.passed_through
        return f"the model's 16-bit weights, with {change}" if passed else change


@dataclass(frozen=True)
class Rule:
    """One check: a stable id, what it is about, and a function that yields what it finds."""

    id: str
    title: str
    run: Callable[[Case], Iterator[Finding]]
    keys: tuple[str, ...] = ()
    """Keys of a profile, or whole sections, that it looks at."""
