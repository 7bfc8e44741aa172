"""Where the tokens of a rehearsal come from, and one request on its way through the engine."""

from __future__ import annotations

import json
import math
import re
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import triton_python_backend_utils as pb_utils

from ask import CANCELLED, Refused
from engine_setup import BadEngine, EngineSetup
from engine_tensors import Replies, Row
from faults import Faults
from runtime import Finish

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_PLAIN = re.compile(r"[ ▁Ġ]?[A-Za-z]+")
"""Pieces of a vocabulary that are words or parts of words: a simulated answer is made of them."""


class Answer(Protocol):
    """Makes the tokens of one answer."""

    def next(self) -> tuple[int, float]:
        """Return the next token and the logarithm of its probability."""


class Source(Protocol):
    """Makes answers."""

    computes: bool
    """Whether tokens take real time."""

    def check(self, row: Row) -> None:
        """Raise ``Refused`` for what it cannot do."""

    def answer(self, row: Row) -> Answer:
        """Begin an answer."""

    def log_probabilities(self, row: Row, beam: Any) -> Any:
        """Return those of the tokens that may follow a beam, (vocabulary,); its state has moved on."""


def sources_of(plan: Any, setup: EngineSetup) -> Source:
    """Return what makes the tokens of a plan's runtime; raises ``BadEngine``."""
    if plan.runtime.runtime.value != "reference":
        return SimulatedTokens(_plain_ids(setup))
    from trtllm_kit.checkpoint.load import load_reference
    from trtllm_kit.errors import KitError

    folder = _checkpoint(setup)
    try:
        return ReferenceTokens(load_reference(folder, setup.limits.max_seq_len))
    except KitError as error:
        raise BadEngine(f"the reference forward pass cannot load {folder}: {error}") from None


def _checkpoint(setup: EngineSetup) -> Path:
    """Return the checkpoint of an engine; that of a draft's, which lies inside the model's engine, is linked there."""
    own = setup.folder / "checkpoint"
    return own if own.is_dir() else setup.folder.parent / "draft_checkpoint"


def _plain_ids(setup: EngineSetup) -> tuple[int, ...]:
    """Return the ids of plain pieces of text, ascending; all ids where the tokenizer is not one that can be read."""
    path = _checkpoint(setup) / "tokenizer.json"
    try:
        vocabulary = json.loads(path.read_text("utf-8"))["model"]["vocab"]
        listed = not isinstance(vocabulary, dict)
        pieces = {one[0]: i for i, one in enumerate(vocabulary)} if listed else vocabulary
        found = sorted(i for piece, i in pieces.items() if _PLAIN.fullmatch(piece) and i < setup.vocabulary)
    except (OSError, ValueError, KeyError, TypeError):
        found = []
    return tuple(found) or tuple(range(setup.vocabulary))


class SimulatedTokens:
    """No model: which token comes follows from the prompt and the position alone."""

    computes = False

    def __init__(self, ids: tuple[int, ...]) -> None:
        """Take the ids to choose from."""
        self._ids = ids

    def check(self, row: Row) -> None:
        """Take everything."""

    def answer(self, row: Row) -> Answer:
        """Begin an answer."""
        return _Simulated(self, row)

    def log_probabilities(self, row: Row, beam: Any) -> Any:
        """Return nearly nothing but for the token of the place, and a second one that is half as likely."""
        found = np.full(max(self._ids) + 1, -30.0)
        place = len(beam.ids)
        found[self.token(row.prompt, place + 1)] = math.log(1 / 3)
        found[self.token(row.prompt, place)] = math.log(2 / 3)
        return found

    def token(self, prompt: tuple[int, ...], position: int) -> int:
        """Return the token at a position (from 0) of the answer to a prompt."""
        seed = zlib.crc32(np.array(prompt, dtype=np.int32).tobytes())
        return self._ids[(seed + 7 * position) % len(self._ids)]


class _Simulated:
    def __init__(self, source: SimulatedTokens, row: Row) -> None:
        self._source, self._row, self._position = source, row, -1

    def next(self) -> tuple[int, float]:
        self._position += 1
        return self._source.token(self._row.prompt, self._position), 0.0


class ReferenceTokens:
    """The forward pass over the checkpoint that the engine was built from."""

    computes = True

    def __init__(self, model: Any) -> None:
        """Take the loaded model."""
        self._model = model

    def check(self, row: Row) -> None:
        """Refuse nothing: rows are checked against the vocabulary before."""

    def answer(self, row: Row) -> Answer:
        """Begin an answer."""
        return _Computed(self._model, row)

    def log_probabilities(self, row: Row, beam: Any) -> Any:
        """Run the prompt, or the beam's last token."""
        given = beam.ids[-1:] or list(row.prompt)
        beam.state = beam.state or self._model.new_cache()
        logits = self._model.forward(given, beam.state, last_only=True)[-1]
        return _log_softmax(_allowed(row, beam.ids, logits))


class _Computed:
    def __init__(self, model: Any, row: Row) -> None:
        from trtllm_kit.reference.sampling import Sampler

        self._model, self._row = model, row
        self._cache: Any = None
        self._given = list(row.prompt)
        self._written: list[int] = []
        greedy = row.temperature == 0.0 or row.top_k == 1
        self._sampler = Sampler(
            temperature=0.0 if greedy else row.temperature,
            top_k=row.top_k,
            top_p=row.top_p or 1.0,
            seed=row.seed,
            frequency_penalty=row.frequency_penalty,
            presence_penalty=row.presence_penalty,
        )

    def next(self) -> tuple[int, float]:
        if self._cache is None:
            self._cache = self._model.new_cache()
        logits = self._model.forward(self._given, self._cache, last_only=True)[-1]
        token = self._sampler.pick(_allowed(self._row, self._written, logits))
        self._given = [token]
        self._written.append(token)
        return token, float(_log_softmax(logits)[token])


def _allowed(row: Row, written: list[int], logits: Any) -> Any:
    """Return the logits with what the request adds to them, and without the tokens it forbids after those written."""
    banned = [one[-1] for one in row.bans if tuple(written[len(written) - len(one) + 1 :]) == one[:-1]]
    if len(written) < row.min_tokens and row.end >= 0:
        banned.append(row.end)
    if row.bias is None and not banned:
        return logits
    changed = logits.copy()
    if row.bias is not None:
        changed[: len(row.bias)] += row.bias[: len(changed)]
    changed[banned] = -math.inf
    return changed


def _log_softmax(logits: Any) -> Any:
    """Return the natural logarithms of the softmax probabilities, (vocabulary,)."""
    shifted = logits - np.max(logits)
    return shifted - np.log(np.sum(np.exp(shifted)))


class Turn:
    """One row of a request, from its beginning to its last response."""

    def __init__(
        self,
        row: Row,
        source: Source,
        replies: Replies,
        sender: Any,
        left: list[int],
        identity: str,
        forget: Callable[[Turn], None],
        faults: Faults,
    ) -> None:
        """``left`` counts the rows of the request that have not ended: the last one ends the request."""
        self.row = row
        self.identity = identity
        self.entry: Any = None
        self.finish: Finish | None = None
        self._replies, self._sender, self._left = replies, sender, left
        self._forget, self._faults = forget, faults
        self._ids: list[int] = []
        self._log_probs: list[float] = []
        self._lock = threading.Lock()
        self._shown = 0
        """Tokens that were there before the last step."""
        self._over = False
        self._begin(source)

    def _begin(self, source: Source) -> None:
        self._answer = source.answer(self.row)

    def tokens(self, count: int) -> bool:
        """Make so many more tokens and send them; whether the answer ended with them."""
        ended, before = False, len(self._ids)
        for _ in range(min(self._most_of_step(count), self.row.most - before)):
            token, log_prob = self._answer.next()
            self._ids.append(token)
            self._log_probs.append(log_prob)
            ended = token == self.row.end or self._stopped()
            if ended or self._disagrees(token):
                break
        self._shown = before
        self._faults.wrote(len(self._ids) - before)
        over = ended or len(self._ids) >= self.row.most
        if self.row.streaming and not over:
            self._send(self._replies.tokens(self.row, self._ids[before:], self._log_probs[before:]))
        return over

    def end(self) -> None:
        """Send the end of the answer."""
        cost = self.entry.performance
        if self.row.drafts:
            pairs = zip(self._ids, self.row.drafts, strict=False)
            agreed = [token == draft for token, draft in pairs]
            cost.draft_tokens = len(self.row.drafts)
            cost.accepted_draft_tokens = agreed.index(False) if False in agreed else len(agreed)
            cost.acceptance_rate = cost.accepted_draft_tokens / cost.draft_tokens
        ids = self._ids[self._shown :] if self.row.streaming else self._ids
        whole = ids if self.row.streaming or self.row.exclude_input else [*self.row.prompt, *ids]
        log_probs = self._log_probs[self._shown :] if self.row.streaming else self._log_probs
        self.finish = Finish(
            reason="length" if len(self._ids) >= self.row.most else "stop",
            prompt_tokens=len(self.row.prompt),
            output_tokens=len(self._ids),
            performance=cost,
        )
        self._close(self._replies.last(self.row, [whole], [log_probs], len(self._ids), cost))

    def fail(self, refused: Refused) -> None:
        """Send the reason why there is no whole answer."""
        self._close(self._replies.error(refused))

    def cancel(self, refused: Refused) -> None:
        """End it for its client."""
        if self.entry is not None:
            self.entry.cancel()
        self.fail(refused)

    def stop(self) -> None:
        """End it as a second request wishes: a stream that has begun just ends, and anything else with an error.

        Triton never frees the request of a model (``tensorrt_llm_bls``) whose stream here ends with an error, and its
        server then waits for it until the exit time-out.
        """
        refused = Refused("cancelled by a stop request", CANCELLED)
        if not (self.row.streaming and self._ids):
            self.cancel(refused)
            return
        if self.entry is not None:
            self.entry.cancel()
        self._close(None)

    def gone(self) -> bool:
        """Whether the client has gone."""
        with self._lock:
            return not self._over and bool(self._sender.is_cancelled())

    def _most_of_step(self, count: int) -> int:
        """Return the tokens of a step: with a draft from outside the first may take all of it, and one more."""
        return max(count, len(self.row.drafts) + 1) if not self._ids else count

    def _disagrees(self, token: int) -> bool:
        """Whether the model chose another token than the draft has at that place, where there is one."""
        place, drafts = len(self._ids) - 1, self.row.drafts
        return place < len(drafts) and token != drafts[place]

    def _stopped(self) -> bool:
        return any(tuple(self._ids[-len(one) :]) == one for one in self.row.stops)

    def _send(self, response: Any, flags: int = 0) -> None:
        with self._lock:
            if not self._over:
                self._sender.send(response, flags=flags)

    def _close(self, response: Any) -> None:
        """Send the last response of the row, None where it has none."""
        with self._lock:
            if self._over:
                return
            self._over = True
            self._left[0] -= 1
            flags = 0 if self._left[0] else _FINAL
            if response is not None:
                self._sender.send(response, flags=flags)
            elif flags:
                self._sender.send(flags=flags)
        self._forget(self)
