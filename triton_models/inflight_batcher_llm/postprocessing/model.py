"""Tokens to text: the last step of the ensemble, and what the BLS model asks for every piece of an answer.

Through the ensemble the pieces of a stream come one by one, and nothing says which stream they belong to but the id
of the request. With an id the pieces before are remembered, so characters stay whole and spaces stay where they are.
Without one a single token is decoded as if text stood before it, which keeps its space; one that is a part of a
character is refused, for it would be shown broken.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from given import Refused, array_of, error_of, flag_of, outputs_of, parameters_of, tensor_of
from text import Detokenizer
from tokenizer import BadTokenizer, Tokenizer

_MOST_STREAMS = 4096
_FORGET_SECONDS = 60.0
"""A stream of which nothing came for so long has ended: no response says that it is the last."""
_BROKEN = "\N{REPLACEMENT CHARACTER}"
_NEEDS_ID = (
    "a token of this answer is a part of a character, and without an id nothing says which others belong to it: send "
    'an "id" of its own with the request, or stream through tensorrt_llm_bls'
)
_BEFORE = "."
"""Stands before a piece whose beginning is not known."""


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer; raises with a reason when there is none."""
        parameters = parameters_of(args)
        self._types = outputs_of(args)
        self._skip_special = flag_of(parameters, "skip_special_tokens", default=True)
        if "tokenizer_dir" not in parameters:
            raise pb_utils.TritonModelException("config.pbtxt: parameter tokenizer_dir is missing")
        try:
            self._tokenizer = Tokenizer(Path(parameters["tokenizer_dir"]))
        except BadTokenizer as error:
            raise pb_utils.TritonModelException(str(error)) from None
        self._before = self._tokenizer.encode(_BEFORE, special=False)
        self._streams: OrderedDict[tuple[str, int, int], tuple[float, Detokenizer]] = OrderedDict()

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer every request; one that cannot be read gets an error of its own."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            texts = self._texts(request)
        except Exception as error:  # noqa: BLE001  # the others of the batch are answered all the same
            return error_of(error)
        tensor = tensor_of("OUTPUT", [[text.encode("utf-8") for text in row] for row in texts], self._types["OUTPUT"])
        return pb_utils.InferenceResponse(output_tensors=[tensor])

    def _texts(self, request: Any) -> list[list[str]]:
        tokens, lengths = array_of(request, "TOKENS_BATCH"), array_of(request, "SEQUENCE_LENGTH")
        if tokens is None or lengths is None or tokens.ndim != 3 or lengths.shape != tokens.shape[:2]:
            raise Refused("TOKENS_BATCH is (rows, beams, tokens), and SEQUENCE_LENGTH (rows, beams)")
        identity, one_token = request.request_id(), tokens.shape[2] == 1
        return [
            [
                self._text(ids[: int(length)].tolist(), (identity, row, beam), alone=one_token)
                for beam, (ids, length) in enumerate(zip(beams, beam_lengths, strict=True))
            ]
            for row, (beams, beam_lengths) in enumerate(zip(tokens, lengths, strict=True))
        ]

    def _text(self, ids: list[int], key: tuple[str, int, int], *, alone: bool) -> str:
        if key[0]:
            stream = self._stream(key)
            return "".join([stream.push(one) for one in ids])
        if not alone:
            return self._decode(ids)
        text = self._decode([*self._before, *ids])[len(self._decode(self._before)) :]
        if _BROKEN in text:
            raise Refused(_NEEDS_ID)
        return text

    def _stream(self, key: tuple[str, int, int]) -> Detokenizer:
        """Return what is known of a stream; those of which nothing came for long are forgotten."""
        now = time.monotonic()
        while self._streams and (
            len(self._streams) >= _MOST_STREAMS or next(iter(self._streams.values()))[0] < now - _FORGET_SECONDS
        ):
            self._streams.popitem(last=False)
        _, stream = self._streams.pop(key, (now, None))
        stream = stream or Detokenizer(self._decode)
        self._streams[key] = (now, stream)
        return stream

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special=self._skip_special)
