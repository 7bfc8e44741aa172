"""From the engine's responses to those of the client: text in place of tokens, everything else handed on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from asked import Asked
from engine import Engine
from text import Detokenizer, StopTexts

_CONTEXT = 8
"""Tokens of a prompt before the answer, by which its first space is placed."""


class Answers:
    """The answers to one request: one a prompt, or more where several were asked for."""

    def __init__(self, engine: Engine, asked: Asked, *, gathers: bool) -> None:
        """``gathers`` gives in each piece of a stream all text so far."""
        self._engine = engine
        self._asked = asked
        self._gathers = gathers
        self._streams: dict[tuple[int, int], _Stream] = {}

    @property
    def over(self) -> bool:
        """Whether every answer met a stop word."""
        streams = self._streams.values()
        return len(streams) >= self._asked.rows and all(one.stops.hit is not None for one in streams)

    def whole(self, response: Any) -> Any:
        """Return the response with the whole text of every beam; after a stop word nothing more is in it."""
        row = self._place(response)[0]
        return self._response(response, [self._whole_text(ids, row) for ids in self._engine.answer_of(response)])

    def pieces(self, response: Any) -> Iterator[Any]:
        """Yield the response with the text that its tokens make certain, where there is any."""
        if not self._engine.has_tokens(response):
            return
        place = self._place(response)
        stream = self._streams.setdefault(place, _Stream(self._engine, self._asked))
        text = stream.push(self._engine.answer_of(response)[0])
        if text:
            yield self._response(response, [stream.shown if self._gathers else text])

    def rest(self) -> Iterator[Any]:
        """Yield what was held back, once every answer has ended."""
        for (row, sequence), stream in self._streams.items():
            text = stream.flush()
            if text:
                indices = {"batch_index": row, "sequence_index": sequence}
                named = {name: value for name, value in indices.items() if name in self._engine.outputs}
                tensors = [pb_utils.Tensor(name, np.array([[one]], dtype=np.int32)) for name, one in named.items()]
                yield _with_text(tensors, [stream.shown if self._gathers else text])

    def _whole_text(self, ids: list[int], row: int) -> str:
        stops = StopTexts(self._asked.stop_words)
        if self._asked.exclude_input:
            return stops.push(self._engine.decode(ids)) + stops.flush()
        before = self._engine.prompt_ids(row)[-_CONTEXT:]
        answer = self._engine.decode(before + ids)[len(self._engine.decode(before)) :]
        return self._asked.prompts[row] + stops.push(answer) + stops.flush()

    def _place(self, response: Any) -> tuple[int, int]:
        return self._index(response, "batch_index"), self._index(response, "sequence_index")

    def _index(self, response: Any, name: str) -> int:
        tensor = pb_utils.get_output_tensor_by_name(response, name) if name in self._engine.outputs else None
        return 0 if tensor is None else int(tensor.as_numpy().reshape(-1)[0])

    def _response(self, response: Any, texts: list[str]) -> Any:
        found = (pb_utils.get_output_tensor_by_name(response, name) for name in self._engine.outputs)
        return _with_text([tensor for tensor in found if tensor is not None], texts)


class _Stream:
    """One answer as it comes."""

    def __init__(self, engine: Engine, asked: Asked) -> None:
        self._engine = engine
        self._words = Detokenizer(self._decode)
        self._known: dict[tuple[int, ...], str] = {}
        self.stops = StopTexts(asked.stop_words)
        self.shown = ""
        """All text so far."""

    def push(self, ids: list[int]) -> str:
        text = "".join([self.stops.push(self._words.push(one)) for one in ids if self.stops.hit is None])
        self.shown += text
        return text

    def flush(self) -> str:
        text = self.stops.push(self._words.flush()) + self.stops.flush() if self.stops.hit is None else ""
        self.shown += text
        return text

    def _decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens; that of the last alone, which the next piece is joined to, is asked for too."""
        key = tuple(ids)
        if key and key not in self._known:
            before = {known: text for known, text in self._known.items() if key[: len(known)] == known}
            texts = self._engine.decode_all([list(key), [key[-1]]])
            self._known = before | dict(zip((key, key[-1:]), texts, strict=True))
        return self._known.get(key, "")


def _with_text(tensors: list[Any], texts: list[str]) -> Any:
    text = np.array([[one.encode("utf-8") for one in texts]], dtype=np.object_)
    return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("text_output", text), *tensors])
