"""What tokens cost."""

from __future__ import annotations

import pytest

from trtllm_kit.tune.cost import joules_per_token, per_million_tokens, requests_per_watt


def test_a_million_tokens_cost_the_hours_of_all_gpus_at_work() -> None:
    """Eight GPUs at 2.50 an hour that write 1,000 tokens a second: 1,000 s, 20 an hour, 5.56 a million."""
    assert 20 * 1000 / 3600 == pytest.approx(per_million_tokens(2.5, 8, 1000))


def test_a_token_takes_the_power_limit_over_the_rate() -> None:
    """Two GPUs of 700 W and 100 tokens a second: 14 J each; none a second has no price."""
    assert 14.0 == joules_per_token(700, 2, 100)
    assert float("inf") == joules_per_token(700, 2, 0) == per_million_tokens(1, 1, 0)


def test_the_published_rows_rank_the_smaller_power_limit_first() -> None:
    """78 requests/s at 700 W are more for each watt than 89 at 1,000 W, by a quarter."""
    assert 0.1114 / 0.089 == pytest.approx(requests_per_watt(700, 1, 78) / requests_per_watt(1000, 1, 89), rel=1e-3)
