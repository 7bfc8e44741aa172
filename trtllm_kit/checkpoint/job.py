"""A conversion of which everything was checked and nothing written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trtllm_kit.checkpoint.calibrate import Samples
from trtllm_kit.checkpoint.check import Extras, check_source
from trtllm_kit.checkpoint.config_files import CONFIG, read_small_files
from trtllm_kit.checkpoint.evaluate import WINDOW
from trtllm_kit.checkpoint.identity import Identity, identify
from trtllm_kit.checkpoint.layout import tensor_steps
from trtllm_kit.checkpoint.load import TOKENIZER, OpenCheckpoint, parse_tokenizer
from trtllm_kit.checkpoint.names import QUANT_CONFIG
from trtllm_kit.checkpoint.passed_through import check_stored, stored_steps
from trtllm_kit.checkpoint.rank_order import require_laid_out, steps_of
from trtllm_kit.checkpoint.reader import WeightFolder, open_weights
from trtllm_kit.checkpoint.step import TensorStep
from trtllm_kit.checkpoint.stored_weights import StoredWeights
from trtllm_kit.checkpoint.stream import Window, require_known
from trtllm_kit.checkpoint.text import held_text
from trtllm_kit.checkpoint.text import read as read_text
from trtllm_kit.checkpoint.worker import Tools, find_tools, interpreter
from trtllm_kit.errors import CalibrationError, FormatNotMade, PlanDrift
from trtllm_kit.plan.conversion import ConversionRecord, conversion_of
from trtllm_kit.plan.plan import Plan, digest_of
from trtllm_kit.plan.quantization import KV_MADE_HERE, MADE_HERE, not_made_here
from trtllm_kit.plan.ranks import LAYOUT
from trtllm_kit.plan.searched import searched_problem
from trtllm_kit.reference.rope import rotary_tables
from trtllm_kit.spec.load import parse_model
from trtllm_kit.spec.planned import require_converted

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTES_VERSION = 3
"""Raised when the same plan and source would give other bytes than before."""
_REPORT_TOKENS = 768


@dataclass(frozen=True)
class Texts:
    """What the forward pass runs on, cut into tokens."""

    calibration: Samples | None
    """None where nothing is measured."""
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
    """None where nothing is measured or compared, which needs no forward pass and no tokenizer."""
    identity: Identity
    """What the source was when it was checked."""
    tools: Tools | None = None
    """The environment of NVIDIA ModelOpt; None where trtkit makes the weights itself."""

    @property
    def record(self) -> ConversionRecord:
        """What the output holds about how it was made."""
        return conversion_of(self.plan)

    @property
    def key(self) -> str:
        """Digest of all that the output's bytes depend on."""
        measured = self.texts.calibration if self.texts is not None and self.record.calibration is not None else None
        text = None if measured is None else measured.text.raw
        files = [step.file for step in self.steps]
        tools = [] if self.tools is None else [self.tools.identity]
        return digest_of([_BYTES_VERSION, self.record.digest, self.identity.digest, text, files, *tools])

    def opened(self) -> OpenCheckpoint:
        """Return the source as the forward pass reads it: plain weights, plain KV cache."""
        return OpenCheckpoint(self.plan.model, StoredWeights(self.weights), "bf16")


def prepare(source: Path, plan: Plan, shard_bytes: int, *, proof: bool = False) -> Job:
    """Check the weights, the plan and the texts; raises what ``convert`` promises to raise before the first byte.

    With ``proof`` the texts of a quality report are read for every format.
    """
    small = read_small_files(source)
    weights, extras, steps = locate(source, small, plan, shard_bytes)
    texts = _texts(source, small, plan, proof=proof)
    tools = _tools(plan, extras) if plan.calibration.maker == "modelopt" else None
    return Job(source, plan, small, weights, extras, steps, texts, identify(weights, small), tools)


def locate(
    source: Path, small: Mapping[str, bytes], plan: Plan, shard_bytes: int
) -> tuple[WeightFolder, Extras, tuple[TensorStep, ...]]:
    """Open and check the weights, and decide every output tensor."""
    require_converted(plan.model)
    if plan.layout.value == LAYOUT:
        require_laid_out(plan, source)
    else:
        require_made_here(plan)
    model = parse_model(small[CONFIG], source, small.get(QUANT_CONFIG))
    weights, passed_through = open_weights(source), plan.quantization.formats.passed_through
    agree = model == plan.model
    extras = (
        check_stored(weights, model, plan.quantization) if passed_through and agree else check_source(weights, model)
    )
    if not agree:
        raise PlanDrift(
            f"{source} is not the model of the plan",
            why=f"its config.json gives another model than the {plan.model.architecture} the plan was made for",
            hint="plan again with trtkit plan",
        )
    if plan.layout.value == LAYOUT:
        return weights, extras, steps_of(plan, weights)
    decide = stored_steps if passed_through else tensor_steps
    return weights, extras, decide(model, plan.quantization, weights, extras, shard_bytes)


def _tools(plan: Plan, extras: Extras) -> Tools:
    """Find ModelOpt's environment; raises ``FormatNotMade``, ``MissingTool``, ``MissingExtra``, ``WorkerFailed``."""
    problem = searched_problem(plan.model, plan.quantization.formats, plan.layout.value)
    if problem is not None:
        raise problem
    if extras.copied:
        raise FormatNotMade(
            f"NVIDIA ModelOpt does not export all of this {plan.model.architecture} for trtkit",
            why=f"beside the text model it has {len(extras.copied)} tensors, such as {extras.copied[0]}",
            hint="take a format that trtkit makes itself, such as quantization.weights: fp8, with calibration.backend: "
            "native",
        )
    return find_tools(interpreter(plan.calibration.python))


def require_made_here(plan: Plan) -> None:
    """Raise ``FormatNotMade`` for a format that a plan may name and ``convert`` does not write."""
    elsewhere = not_made_here(plan.quantization.formats, plan.calibration.maker)
    if elsewhere:
        asked = " and ".join(f"{part} {' and '.join(chosen)}" for part, chosen in elsewhere.items())
        raise FormatNotMade(
            f"trtkit does not make {asked}",
            why=f"it writes weights in {', '.join(MADE_HERE)} and a KV cache in {', '.join(KV_MADE_HERE)}",
            hint="take a published checkpoint or export one with NVIDIA ModelOpt, or set "
            + ", ".join(f"quantization.{part}: fp8" for part in elsewhere),
        )


def _texts(source: Path, small: Mapping[str, bytes], plan: Plan, *, proof: bool) -> Texts | None:
    """Read and cut the texts when a format needs the forward pass, or a proof was asked for."""
    calibrated = is_calibrated(plan)
    if not calibrated and not proof:
        return None
    rotary_tables(plan.model)  # refuses a rope kind that cannot be run
    tokenizer = parse_tokenizer(small.get(TOKENIZER), source)
    samples = _samples(tokenizer, plan) if calibrated else None
    held = held_text().first(tokenizer, _REPORT_TOKENS, WINDOW)
    require_known([*(samples.pieces if samples is not None else ()), *held], plan.model)
    return Texts(samples, held)


def is_calibrated(plan: Plan) -> bool:
    """Whether a conversion runs the forward pass by itself, so that its manifest says what was lost."""
    formats = plan.quantization.formats
    return not formats.passed_through and (formats.calibrates or formats.kv_cache != "bf16")


def _samples(tokenizer: Tokenizer, plan: Plan) -> Samples:
    asked = plan.calibration
    text = read_text(asked.text, asked.field)
    if asked.text is not None and asked.text_sha256 != text.sha256:
        planned = "could not read it" if asked.text_sha256 is None else f"has {asked.text_sha256[:12]}"
        raise PlanDrift(
            f"calibration text {asked.text} is not the one the plan was made with",
            why=f"its SHA-256 begins with {text.sha256[:12]}, and the plan {planned}",
            hint="plan again with trtkit plan, or put the text back",
        )
    tokens = min(asked.tokens_per_sample, plan.model.max_position)
    pieces = text.samples(tokenizer, asked.samples, tokens, asked.seed)
    if not pieces:
        raise CalibrationError(
            "the calibration text is empty", why="it gives no token", hint="give calibration.text a longer file"
        )
    return Samples(text, pieces, tokens, asked.seed)
