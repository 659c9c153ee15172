"""Confidence intervals of shares and the sign test, in closed form.

Closed forms and integers instead of resampling, so that equal rows give equal bytes on every
machine. The tests compare them with scipy.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

_NEGLIGIBLE = 2.0**-60


def wilson(share: float, count: float, confidence: float) -> tuple[float, float]:
    """Returns Wilson's score interval of a share (E. B. Wilson, 1927), within [0, 1].

    Args:
        share: successes over trials, in [0, 1]; halves (ties) can only make the interval too wide,
            since they vary less.
        count: independent trials; may be a fraction (an effective size). 0 gives (0, 1).
        confidence: in (0, 1), for example 0.95.
    """
    if count <= 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    shrink = 1 + z * z / count
    centre = (share + z * z / (2 * count)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    low = 0.0 if share == 0 else max(0.0, centre - half)  # exact, without rounding errors
    high = 1.0 if share == 1 else min(1.0, centre + half)
    return low, high


def wilson_of_means(
    means: Sequence[float], trials_most: float, confidence: float
) -> tuple[float, float]:
    """Returns an interval for the mean of per-problem shares, from their variance.

    Wilson's interval with the effective sample size p(1-p)/SE², SE being the standard error over
    problems (E. L. Korn and B. I. Graubard, 1998; E. Miller, arXiv:2411.00640, for the standard
    error of evaluations over clustered questions). Unlike p ± z·SE it stays within [0, 1] and has a
    width even if all problems agree. The size is at least the number of problems and at most
    ``trials_most``; if every share is 0 or 1, this is Wilson's interval.

    Args:
        means: one share in [0, 1] for each problem.
        trials_most: the number of independent trials, an upper bound on the effective size.
        confidence: in (0, 1).
    """
    problems = len(means)
    if not problems:
        return 0.0, 1.0
    share = math.fsum(means) / problems
    spread = math.fsum((m - share) ** 2 for m in means) / problems
    most = max(float(problems), trials_most)
    variance = share * (1 - share)
    if variance <= 0:
        size = float(problems)
    elif spread <= 0:
        size = most
    else:
        size = min(max(variance / spread * problems, problems), most)
    return wilson(share, size, confidence)


def sign_test(one: int, other: int) -> float:
    """Returns the two-sided p-value of the sign test, without ties.

    This is the exact binomial tail. Its largest term is a quotient of integers; the others follow
    by ratios below 1, so that only the terms that are not negligible are computed.

    Args:
        one: trials that one side won, at least 0.
        other: trials that the other won.
    """
    trials, least = one + other, min(one, other)
    if one == other:
        return 1.0
    term = tail = 1.0
    for i in range(least, 0, -1):
        term *= i / (trials - i + 1)
        tail += term
        if term < _NEGLIGIBLE * tail:
            break
    return min(1.0, _central(trials, least) * tail * 2)


def _central(trials: int, successes: int) -> float:
    """C(n, k) / 2^n."""
    return math.comb(trials, successes) / (1 << trials)
