"""The requests that a service expects: they size its plans until the demand is measured."""

import msgspec


class ExpectedArrivals(msgspec.Struct, frozen=True):
    """Expected requests.

    Attributes:
        rate_per_s: in the mean.
        cv: the coefficient of variation of the times between them: 0 for a clock, 1 for requests
            that come independently of each other, more for bursts.
        peak_per_s: the rate in the busiest minutes; 0 for no other than the mean.
    """

    rate_per_s: float
    cv: float = 1.0
    peak_per_s: float = 0.0
