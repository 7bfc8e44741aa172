"""The blocks of a KV cache: held, cached, evicted."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trtllm_kit.estimate.kv_blocks import Pool, Stretch
from trtllm_kit.estimate.workload import Segment

BLOCK = 4


def served(pool: Pool, *chain: Segment) -> int:
    """Let a request come, compute its prompt and go; return the blocks it found."""
    match = pool.match(chain)
    need = pool.blocks_of(sum(segment.tokens for segment in chain))
    path = list(match.path)
    pool.hold(path)
    pool.take(need - match.blocks)
    own = pool.store(path, chain, sum(segment.tokens for segment in chain), need - match.blocks)
    pool.leave(path)
    pool.give(own)
    return match.blocks


def test_second_prompt_finds_the_first() -> None:
    """A prompt of 3 blocks is found again, and the same with more behind it is found for its 3 blocks."""
    pool = Pool(20, BLOCK, reuse=True)
    first = Segment(1, 12)
    assert [0, 3, 3] == [served(pool, first), served(pool, first), served(pool, first, Segment(2, 8))]


def test_without_reuse_nothing_is_found() -> None:
    """Without reuse nothing of a finished request stays."""
    pool = Pool(20, BLOCK, reuse=False)
    assert [0, 0, 0] == [served(pool, Segment(1, 12)), served(pool, Segment(1, 12)), pool.cached]


def test_other_beginning_other_text() -> None:
    """The same segment behind another beginning is other text: keys and values depend on all tokens before."""
    pool = Pool(20, BLOCK, reuse=True)
    served(pool, Segment(1, 8), Segment(3, 8))
    assert 0 == served(pool, Segment(2, 8), Segment(3, 8))


def test_only_whole_blocks() -> None:
    """Of 10 shared tokens in blocks of 4 two blocks are found: the third also holds tokens of what follows."""
    pool = Pool(20, BLOCK, reuse=True)
    served(pool, Segment(1, 10), Segment(2, 6))
    assert 2 == served(pool, Segment(1, 10), Segment(3, 6))


def test_left_longest_goes_first() -> None:
    """When room is needed, what was left longest ago goes, and what was used since then stays."""
    pool = Pool(6, BLOCK, reuse=True)
    served(pool, Segment(1, 8))
    served(pool, Segment(2, 8))
    served(pool, Segment(1, 8))
    served(pool, Segment(3, 16))
    assert (2, 0) == (pool.match([Segment(1, 8)]).blocks, pool.match([Segment(2, 8)]).blocks)


def test_ends_go_before_beginnings() -> None:
    """Of one text its end is evicted first: a beginning is of use to more prompts."""
    pool = Pool(6, BLOCK, reuse=True)
    served(pool, Segment(1, 8), Segment(2, 16))
    served(pool, Segment(3, 12))
    assert 3 == pool.match([Segment(1, 8), Segment(2, 16)]).blocks


def test_held_is_never_evicted() -> None:
    """What a request uses stays, whatever others take."""
    pool = Pool(6, BLOCK, reuse=True)
    served(pool, Segment(1, 8))
    match = pool.match([Segment(1, 8)])
    pool.hold(match.path)
    pool.take(4)
    assert (2, 0) == (pool.match([Segment(1, 8)]).blocks, pool.room)


def test_stored_once() -> None:
    """Two requests that compute the same prompt side by side keep its blocks once, and give back the others."""
    pool = Pool(20, BLOCK, reuse=True)
    for _ in range(2):
        pool.take(3)
    own = [pool.store([], (Segment(1, 12),), 12, 3) for _ in range(2)]
    assert ([0, 0], 3) == (own, pool.held)


class Requests(RuleBasedStateMachine):
    """Requests with common beginnings come and go in any order."""

    def __init__(self) -> None:
        """Begin with an empty cache of 24 blocks."""
        super().__init__()
        self.pool = Pool(24, BLOCK, reuse=True)
        self.here: list[tuple[list[Stretch], tuple[Segment, ...], int]] = []

    @rule(keys=st.lists(st.integers(1, 3), min_size=1, max_size=3), tokens=st.integers(1, 14))
    def come(self, keys: list[int], tokens: int) -> None:
        """A request is admitted if there is room for it."""
        chain = tuple(Segment(key, tokens) for key in keys)
        match = self.pool.match(chain)
        need = self.pool.blocks_of(tokens * len(keys)) - match.blocks
        if need + match.unused <= self.pool.room:
            path = list(match.path)
            self.pool.hold(path)
            self.pool.take(need)
            self.here.append((path, chain, need))

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        """A request ends after any part of its tokens."""
        path, chain, own = self.here.pop(data.draw(st.integers(0, len(self.here) - 1)))
        computed = data.draw(st.integers(0, sum(segment.tokens for segment in chain)))
        left = self.pool.store(path, chain, computed, own)
        assert left >= 0
        self.pool.leave(path)
        self.pool.give(left)

    @invariant()
    def adds_up(self) -> None:
        """No more blocks are held and cached than there are, and with nobody here none is held."""
        assert self.pool.held + self.pool.cached <= self.pool.blocks
        assert self.pool.cached >= 0
        assert bool(self.here) or self.pool.held == 0


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRequests.__doc__ = "Whatever comes and goes, blocks add up, and an idle cache holds none."
