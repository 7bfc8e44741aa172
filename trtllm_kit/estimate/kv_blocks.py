"""The blocks of a KV cache: what requests hold, what is kept of finished ones for the next, what is evicted first.

Every block is free, held by a request, or cached: it belongs to no request any more, and a prompt that begins in the
same way takes it over instead of computing it. Room is made from the block that was left longest ago. Blocks are not
followed one by one but as stretches: the whole blocks of one segment of a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trtllm_kit.estimate.workload import Segment


class Stretch:
    """The whole blocks of one segment, behind one particular beginning."""

    __slots__ = ("blocks", "key", "parent", "users")

    def __init__(self, parent: Stretch | None, key: int) -> None:
        """Begin with no block and no user."""
        self.parent = parent
        self.key = key
        self.blocks = 0
        self.users = 0


class Match:
    """What of a prompt is in the cache already."""

    __slots__ = ("blocks", "path", "unused")

    def __init__(self, path: list[Stretch], blocks: int, unused: int) -> None:
        """Take the stretches, root first, the blocks of the prompt in them, and how many blocks nobody holds yet."""
        self.path = path
        self.blocks = blocks
        self.unused = unused


class Pool:
    """The blocks of one KV cache."""

    def __init__(self, blocks: int, tokens_per_block: int, *, reuse: bool) -> None:
        """Begin empty; ``reuse`` keeps blocks of finished requests."""
        self.blocks = blocks
        self.tokens_per_block = tokens_per_block
        self.reuse = reuse
        self.held = 0
        """Blocks that requests hold or have reserved."""
        self.cached = 0
        """Blocks that nobody holds and that are kept."""
        self.evicted = 0
        """Blocks that were dropped from the cache, since the start."""
        self._stretches: dict[tuple[Stretch | None, int], Stretch] = {}
        self._left: dict[Stretch, None] = {}
        """Stretches without a user, the one left longest ago first."""

    @property
    def room(self) -> int:
        """Blocks that a request could still get, cached ones among them."""
        return self.blocks - self.held

    def blocks_of(self, tokens: int) -> int:
        """Return the blocks that many tokens take."""
        return -(-tokens // self.tokens_per_block)

    def match(self, chain: Iterable[Segment]) -> Match:
        """Return what is cached of a prompt, from its beginning to the first gap."""
        path: list[Stretch] = []
        matched = unused = 0
        if not self.reuse:
            return Match(path, 0, 0)
        parent: Stretch | None = None
        for key, whole in self._whole_blocks(chain, None):
            stretch = self._stretches.get((parent, key))
            if stretch is None:
                break
            path.append(stretch)
            matched += min(whole, stretch.blocks)
            unused += 0 if stretch.users else stretch.blocks
            if stretch.blocks < whole:
                break
            parent = stretch
        return Match(path, matched, unused)

    def hold(self, path: Iterable[Stretch]) -> None:
        """Make a request the user of stretches: they cannot be evicted until it leaves them."""
        for stretch in path:
            if not stretch.users:
                del self._left[stretch]
                self.cached -= stretch.blocks
                self.held += stretch.blocks
            stretch.users += 1

    def take(self, blocks: int) -> None:
        """Give a request so many blocks, evicting cached ones; the caller has looked at ``room``."""
        self.held += blocks
        while self.held + self.cached > self.blocks:
            self._evict(self.held + self.cached - self.blocks)

    def give(self, blocks: int) -> None:
        """Take back blocks that a request held and that are not kept."""
        self.held -= blocks

    def store(self, path: list[Stretch], chain: Sequence[Segment], tokens: int, own: int) -> int:
        """Make the first ``tokens`` tokens of a chain known to other requests; return how many of ``own`` are left.

        ``own`` blocks are held by the request alone; those that become part of a stretch are its no more. The path is
        extended by the stretches the request now uses. A block that another request stored meanwhile is not kept
        twice.
        """
        if not self.reuse:
            return own
        parent: Stretch | None = None
        for place, (key, whole) in enumerate(self._whole_blocks(chain, tokens)):
            if place < len(path):
                stretch = path[place]
            else:
                stretch = self._joined(parent, key)
                twice = min(whole, stretch.blocks)
                own -= twice
                self.give(twice)
                path.append(stretch)
            own -= max(0, whole - stretch.blocks)
            stretch.blocks = max(whole, stretch.blocks)
            parent = stretch
        return own

    def leave(self, path: Iterable[Stretch]) -> None:
        """End a request's use of stretches; what nobody uses stays cached, its end to be evicted first."""
        for stretch in reversed(list(path)):
            stretch.users -= 1
            if not stretch.users:
                self._left[stretch] = None
                self.held -= stretch.blocks
                self.cached += stretch.blocks

    def _joined(self, parent: Stretch | None, key: int) -> Stretch:
        """Return a stretch with one user more, new where it is not known."""
        stretch = self._stretches.get((parent, key))
        if stretch is None:
            stretch = self._stretches[parent, key] = Stretch(parent, key)
            self._left[stretch] = None
        self.hold((stretch,))
        return stretch

    def _evict(self, blocks: int) -> None:
        """Drop up to so many blocks from the end of the stretch that was left longest ago."""
        stretch = next(iter(self._left))
        dropped = min(blocks, stretch.blocks)
        stretch.blocks -= dropped
        self.cached -= dropped
        self.evicted += dropped
        if not stretch.blocks:
            del self._left[stretch]
            del self._stretches[stretch.parent, stretch.key]

    def _whole_blocks(self, chain: Iterable[Segment], tokens: int | None) -> Iterable[tuple[int, int]]:
        """Yield key and whole blocks of each segment, as far as the first ``tokens`` tokens reach.

        The block across a border belongs to the segment in which it ends.
        """
        block, begin = self.tokens_per_block, 0
        for segment in chain:
            end = begin + segment.tokens if tokens is None else min(begin + segment.tokens, tokens)
            if end <= begin:
                return
            yield segment.key, end // block - begin // block
            begin = end
