"""trtkit's Triton model for LLMs: upstream's llmapi tensors in front, one of four runtimes behind.

``config.pbtxt`` names the runtime (parameter ``runtime``); README.md beside this file in trtkit's sources explains
the tensors. The model is decoupled: a stream is many responses, a whole answer is exactly one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import triton_python_backend_utils as pb_utils

from ask import Ask, Refused, read_ask, time_out, wants_stop
from courier import Courier
from devices import devices_of, subject_of, use
from lifeline import watch_parent
from metrics import Metrics
from replies import Replies
from runtime import Finish, Runtime
from settings import BadSettings, Settings, read_settings
from warm_up import warm_up

_METRICS_SECONDS = 0.2


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the runtime; raises with a reason when it cannot be served."""
        watch_parent()
        try:
            settings = read_settings(args)
            use(devices_of(args))
            self._runtime = _make_runtime(settings)
            warm_up(self._runtime, settings.warm_up_requests, settings.limits.max_seq_len)
        except BadSettings as error:
            raise pb_utils.TritonModelException(str(error)) from None
        self._replies = Replies(settings.output_types)
        self._metrics = Metrics(subject_of(args), settings.version)
        self._courier = Courier(self._replies, settings.cancellation_check_seconds, self._metrics.observe)
        self._closing = threading.Event()
        self._reporter = threading.Thread(target=self._report, name="metrics", daemon=True)
        self._reporter.start()

    def execute(self, requests: Sequence[Any]) -> None:
        """Begin every request; its responses are sent later, from the courier's thread."""
        for request in requests:
            self._begin(request)

    def finalize(self) -> None:
        """Stop every thread; requests that still run are failed."""
        self._closing.set()
        self._reporter.join()
        self._runtime.close()
        self._courier.close()

    def _begin(self, request: Any) -> None:
        sender, identity = request.get_response_sender(), request.request_id()

        def tensors(name: str) -> Any:
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            return None if tensor is None else tensor.as_numpy()

        try:
            if wants_stop(tensors):
                self._stop(identity)
                response = self._replies.last(Ask(prompt="", finish_reason=True), "", Finish(reason="cancelled"))
            else:
                asked = replace(read_ask(tensors), seconds=time_out(request.timeout(), request.parameters()))
                self._submit(asked, identity, sender)
                return
        except Refused as refused:
            response = self._replies.error(refused)
        sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _submit(self, ask: Ask, identity: str, sender: Any) -> None:
        exchange = self._courier.open(ask, identity, sender)
        try:
            exchange.runs_as(self._runtime.submit(ask, exchange))
        except Refused as refused:
            exchange.fail(refused)

    def _stop(self, identity: str) -> None:
        if not identity:
            raise Refused('stop needs the id of the running request: send {"id": "...", "stop": true, ...}')
        if not self._courier.cancel(identity):
            raise Refused(f"no running request has the id {identity!r}", "NOT_FOUND")

    def _report(self) -> None:
        """Show the statistics a few times a second until the end. As the heartbeat it waits for nobody."""
        while True:
            self._metrics.update(self._runtime.statistics())
            if self._closing.wait(_METRICS_SECONDS):
                return


def _make_runtime(settings: Settings) -> Runtime:
    if settings.runtime == "simulated":
        from runtime_simulated import SimulatedRuntime

        return SimulatedRuntime(settings)
    if settings.runtime == "reference":
        from runtime_reference import ReferenceRuntime

        return ReferenceRuntime(settings)
    if settings.runtime == "transformers":
        from runtime_transformers import TransformersRuntime

        return TransformersRuntime(settings)
    from runtime_tensorrt_llm import TensorrtLlmRuntime

    return TensorrtLlmRuntime(settings)
