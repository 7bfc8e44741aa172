"""Stands in for Triton's C++ backend ``tensorrtllm`` where there is no GPU: the same tensors, another engine behind.

It lies in the backend folder of a rehearsal, so the repository is served as it goes to production. What it reads are
the parameters of ``config.pbtxt`` and the ``config.json`` of the engine, and it refuses what the backend refuses.
The tokens are those of the reference forward pass over the engine's checkpoint, or of no model at all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from ask import CANCELLED, Refused
from beams import BeamTurn
from engine_setup import BadEngine, read_setup
from engine_tensors import Replies, Row, rows_of, wants_stop
from faults import BadFaults, faults_of
from lifeline import watch_parent
from metrics import Metrics
from pacer import Pacer
from timing import NoPlan, computing_engine, read_plan, request_of, simulated_engine
from turns import Turn, sources_of

_METRICS_SECONDS = 0.2
_CHECK_SECONDS = 0.1


class TritonPythonModel:
    """What Triton's Python backend loads for every model of this backend."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the engine; raises with a reason when it cannot be served."""
        watch_parent()
        try:
            faults = faults_of(os.environ)
            plan = read_plan(Path(args["model_repository"]).parent)
            setup = read_setup(args, plan)
            faults.start_slowly()
            self._source = sources_of(plan, setup)
        except (BadEngine, BadFaults, NoPlan) as error:
            raise pb_utils.TritonModelException(str(error)) from None
        self._setup = setup
        self._replies = Replies(setup.output_types)
        self._metrics = Metrics(args["model_name"], args["model_version"], extended=False)
        limits, step = setup.limits, plan.serve.token_seconds
        engine = computing_engine(limits) if self._source.computes else simulated_engine(limits, step, plan)
        self._pacer = Pacer(engine, setup.limits.max_queue_size, faults)
        self._faults = faults
        self._running: set[Turn] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("metrics", self._report), ("cancellations", self._check))
        ]
        self._pacer.start()
        for thread in self._threads:
            thread.start()

    def execute(self, requests: Sequence[Any]) -> None:
        """Begin every request; a row of a batch is a request of its own, as in the backend."""
        for request in requests:
            self._begin(request)

    def finalize(self) -> None:
        """Stop every thread; requests that still run are failed."""
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self._pacer.close()

    def _begin(self, request: Any) -> None:
        sender = request.get_response_sender()
        try:
            if wants_stop(request):
                self._stop(request.request_id())
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                return
            rows = rows_of(request, self._setup)
            for row in rows:
                self._source.check(row)
        except Refused as refused:
            sender.send(self._replies.error(refused), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return
        left = [len(rows)]
        for row in rows:
            self._submit(row, sender, left, request.request_id())

    def _submit(self, row: Row, sender: Any, left: list[int], identity: str) -> None:
        kind = BeamTurn if row.beams > 1 else Turn
        turn = kind(row, self._source, self._replies, sender, left, identity, self._forget, self._faults)
        with self._lock:
            self._running.add(turn)
        block = self._setup.limits.tokens_per_block
        try:
            turn.entry = self._pacer.submit(request_of(row.prompt, row.most, block), turn)
        except Refused as refused:
            turn.fail(refused)

    def _forget(self, turn: Turn) -> None:
        with self._lock:
            self._running.discard(turn)
        if turn.finish is not None:
            self._metrics.observe(turn.finish)

    def _stop(self, identity: str) -> None:
        with self._lock:
            found = [turn for turn in self._running if turn.identity == identity]
        for turn in found:
            turn.stop()

    def _check(self) -> None:
        """Look a few times a second whether the clients of running requests have gone."""
        while not self._closing.wait(_CHECK_SECONDS):
            with self._lock:
                running = list(self._running)
            for turn in running:
                if turn.gone():
                    turn.cancel(Refused("cancelled by the client", CANCELLED))

    def _report(self) -> None:
        while True:
            self._metrics.update(self._pacer.statistics())
            if self._closing.wait(_METRICS_SECONDS):
                return
