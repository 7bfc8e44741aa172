"""All cells of a replica: a lane for each micro-batch of the pipeline, in it a cell for each attention rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from trtllm_kit.estimate.kv_blocks import Pool
from trtllm_kit.estimate.pace import Paces
from trtllm_kit.estimate.scheduler import Cell, Job, Rules
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Chunk, Clock, StepWork


@runtime_checkable
class StagedClock(Protocol):
    """A clock that knows how long each pipeline stage is busy."""

    def stage_seconds(self, work: StepWork) -> tuple[float, ...]:
        """Return the seconds each stage is busy with a step."""
        ...


class Cells:
    """Requests by lane and rank, and how long their next round takes."""

    def __init__(self, lanes: Sequence[Sequence[Cell]], clock: Clock, paces: Paces) -> None:
        """Take the cells of each lane, rank by rank; the lanes of a rank share its blocks."""
        self.paces = paces
        self.lanes = lanes
        self.all = [cell for lane in lanes for cell in lane]
        self.ranks: list[list[Cell]] = [list(cells) for cells in zip(*lanes, strict=True)]
        self.pools = [cell.pool for cell in lanes[0]]
        self.width = self.all[0].width
        self.pauses = self.all[0].pauses
        self._most_blocks = self.width // self.pools[0].tokens_per_block + 1
        """Blocks that a request can need for one step."""
        self.chunks: list[tuple[Cell, Job, int]] = []
        """Prompts that the next round reads, and how many tokens of each."""
        self._read: list[tuple[Chunk, ...]] = [()] * len(lanes)
        self._clock = clock
        self._staged = clock if len(lanes) > 1 and isinstance(clock, StagedClock) else None
        self._step = 0
        self._seconds: dict[int, float] = {}

    @property
    def generating(self) -> int:
        """Requests past their prompt."""
        total = 0
        for cell in self.all:
            total += cell.generating
        return total

    def roomiest(self) -> list[Cell]:
        """Return the cells, the one with the fewest requests first."""
        return self.all if len(self.all) == 1 else sorted(self.all, key=lambda cell: cell.taken)

    def schedule(self, step: int) -> None:
        """Choose what the round of that number reads."""
        self._step = step
        self._seconds = {}
        self.chunks = []
        for place, lane in enumerate(self.lanes):
            pieces = [(cell, job, size) for cell in lane if cell.reading for job, size in cell.schedule()]
            self._read[place] = tuple(Chunk(size, job.past) for _, job, size in pieces)
            self.chunks += pieces

    @property
    def looked_back(self) -> int:
        """Pairs of a prompt token of the scheduled round and one of its prompt that was cached before."""
        return sum(chunk.new * chunk.past for part in self._read for chunk in part)

    def hold_back(self) -> None:
        """Read nothing in the scheduled round after all."""
        self.chunks = []
        self._read = [()] * len(self.lanes)

    def seconds(self, ahead: int) -> float:
        """Return the seconds of the scheduled round, or of the generation round so many after it."""
        if ahead not in self._seconds:
            self._seconds[ahead] = self._round(ahead)
        return self._seconds[ahead]

    def _round(self, ahead: int) -> float:
        if len(self.lanes) == 1:
            return self._clock.seconds(self._work(0, ahead))
        works = [self._work(place, ahead) for place in range(len(self.lanes))]
        works = [work for work in works if work.chunks or work.sequences]
        through = [self._clock.seconds(work) for work in works]
        return max((*through, *self._busy(works))) if len(works) > 1 else sum(through)

    def run_seconds(self, steps: int) -> float:
        """Return the seconds of so many generation rounds, the scheduled one first.

        Where the clock has no closed form for it, time is taken as straight between four rounds of them.
        """
        if len(self.all) == 1 and self.width == 1:
            cell = self.all[0]
            return self._clock.decode_run(cell.generating, cell.context(self._step), steps)
        middle = (steps - 1) // 2
        before = (self.seconds(0) + self.seconds(middle)) / 2 * (middle + 1)
        after = steps - 1 - middle
        return before + ((self.seconds(middle + 1) + self.seconds(steps - 1)) / 2 * after if after else 0.0)

    def steps_until(self, span: float, most: int) -> int:
        """Return the least number of generation rounds, up to ``most``, that take at least ``span`` seconds."""
        low, low_seconds = 1, self.seconds(0)
        if most <= 1 or low_seconds >= span:
            return 1
        high, high_seconds = most, self.run_seconds(most)
        if high_seconds <= span:
            return most
        while high - low > 1:
            guess = low + int((span - low_seconds) / (high_seconds - low_seconds) * (high - low)) + 1
            guess = min(max(guess, low + 1), high - 1)
            seconds = self.run_seconds(guess)
            if seconds >= span:
                high, high_seconds = guess, seconds
            else:
                low, low_seconds = guess, seconds
        return high

    def tokens(self, steps: int) -> float:
        """Return the tokens that so many generation rounds write; at a mean rate ``settle`` sets the ends right."""
        rate = self.all[0].rate
        if rate is not None:
            return rate * self.generating * steps
        then = self._step + steps
        jobs = (job for cell in self.all for job in cell.active.values() if job.generates)
        return sum(job.emitted(then) - job.emitted(self._step) for job in jobs)

    def settle(self) -> float:
        """Return by how much requests that left since the last call wrote more than their rate, or less."""
        total = 0.0
        for cell in self.all:
            total += cell.settled
            cell.settled = 0.0
        return total

    def steps_that_fit(self, most: int) -> int:
        """Return how many generation rounds, up to ``most``, find blocks without a pause."""
        for cells in self.ranks:
            most = _steps_that_fit(cells, self._step, most)
        return most

    def short_of_blocks(self, step: int) -> Cell | None:
        """Return the cell whose last admitted request must pause before that round; None when blocks suffice.

        The only request of a pool never pauses.
        """
        for cells in self.ranks:
            room = cells[0].pool.room
            if sum(cell.generating for cell in cells) * self._most_blocks <= room:
                continue
            if sum(cell.growth(step, 1) for cell in cells) <= room:
                continue
            if any(cell.leaving for cell in cells):
                for cell in cells:
                    cell.release()
                return self.short_of_blocks(step)
            if sum(len(cell.active) for cell in cells) > 1:
                return max((cell for cell in cells if cell.active), key=_admitted_last)
        return None

    def grow(self, step: int, steps: int) -> None:
        """Take the blocks that so many generation rounds fill, from the round of that number on."""
        for cell in self.all:
            cell.grow(step, steps)

    def release(self) -> None:
        """Free slots and blocks of all requests that leave."""
        for cell in self.all:
            if cell.leaving:
                cell.release()

    def _work(self, place: int, ahead: int) -> StepWork:
        """Return a lane's step; ranks wait for the fullest of them, so each counts as that one."""
        lane, step = self.lanes[place], self._step + ahead
        if len(lane) == 1:
            cell = lane[0]
            return StepWork(self._read[place], cell.generating, cell.context(step), self.width)
        sequences = max(cell.generating for cell in lane)
        context = max(cell.context(step) for cell in lane)
        return StepWork(self._read[place], len(lane) * sequences, len(lane) * context, self.width)

    def _busy(self, works: Sequence[StepWork]) -> list[float]:
        """Return the seconds each stage is busy in a round; without a clock that knows, the step's even share."""
        if self._staged is not None:
            return [sum(stage) for stage in zip(*map(self._staged.stage_seconds, works), strict=True)]
        return [sum(map(self._clock.seconds, works)) / len(self.lanes)]


def cells_of(subject: Subject, clock: Clock, seed: int | None) -> Cells:
    """Return the empty cells of a replica: slots and blocks shared out evenly, each with the tokens of a step.

    ``seed`` draws what is accepted of drafts; None takes the mean.
    """
    ranks = subject.split.data
    lanes = subject.split.pipeline
    block = subject.tokens_per_block
    pools = [Pool(subject.kv_tokens // block // ranks, block, reuse=subject.block_reuse) for _ in range(ranks)]
    paces = Paces(subject.speculation, seed)
    rules = Rules(
        slots=subject.max_batch_size,
        tokens=subject.max_num_tokens,
        width=subject.width,
        rate=paces.rate,
        chunked=subject.chunked_prefill,
        pauses=subject.scheduler_policy.upper() == "MAX_UTILIZATION",
    )
    return Cells([[Cell(pool, rules) for pool in pools] for _ in range(lanes)], clock, paces)


def _admitted_last(cell: Cell) -> int:
    return cell.latest.admitted


def _steps_that_fit(cells: Sequence[Cell], step: int, most: int) -> int:
    room = cells[0].pool.room

    def fits(steps: int) -> bool:
        return sum(cell.growth(step, steps) for cell in cells) <= room

    longest = most * cells[0].width // cells[0].pool.tokens_per_block + 2
    if sum(cell.generating for cell in cells) * longest <= room or fits(most):
        return most
    low, high = 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
