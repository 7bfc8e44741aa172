"""What a client asks of the BLS model, read and checked before anything is asked of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine import Setup
from given import Refused, array_of, number_of, texts_of

_PICTURES = ("image_input", "image_bytes_input", "image_url_input", "video_bytes_input")


@dataclass(frozen=True)
class Asked:
    """One request."""

    prompts: tuple[str, ...]
    max_tokens: int
    stream: bool
    stop_words: tuple[str, ...]
    exclude_input: bool
    """Whether a whole answer leaves out the prompt; a stream never repeats it."""
    drafts: int
    """Tokens to draft a step; 0 asks the engine alone."""
    draft_logits: bool
    beams: int

    @property
    def rows(self) -> int:
        """Prompts."""
        return len(self.prompts)


def read_asked(request: Any, setup: Setup) -> Asked:
    """Read and check a request; raises ``Refused``."""
    prompts = texts_of(request, "text_input")
    if not prompts or any(len(row) != 1 or not row[0] for row in prompts):
        raise Refused("text_input is required: one prompt a row, none of them empty")
    lengths = array_of(request, "max_tokens")
    if lengths is None or lengths.size == 0 or int(lengths.min()) < 1:
        raise Refused("max_tokens is required, and must be above 0")
    refused = [name for name in _PICTURES if name in setup.inputs and array_of(request, name) is not None]
    if refused:
        raise Refused(f"{', '.join(refused)}: this repository serves text alone")
    stops = texts_of(request, "stop_words") or []
    asked = Asked(
        prompts=tuple(row[0] for row in prompts),
        max_tokens=int(lengths.max()),
        stream=bool(number_of(request, "stream", default=False)),
        stop_words=tuple(dict.fromkeys(word for row in stops for word in row if word)),
        exclude_input=bool(number_of(request, "exclude_input_in_output", default=False)),
        drafts=int(number_of(request, "num_draft_tokens", default=0)),
        draft_logits=bool(number_of(request, "use_draft_logits", default=False)),
        beams=int(number_of(request, "beam_width", default=1)),
    )
    _check_drafts(request, asked, setup)
    if asked.stream and asked.beams > 1:
        raise Refused(f"stream with beam_width {asked.beams}: the beams of a stream are not joined; ask for one")
    return asked


def _check_drafts(request: Any, asked: Asked, setup: Setup) -> None:
    if asked.drafts < 0:
        raise Refused(f"num_draft_tokens must be 0 or more, got {asked.drafts}")
    if not asked.drafts:
        return
    if setup.draft is None:
        raise Refused("num_draft_tokens needs a draft model: parameter tensorrt_llm_draft_model_name names none")
    forbidden = {
        "stream": asked.stream,
        "more than one prompt": asked.rows > 1,
        "beam_width above 1": asked.beams > 1,
        "return_context_logits": bool(number_of(request, "return_context_logits", default=False)),
    }
    found = [name for name, present in forbidden.items() if present]
    if found:
        raise Refused(f"num_draft_tokens {asked.drafts} does not go with {' and '.join(found)}")
