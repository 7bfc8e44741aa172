"""What a machine is held against besides itself: a profile's hardware, release, ports and folders. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from trtllm_kit.light import dataclass
from trtllm_kit.spec.hardware import Gpu, Hardware


@dataclass(frozen=True)
class Wanted:
    """Nothing but defaults where no profile is given."""

    profile: str | None = None
    hardware: Hardware | None = None
    gpus: int | None = None
    """GPUs of this node that the profile's ranks take; None for all of them."""
    release: str | None = None
    """The TensorRT-LLM release that will serve."""
    ports: Mapping[int, str] = field(default_factory=dict)
    """Ports that the server listens on, and what for."""
    catalogue: Sequence[Gpu] = ()
    """Cards whose bandwidth and peaks are known: no driver tells them."""

    @property
    def on_cpu(self) -> bool:
        """Whether no GPU is needed."""
        return self.hardware is not None and self.hardware.is_rehearsal
