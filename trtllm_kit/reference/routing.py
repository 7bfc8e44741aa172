"""How a mixture of experts chooses: the router's scores, the experts of each token, and their shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.linear import Linear
from trtllm_kit.reference.numeric import Observe, sigmoid, softmax
from trtllm_kit.spec.model import Routing

Chosen = NDArray[np.int64]


@dataclass(frozen=True)
class Router:
    """Scores every expert, and picks ``per_token`` of them for each token."""

    linear: Linear
    per_token: int
    routing: Routing
    choice_bias: F32 | None = None
    """(experts,); joins the scores for the choice alone."""

    def __call__(self, hidden: F32, observe: Observe | None = None) -> tuple[Chosen, F32]:
        """Return the experts of (tokens, hidden), best first, and their shares, (tokens, per_token) each."""
        logits = self.linear(hidden, observe)
        scores = softmax(logits) if self.routing.scoring == "softmax" else sigmoid(logits)
        rated = scores if self.choice_bias is None else scores + self.choice_bias
        chosen = best(_within_groups(rated, self.routing), self.per_token)
        share = np.take_along_axis(scores, chosen, axis=-1)
        if self.routing.normalise:
            share = share / share.sum(axis=-1, keepdims=True)
        return chosen, share * np.float32(self.routing.scale)


def best(scores: F32, count: int) -> Chosen:
    """Return where the ``count`` largest of the last axis are, largest first; the first of equals wins."""
    return np.argsort(-scores, axis=-1, kind="stable")[..., :count]


def _within_groups(rated: F32, routing: Routing) -> F32:
    """Leave the experts of the best groups; a group is as good as its two best experts (DeepSeek-V3)."""
    if routing.groups_per_token == routing.groups:
        return rated
    grouped = rated.reshape(len(rated), routing.groups, -1)
    of_group = np.sort(grouped, axis=-1)[..., -2:].sum(axis=-1)
    open_groups = np.zeros(of_group.shape, dtype=bool)
    np.put_along_axis(open_groups, best(of_group, routing.groups_per_token), values=True, axis=-1)
    return np.where(open_groups[..., None], grouped, np.float32(-np.inf)).reshape(rated.shape)
