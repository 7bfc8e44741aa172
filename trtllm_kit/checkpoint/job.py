"""A conversion of which everything was checked and nothing written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trtllm_kit.checkpoint.calibrate import read_text, sha256_of
from trtllm_kit.checkpoint.check import Extras, check_source
from trtllm_kit.checkpoint.config_files import CONFIG, read_small_files
from trtllm_kit.checkpoint.evaluate import WINDOW, held_text
from trtllm_kit.checkpoint.identity import Identity, identify
from trtllm_kit.checkpoint.layout import TensorStep, tensor_steps
from trtllm_kit.checkpoint.load import TOKENIZER, OpenCheckpoint, StoredWeights, parse_tokenizer
from trtllm_kit.checkpoint.reader import WeightFolder, open_weights
from trtllm_kit.checkpoint.stream import Window, require_known, windows
from trtllm_kit.errors import CalibrationError, FormatNotMade, PlanDrift
from trtllm_kit.plan.conversion import ConversionRecord, conversion_of
from trtllm_kit.plan.plan import Plan, digest_of
from trtllm_kit.plan.quantization import MADE_HERE
from trtllm_kit.reference.rope import rotary_tables
from trtllm_kit.spec.load import parse_model

_BYTES_VERSION = 1
"""Raised when the same plan and source would give other bytes than before."""
_REPORT_TOKENS = 768


@dataclass(frozen=True)
class Texts:
    """What the forward pass runs on, cut into tokens."""

    text: str
    calibration: list[Window]
    held: list[Window]
    """Never seen by calibration; the quality report reads it."""


@dataclass(frozen=True)
class Job:
    """What a conversion reads and makes."""

    source: Path
    plan: Plan
    small: Mapping[str, bytes]
    """Its configuration and the files to copy, as they were at the start."""
    weights: WeightFolder
    extras: Extras
    steps: tuple[TensorStep, ...]
    texts: Texts | None
    """None when every format is 16 bit, which needs no forward pass and no tokenizer."""
    identity: Identity
    """What the source was when it was checked."""

    @property
    def record(self) -> ConversionRecord:
        """What the output holds about how it was made."""
        return conversion_of(self.plan)

    @property
    def key(self) -> str:
        """Digest of all that the output's bytes depend on."""
        text = None if self.texts is None or self.record.calibration is None else self.texts.text
        files = [step.file for step in self.steps]
        return digest_of([_BYTES_VERSION, self.record.digest, self.identity.digest, text, files])

    def opened(self) -> OpenCheckpoint:
        """Return the source as the forward pass reads it: plain weights, plain KV cache."""
        return OpenCheckpoint(self.plan.model, StoredWeights(self.weights), "bf16")


def prepare(source: Path, plan: Plan, shard_bytes: int) -> Job:
    """Check the weights, the plan and the texts; raises what ``convert`` promises to raise before the first byte."""
    small = read_small_files(source)
    weights, extras, steps = locate(source, small, plan, shard_bytes)
    texts = _texts(source, small, plan)
    return Job(source, plan, small, weights, extras, steps, texts, identify(weights, small))


def locate(
    source: Path, small: Mapping[str, bytes], plan: Plan, shard_bytes: int
) -> tuple[WeightFolder, Extras, tuple[TensorStep, ...]]:
    """Open and check the weights, and decide every output tensor."""
    require_made_here(plan)
    model = parse_model(small[CONFIG], source)
    weights = open_weights(source)
    extras = check_source(weights, model)
    if model != plan.model:
        raise PlanDrift(
            f"{source} is not the model of the plan",
            why=f"its config.json gives another model than the {plan.model.architecture} the plan was made for",
            hint="plan again with trtkit plan",
        )
    return weights, extras, tensor_steps(model, plan.quantization, weights, extras, shard_bytes)


def require_made_here(plan: Plan) -> None:
    """Raise ``FormatNotMade`` for a format that a plan may name and ``convert`` does not write."""
    formats = plan.quantization
    asked = {"weights": formats.weights.value, "kv_cache": formats.kv_cache.value}
    elsewhere = {part: chosen for part, chosen in asked.items() if chosen not in MADE_HERE}
    if elsewhere:
        raise FormatNotMade(
            f"trtkit does not make {' and '.join(f'{chosen} {part}' for part, chosen in elsewhere.items())}",
            why=f"it writes {' and '.join(MADE_HERE)}; a format of 4 bits is calibrated on the GPU by NVIDIA ModelOpt",
            hint="take a published NVFP4 checkpoint or export one with ModelOpt, or set "
            + ", ".join(f"quantization.{part}: fp8" for part in elsewhere),
        )


def _texts(source: Path, small: Mapping[str, bytes], plan: Plan) -> Texts | None:
    """Read and cut the texts when a format needs the forward pass."""
    formats, asked = plan.quantization, plan.calibration
    if formats.weights.value != "fp8" and formats.kv_cache.value != "fp8":
        return None
    rotary_tables(plan.model)  # refuses a rope kind that cannot be run
    tokenizer = parse_tokenizer(small.get(TOKENIZER), source)
    text = read_text(asked.text)
    found = sha256_of(text)
    if asked.text is not None and asked.text_sha256 != found:
        planned = "could not read it" if asked.text_sha256 is None else f"has {asked.text_sha256[:12]}"
        raise PlanDrift(
            f"calibration text {asked.text} is not the one the plan was made with",
            why=f"its SHA-256 begins with {found[:12]}, and the plan {planned}",
            hint="plan again with trtkit plan, or put the text back",
        )
    pieces = windows(tokenizer, text, asked.samples, min(asked.tokens_per_sample, plan.model.max_position))
    if not pieces:
        raise CalibrationError(
            "the calibration text is empty", why="it gives no token", hint="give calibration.text a longer file"
        )
    held = windows(tokenizer, held_text(), _REPORT_TOKENS // WINDOW, WINDOW)
    require_known([*pieces, *held], plan.model)
    return Texts(text, pieces, held)
