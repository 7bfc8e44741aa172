"""``trtkit convert --task diffusion``: the INT8 UNet of a diffusion model."""

from __future__ import annotations

import re
from pathlib import Path

from trtllm_kit.cli.made import show_made
from trtllm_kit.cli.session import Session
from trtllm_kit.errors import UsageError

_GATE = re.compile(r"\s*ssim\s*=\s*([01](?:\.[0-9]+)?)\s*")


def run_unet(session: Session, model: str, out: Path, *, calib_steps: int | None, gate: str | None) -> int:
    """Convert, show the likeness and what was made."""
    from trtllm_kit.artifact import append_log
    from trtllm_kit.diffusion.convert import Recipe, convert_unet

    least = least_ssim(gate)
    recipe = Recipe() if calib_steps is None else Recipe(calib_steps=calib_steps)
    made = convert_unet(Path(model), out, recipe, session.progress(), least=least)
    session.log(f"SSIM {made.ssim:.4f} with the source" + (f" (at least {least:g})" if gate else ""))
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
