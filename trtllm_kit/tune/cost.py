"""What tokens cost in money and energy."""

from __future__ import annotations

SECONDS_OF_AN_HOUR = 3600


def per_million_tokens(gpu_hour_price: float, gpus: int, tokens_per_s: float) -> float:
    """Return the price of a million output tokens, in the currency of ``gpu_hour_price``; infinite without tokens.

    GPUs that a configuration leaves idle are not paid for by it.
    """
    if tokens_per_s <= 0:
        return float("inf")
    return gpu_hour_price * gpus / SECONDS_OF_AN_HOUR / tokens_per_s * 1e6


def joules_per_token(watts: float, gpus: int, tokens_per_s: float) -> float:
    """Return the joules of an output token if each GPU drew its power limit, which is the most; infinite without."""
    return watts * gpus / tokens_per_s if tokens_per_s > 0 else float("inf")


def requests_per_watt(watts: float, gpus: int, requests_per_s: float) -> float:
    """Return the answers a second for each watt of the GPUs' power limits."""
    return requests_per_s / (watts * gpus)
