"""Which part of each stored tensor a rank of an engine holds (TensorRT-LLM's own checkpoint layout).

Tensor ranks divide the rows of what comes first in a block (q, k and v by heads, gate and up by width, the ends by
vocabulary) and the columns of what comes last; expert ranks take whole experts, in blocks of neighbours; pipeline
stages take layers. The facts are those of TensorRT-LLM's mapping.py and models/convert_utils.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from math import ceil
from typing import Literal

from trtllm_kit.checkpoint.matrix import Matrix, Slice, matrix_shape
from trtllm_kit.plan.parallelism import Split, stages
from trtllm_kit.spec.model import Attention, ModelSpec

Embedding = Literal["rows", "columns", "whole"]
"""What of the embedding a tensor rank holds: a part of its rows or of its columns, or all of it."""


@dataclass(frozen=True)
class Rank:
    """One rank of the world, and what it holds."""

    split: Split
    number: int
    """``pipeline rank x tensor ranks + tensor rank``, which its file is named after."""

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"rank{self.number}.safetensors"

    @property
    def stage(self) -> int:
        """Its pipeline stage."""
        return self.number // self.split.tensor

    @property
    def tensor(self) -> int:
        """Its place among the tensor ranks of its stage."""
        return self.number % self.split.tensor

    @property
    def expert_tensor(self) -> int:
        """Its place among the ranks that split each single expert."""
        return self.tensor // self.split.expert

    def experts(self, count: int) -> range:
        """Return the numbers of the experts it holds, of so many in a layer."""
        each = count // self.split.expert
        first = self.tensor % self.split.expert * each
        return range(first, first + each)


@dataclass(frozen=True)
class World:
    """The ranks of a split, and the pieces each takes of the stored tensors."""

    model: ModelSpec
    split: Split
    shapes: Mapping[str, tuple[int, ...]]
    """Of every stored tensor of the model, by name; nothing is read."""
    vocabulary_multiple: int = 1
    """What the vocabulary is filled up to a multiple of, before it is shared."""
    embedding: Embedding = "rows"
    """How tensor ranks share the embedding; trtkit writes parts of its rows, and other makers all three."""
    stores_head: bool = True
    """Whether the last stage has a head of its own; others than trtkit leave out one that is the embedding."""
    _wholes: dict[tuple[str, ...], Matrix] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ranks(self) -> Iterator[Rank]:
        """The ranks, in the order of their files."""
        return (Rank(self.split, number) for number in range(self.split.shares))

    @cached_property
    def stages(self) -> tuple[range, ...]:
        """Layer numbers of each pipeline stage."""
        return stages(self.model, self.split.pipeline)

    def is_last(self, rank: Rank) -> bool:
        """Whether a rank is of the stage that ends in logits."""
        return rank.stage == self.split.pipeline - 1

    def whole(self, *names: str) -> Matrix:
        """Return whole tensors, one below the other; the same object for the same names, since every rank asks."""
        if names not in self._wholes:
            rows = (matrix_shape(self.shapes[name])[0] for name in names)
            self._wholes[names] = Matrix(tuple(map(self._rows, names, repeat(0), rows)))
        return self._wholes[names]

    def vocabulary(self, rank: Rank, name: str) -> Matrix:
        """Return a rank's rows of the embedding or the head; the last ranks are filled up with rows of zeros."""
        rows, _ = matrix_shape(self.shapes[name])
        filled = ceil(rows / self.vocabulary_multiple) * self.vocabulary_multiple
        each = ceil(filled / self.split.tensor)
        begin, end = (min(rows, (rank.tensor + more) * each) for more in (0, 1))
        return Matrix((self._rows(name, begin, end),), zero_rows=each - (end - begin))

    def embedded(self, rank: Rank, name: str) -> Matrix:
        """Return what a rank holds of the embedding; parts of its columns have no rows of zeros."""
        if self.embedding == "rows":
            return self.vocabulary(rank, name)
        return self.whole(name) if self.embedding == "whole" else self.columns(name, rank.tensor, self.split.tensor)

    def fused_qkv(self, rank: Rank, attention: Attention, query: str, key: str, value: str) -> Matrix:
        """Return a rank's query heads, then its key heads, then its value heads.

        Where there are fewer KV heads than ranks, several ranks hold the same one: rank r that of r x heads // ranks.
        """
        ranks, dim = self.split.tensor, attention.head_dim
        heads = attention.heads // ranks
        kept = max(attention.kv_heads // ranks, 1)
        first = rank.tensor * attention.kv_heads // ranks
        queries = self._rows(query, rank.tensor * heads * dim, (rank.tensor + 1) * heads * dim)
        return Matrix((queries, *(self._rows(name, first * dim, (first + kept) * dim) for name in (key, value))))

    def rows(self, name: str, part: int, parts: int) -> Matrix:
        """Return one of so many equal parts of a tensor's rows."""
        rows, _ = matrix_shape(self.shapes[name])
        return Matrix((self._rows(name, part * (rows // parts), (part + 1) * (rows // parts)),))

    def columns(self, name: str, part: int, parts: int) -> Matrix:
        """Return one of so many equal parts of a tensor's columns."""
        rows, columns = matrix_shape(self.shapes[name])
        if parts == 1:
            return self.whole(name)
        each = columns // parts
        return Matrix((Slice(name, (0, rows), (part * each, (part + 1) * each)),))

    def _rows(self, name: str, begin: int, end: int) -> Slice:
        rows, columns = matrix_shape(self.shapes[name])
        return Slice(name, (begin, end), (0, columns), whole=(begin, end) == (0, rows))


def joined(*matrices: Matrix) -> Matrix:
    """Return matrices one below the other; none of them but the last has rows of zeros."""
    return Matrix(tuple(part for matrix in matrices for part in matrix.slices), matrices[-1].zero_rows)
