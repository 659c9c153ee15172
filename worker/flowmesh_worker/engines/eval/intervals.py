"""How far a share may be off: confidence intervals and the sign test, in closed form.

Closed forms and integers rather than resampling, so that equal rows give equal bytes on every
machine. The tests hold them against scipy.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

_NEGLIGIBLE = 2.0**-60


def wilson(share: float, count: float, confidence: float) -> tuple[float, float]:
    """Wilson's score interval of a share (E. B. Wilson, 1927); stays within [0, 1].

    Args:
        share: successes over trials, in [0, 1]; halves (ties) make the interval too wide, if
            anything, since they vary less.
        count: independent trials; a fraction where it is an effective number. 0 gives (0, 1).
        confidence: in (0, 1), 0.95 say.
    """
    if count <= 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    shrink = 1 + z * z / count
    centre = (share + z * z / (2 * count)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    low = 0.0 if share == 0 else max(0.0, centre - half)  # exact, where rounding would not be
    high = 1.0 if share == 1 else min(1.0, centre + half)
    return low, high


def wilson_of_means(
    means: Sequence[float], trials_most: float, confidence: float
) -> tuple[float, float]:
    """An interval for the mean of per-problem shares, from how much they differ.

    Wilson's interval with the effective sample size p(1-p)/SE², SE being the standard error over
    problems (E. L. Korn and B. I. Graubard, 1998; E. Miller, arXiv:2411.00640, for the standard
    error of evaluations over clustered questions). Unlike p ± z·SE it stays within [0, 1] and keeps
    a width where all problems agree. The size is at least the number of problems, and at most the
    independent trials that were made; where every share is 0 or 1 it is plain Wilson.

    Args:
        means: one share in [0, 1] a problem.
        trials_most: an upper bound on the effective size.
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
    """The two-sided p-value of the sign test: both sides are equally likely, ties left out.

    The exact binomial tail. Its largest term is a quotient of integers; the others follow from it
    by ratios below 1, so that millions of trials cost no more than the terms that matter.

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
