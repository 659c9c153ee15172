"""When requests arrive: one after another, unevenly, or in bursts."""

import random
from itertools import accumulate, takewhile

_BURST_S, _QUIET_S = 1.0, 4.0
"""Means of the times at the higher and at the lower rate."""
_BURST_FACTOR = 4.0


def arrival_times(
    kind: str, rate: float, seconds: float, rng: random.Random, cv: float = 2.0
) -> list[float]:
    """Draws the times of requests, ascending.

    Args:
        kind: ``poisson``; ``gamma`` for gaps with a coefficient of variation; ``bursts`` for a
            Poisson process whose rate changes between a low and a fourfold one.
        rate: requests a second, in the mean.
        seconds: for which they arrive.
        rng: draws them.
        cv: of the gaps, for ``gamma``.

    Raises:
        ValueError: there is no such kind.
    """
    if kind == "bursts":
        return _bursts(rate, seconds, rng)
    if kind not in ("poisson", "gamma"):
        raise ValueError(f"arrivals are poisson, gamma or bursts, not {kind!r}")
    shape = 1.0 if kind == "poisson" else cv**-2

    def gaps() -> float:
        return rng.gammavariate(shape, 1 / (rate * shape))

    return list(takewhile(lambda t: t < seconds, accumulate(iter(gaps, None))))


def _bursts(rate: float, seconds: float, rng: random.Random) -> list[float]:
    share = _BURST_S / (_BURST_S + _QUIET_S)
    low = rate / (1 + share * (_BURST_FACTOR - 1))
    times: list[float] = []
    begin, is_burst = 0.0, False
    while begin < seconds:
        end = begin + rng.expovariate(1 / (_BURST_S if is_burst else _QUIET_S))
        at = begin
        while True:
            at += rng.expovariate(low * _BURST_FACTOR if is_burst else low)
            if at >= min(end, seconds):
                break
            times.append(at)
        begin, is_burst = end, not is_burst
    return times
