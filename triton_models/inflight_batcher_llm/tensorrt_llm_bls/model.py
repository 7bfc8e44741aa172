"""The whole way in one model: text to tokens, the engine, tokens to text; a draft model's engine too, if there is one.

Unlike the ensemble it knows a stream from its beginning to its end. So pieces are joined as they come, without a
broken character or a lost space, and a stop word ends the answer wherever its letters fall on the tokens.
A request runs on a thread of its own, so one instance serves as many as the engine takes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import triton_python_backend_utils as pb_utils

from answer import Answers
from asked import Asked, read_asked
from drafting import drafted
from engine import Engine, Setup
from given import Refused, error_of, flag_of, inputs_of, outputs_of, parameters_of

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the names of the models; they are asked when the first request comes."""
        parameters = parameters_of(args)
        self._setup = Setup(
            model=parameters.get("tensorrt_llm_model_name", "tensorrt_llm"),
            draft=parameters.get("tensorrt_llm_draft_model_name"),
            inputs=inputs_of(args),
            outputs=outputs_of(args),
        )
        self._gathers = flag_of(parameters, "accumulate_tokens", default=False)
        self._running: set[threading.Thread] = set()

    def execute(self, requests: Sequence[Any]) -> None:
        """Begin every request; its responses are sent from its own thread."""
        for request in requests:
            thread = threading.Thread(target=self._serve, args=(request, request.get_response_sender()), daemon=True)
            self._running.add(thread)
            thread.start()

    def finalize(self) -> None:
        """Wait for requests that still run."""
        for thread in list(self._running):
            thread.join()

    def _serve(self, request: Any, sender: Any) -> None:
        try:
            self._answer(request, sender)
        except Exception as error:  # noqa: BLE001  # a thread that dies without a final response would leave its client waiting
            sender.send(error_of(error), flags=_FINAL)
        finally:
            self._running.discard(threading.current_thread())

    def _answer(self, request: Any, sender: Any) -> None:
        asked = read_asked(request, self._setup)
        engine = Engine(self._setup, request, asked)
        answers = Answers(engine, asked, gathers=self._gathers)
        if asked.drafts:
            sender.send(answers.whole(drafted(engine, asked)), flags=_FINAL)
        elif asked.stream:
            self._stream(engine, answers, sender)
        else:
            self._whole(engine, answers, asked, sender)

    def _stream(self, engine: Engine, answers: Answers, sender: Any) -> None:
        responses = engine.responses()
        for response in responses:
            if sender.is_cancelled():
                engine.stop(responses)
                break
            for piece in answers.pieces(response):
                sender.send(piece)
            if answers.over:
                engine.stop(responses)
                break
        last = answers.rest()
        for piece in last:
            sender.send(piece)
        sender.send(flags=_FINAL)

    def _whole(self, engine: Engine, answers: Answers, asked: Asked, sender: Any) -> None:
        """Send one response a sequence; the last of them, which for a single one is the only one, ends the request."""
        kept: Any = None
        for response in engine.responses():
            if not engine.has_tokens(response):
                continue
            if kept is not None:
                sender.send(kept)
            kept = answers.whole(response)
        if kept is None:
            raise Refused(f"model {engine.name} ended the request of {asked.rows} rows without an answer")
        sender.send(kept, flags=_FINAL)
