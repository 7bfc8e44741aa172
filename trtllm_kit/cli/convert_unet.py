"""``trtkit convert --task diffusion``: the INT8 UNet of a diffusion model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from trtllm_kit.cli.made import show_made
from trtllm_kit.cli.session import Session
from trtllm_kit.errors import UsageError
from trtllm_kit.staging import LOCK_SECONDS

_GATE = re.compile(r"\s*ssim\s*=\s*([01](?:\.[0-9]+)?)\s*")


@dataclass(frozen=True)
class Once:
    """What the command line asks for."""

    calib_steps: int | None = None
    gate: str | None = None
    lock_seconds: float = LOCK_SECONDS


def run_unet(session: Session, model: str, out: Path, once: Once) -> int:
    """Convert, show the likeness and what was made."""
    from trtllm_kit.artifact import append_log
    from trtllm_kit.diffusion.convert import Recipe, Terms, convert_unet

    terms = Terms(least_ssim(once.gate), once.lock_seconds)
    recipe = Recipe() if once.calib_steps is None else Recipe(calib_steps=once.calib_steps)
    made = convert_unet(Path(model), out, recipe, session.progress(), terms)
    session.log(f"SSIM {made.ssim:.4f} with the source" + (f" (at least {terms.least:g})" if once.gate else ""))
    if not made.up_to_date:
        append_log(out, {"verb": "convert", "digest": made.manifest.digest, "run": session.outlet.run})
    show_made(session, out, made.manifest, up_to_date=made.up_to_date)
    return 0


def least_ssim(gate: str | None) -> float:
    """Return the limit of ``--gate ssim=0.98``, 0 without one; raises ``UsageError``."""
    if gate is None:
        return 0.0
    found = _GATE.fullmatch(gate)
    if found is None or float(found[1]) > 1:
        raise UsageError(
            f"--gate {gate} is not understood",
            why="--task diffusion has one limit, ssim, from 0 to 1",
            hint="--gate ssim=0.98",
        )
    return float(found[1])
