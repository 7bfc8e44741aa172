"""In-flight batching as it happens: requests come, steps are taken, tokens go out; on the clock of ``estimate``.

The engine knows no real time. ``advance`` takes one step, or as many equal steps as nothing can interrupt, and says
when they end. A simulation calls it in a loop; a server that paces real streams asks for one step at a time and waits.

With pipeline stages, requests are shared out over as many micro-batches as there are stages, and a round is one step
of each: it lasts as long as the slowest micro-batch takes through all stages, or the busiest stage takes for all
micro-batches, whichever is longer. With attention data parallelism each rank has requests and blocks of its own, and
a step waits for the fullest rank.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import inf

from trtllm_kit.estimate.cells import Cells, cells_of
from trtllm_kit.estimate.fits import require_fit
from trtllm_kit.estimate.gaps import Longest
from trtllm_kit.estimate.hold import EveryRank, FullStep, Hold
from trtllm_kit.estimate.run import Run, State
from trtllm_kit.estimate.scheduler import Cell, Job
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Clock
from trtllm_kit.estimate.workload import Request


class Engine:
    """One replica."""

    def __init__(
        self,
        subject: Subject,
        clock: Clock,
        *,
        hold: FullStep | EveryRank | None = None,
        seed: int | None = None,
        exact: bool = False,
    ) -> None:
        """Begin idle at time 0.

        ``hold`` lets prompts wait for others, in place of the subject's ``balance``.
        ``seed`` draws how many drafts each step accepts; without one it is the mean. ``exact`` takes every step by
        itself: slow, and what the jumps are measured by.
        """
        self.subject = subject
        self.time = 0.0
        self.step = 0
        self._cells: Cells = cells_of(subject, clock, seed)
        self._hold = Hold(hold or subject.balance)
        self._exact = exact
        self._overlap = subject.overlap_scheduler
        self._queue: deque[Job] = deque()
        self._jobs: dict[int, Cell | None] = {}
        self._ends: list[tuple[int, int, Job]] = []
        self._admissions = 0
        self._paused = 0
        self._before = 0.0
        """When the last step began: with the overlap scheduler the next one is put together then."""
        self._longest = Longest()

    @property
    def idle(self) -> bool:
        """Whether no request is left."""
        return not self._jobs

    @property
    def load(self) -> int:
        """Requests that are here, waiting ones among them."""
        return len(self._jobs)

    @property
    def evicted_blocks(self) -> int:
        """Blocks that were kept for later prompts and had to go, since the start."""
        return sum(pool.evicted for pool in self._cells.pools)

    def submit(self, number: int, request: Request, arrival: float, *, cached: bool = False) -> Job:
        """Queue a request under a number of its own; raises ``NeverFits`` when it can never run.

        ``cached`` says that another server read the prompt and wrote the first token.
        """
        self.check(request)
        job = Job(number, request, arrival)
        job.cached = cached
        if self.idle:
            self.time = max(self.time, arrival)
        self._queue.append(job)
        self._jobs[number] = None
        return job

    def check(self, request: Request) -> None:
        """Raise ``NeverFits`` for a request that no step could ever hold."""
        require_fit(request, self.subject, self._cells.pools[0])

    def cancel(self, number: int) -> bool:
        """Drop a request, wherever it is; False when it is not here any more."""
        if number not in self._jobs:
            return False
        cell = self._jobs.pop(number)
        if cell is None:
            self._paused -= any(job.pauses for job in self._queue if job.number == number)
            self._queue = deque(job for job in self._queue if job.number != number)
        else:
            job = cell.active[number]
            job.ends = -1
            cell.drop(job, self.step)
        return True

    def emitted(self, number: int) -> int:
        """Return the tokens that an active request's answer has so far; 0 for one that waits for its first turn."""
        cell = self._jobs[number]
        if cell is None:
            return next(job.told for job in self._queue if job.number == number)
        return cell.active[number].emitted(self.step)

    def state(self) -> State:
        """Return what the engine holds."""
        active = reading = generating = kv_tokens = 0
        for cell in self._cells.all:
            active += len(cell.active)
            generating += cell.generating
            kv_tokens += cell.context(self.step)
            for job in cell.reading:
                reading += 1
                kv_tokens += job.past
        pools = self._cells.pools
        return State(
            time=self.time,
            step=self.step,
            active=active,
            reading=reading,
            generating=generating,
            queued=len(self._queue),
            paused=self._paused,
            kv_blocks=pools[0].blocks * len(pools),
            kv_held=sum([pool.held for pool in pools]),
            kv_cached=sum([pool.cached for pool in pools]),
            kv_tokens=kv_tokens,
            tokens_per_block=pools[0].tokens_per_block,
        )

    def advance(self, until: float = inf, most_steps: int | None = None) -> Run | None:
        """Take the next step, and those like it up to the first that begins at ``until`` or later.

        Returns None when no request is here. Requests that come before ``until`` must have been submitted.
        """
        cells = self._cells
        if not self._jobs:
            cells.release()
            return None
        waited = self._wait()
        paused = self._pause() if cells.pauses else 0
        handed = [] if paused else self._admit(everybody=waited)
        cells.schedule(self.step)
        held = self._hold.rounds(cells)
        if held:
            cells.hold_back()
        steps, first = 1, cells.seconds(0)
        if cells.generating and not cells.chunks and not paused:
            steps = self._steps_alike(until, min(most_steps or inf, held or inf))
        if not cells.generating and not cells.chunks:
            raise RuntimeError(f"{len(self._jobs)} requests and nothing to do: {self.state()}")
        self._hold.passed(steps, held=held > 0)
        return self._take(steps, first, handed, paused)

    def _take(self, steps: int, first: float, handed: list[Job], paused: int) -> Run:
        """Take so many steps of the scheduled kind and return what they did."""
        cells, begin = self._cells, self.time
        if cells.pauses:
            cells.grow(self.step, steps)
        seconds, last = (cells.run_seconds(steps), cells.seconds(steps - 1)) if steps > 1 else (first, first)
        sequences, tokens = cells.generating, cells.tokens(steps)
        self.time += seconds
        self.step += steps
        self._before = begin if steps == 1 else self.time - last
        if sequences:
            self._longest.add(max(first, last))
        began = handed + self._read(begin)
        state = self.state()
        ended = self._end()
        return Run(
            begin=begin,
            end=self.time,
            steps=steps,
            first_seconds=first,
            last_seconds=last,
            sequences=sequences,
            prompts=len(cells.chunks),
            prompt_tokens=sum(size for _, _, size in cells.chunks),
            looked_back=cells.looked_back,
            tokens=tokens + len(began) + cells.settle(),
            began=tuple(began),
            ended=tuple(ended),
            paused=paused,
            state=state,
        )

    # --- before a step -------------------------------------------------------------------------------------------

    def _wait(self) -> bool:
        """Pass the time until a request is here, where none runs; whether it had to."""
        for cell in self._cells.all:
            if cell.active:
                return False
        self._cells.release()
        self.time = max(self.time, min(job.arrival for job in self._queue))
        return True

    def _pause(self) -> int:
        """Take blocks for the next step; where they lack, pause requests, the last admitted first; return how many."""
        paused = 0
        while (cell := self._cells.short_of_blocks(self.step)) is not None:
            job = cell.latest
            if job.generates:
                job.gap = max(job.gap, self._longest.since(job.round))
                job.heard = self.time
            cell.pause(job, self.step)
            job.ends = -1
            self._jobs[job.number] = None
            self._queue.appendleft(job)
            paused += 1
        self._paused += paused
        self._cells.grow(self.step, 1)
        return paused

    def _admit(self, *, everybody: bool) -> list[Job]:
        """Admit requests in order while there is room; return those that generate at once.

        A step is put together when the one before it begins, or with the overlap scheduler one earlier still: a
        request that comes later waits for the next. An idle engine takes everybody who is here.
        """
        handed: list[Job] = []
        while self._queue and self._sees(self._queue[0], everybody=everybody):
            job = self._queue[0]
            cell = next((cell for cell in self._cells.roomiest() if cell.admit(job)), None)
            if cell is None:
                break
            self._queue.popleft()
            self._paused -= job.pauses > 0
            self._admissions += 1
            job.admitted = self._admissions
            self._jobs[job.number] = cell
            if not job.unread:
                job.scheduled = min(job.scheduled, self.time)
                self._begin(cell, job)
                handed.append(job)
        return handed

    def _sees(self, job: Job, *, everybody: bool) -> bool:
        if everybody:
            return job.arrival <= self.time
        return job.arrival < (self._before if self._overlap else self.time)

    def _steps_alike(self, until: float, limit: float) -> int:
        """Return how many generation steps nothing interrupts: no end, no arrival, no admission, no lack of blocks."""
        if self._exact:
            return 1
        while self._ends and self._ends[0][2].ends != self._ends[0][0]:
            heappop(self._ends)
        most = max(1, int(min(self._ends[0][0] - self.step, limit)))
        if self._queue:
            leaves = any(cell.leaving for cell in self._cells.all)
            if leaves or not self._sees(self._queue[0], everybody=False):
                return 1
        if most > 1 and self._cells.pauses:
            most = self._cells.steps_that_fit(most)
        return most if until == inf else self._cells.steps_until(until - self.time, most)

    # --- after it ------------------------------------------------------------------------------------------------

    def _read(self, begin: float) -> list[Job]:
        """Count what was read of prompts; return the requests whose prompt is read."""
        began = []
        for cell, job, size in self._cells.chunks:
            job.scheduled = min(job.scheduled, begin)
            job.past += size
            job.unread -= size
            if not job.unread:
                self._begin(cell, job)
                began.append(job)
        return began

    def _begin(self, cell: Cell, job: Job) -> None:
        """Give a request its first token, or after a pause its next, and let it generate."""
        cell.begin(job, self.step)
        job.told += 1
        if job.first == inf:
            job.first = self.time
        else:
            job.gap = max(job.gap, self.time - job.heard)
        job.round = self._longest.count
        left = job.request.answer - job.told
        job.pace = self._cells.paces.of(job.number, job.told, left)
        job.ends = self.step + job.pace.steps_for(left)
        heappush(self._ends, (job.ends, job.number, job))

    def _end(self) -> list[Job]:
        """Take out the requests that have their last token; the slots of the ones before them are free now."""
        ended = []
        while self._ends and self._ends[0][0] <= self.step:
            tick, _, job = heappop(self._ends)
            if job.ends == tick:
                job.ends = -1
                ended.append(job)
        self._cells.release()
        for job in ended:
            cell = job.cell
            del self._jobs[job.number]
            job.last = self.time
            job.gap = max(job.gap, self._longest.since(job.round))
            cell.end(job, self.step)
        if not self._overlap:
            self._cells.release()
        return ended
