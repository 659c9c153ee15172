"""Latencies as counts by bucket: bounded in size, summed by adding, exact to a fifth.

Routers count the requests of each service in one, and the control plane adds them up.
"""

from bisect import bisect_left
from collections.abc import Sequence

BOUNDS_S = tuple(0.001 * 2 ** (n / 4) for n in range(80))
"""Upper bounds of the buckets, from 1 ms to about 15 minutes; one more bucket has what is above."""
BUCKETS = len(BOUNDS_S) + 1


def bucket_of(seconds: float) -> int:
    """Returns the bucket of a latency."""
    return bisect_left(BOUNDS_S, seconds)


def quantile_s(counts: Sequence[int], share: float) -> float:
    """Returns the latency that this share of all requests did not exceed; 0 without a request.

    Args:
        counts: of requests by bucket.
        share: above 0 and at most 1.
    """
    wanted = share * sum(counts)
    found = 0
    for bucket, count in enumerate(counts):
        found += count
        if count and found >= wanted:
            return BOUNDS_S[min(bucket, len(BOUNDS_S) - 1)]
    return 0.0
