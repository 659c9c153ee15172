"""One fit of the cost model: robust recursive least squares with forgetting.

The target is a duration, whose noise grows with it. Every observation is therefore divided by its
prediction, so that equal relative errors count the same. Coefficients multiply the prior's parts.
They are never negative, so more work never takes less time. A prior may be wrong by orders of
magnitude. Then the first observation sets the scale of all coefficients, and least squares
separates the parts later.
"""

from flowmesh_core.costmodel.prior import FEATURES, Features

FORGETTING = 0.98
"""Factor on the weight of the past at each observation: about the last fifty count."""
NOISE = 0.05
"""Relative variance of an observation."""
INFORMATION_MIN = 1e-6
"""The lowest ratio of a prediction's variance to the noise: below, an observation adds nothing."""
COEFFICIENT_LIMIT = 1e5
TRUST_AFTER = 4
"""Number of observations after which outliers are cut."""
STREAK = 5
"""This many outliers in a row on the same side mean that conditions have changed."""
GROSS = 2.0
"""A first observation that is off by more than this factor, up or down, sets the scale."""
OUTLIER = 3.0
"""An error larger than this many times the usual one is an outlier and is cut to that size."""
USUAL_ERROR = 0.3
USUAL_ERROR_MIN = 0.05
LEAST_S = 1e-4


class PriorFit:
    """Coefficients of the prior's parts, learned from attempts.

    Attributes:
        theta: the coefficients.
        spread: their covariance, row by row.
        count: number of observations learned.
        streak: number of outliers in a row; negative if they are below the prediction.
        usual: running mean of the relative error after cutting, to recognise outliers.
        error: running mean of the absolute relative error in [0, 1], for the metric.
    """

    __slots__ = ("count", "error", "spread", "streak", "theta", "usual")

    def __init__(self, theta: tuple[float, ...] | None = None, variance: float = 4.0) -> None:
        """Starts from a coarser fit's coefficients, or from the prior."""
        self.theta = list(theta) if theta is not None else [1.0] * FEATURES
        self.spread: list[list[float]] = []
        self.count = 0
        self.streak = 0
        self.usual = USUAL_ERROR
        self.error = 0.0
        self._forget(variance)

    def predict(self, x: Features) -> float:
        """Returns seconds, at least ``LEAST_S``."""
        t = self.theta
        value = t[0] * x[0] + t[1] * x[1] + t[2] * x[2] + t[3] * x[3]
        return value if value > LEAST_S else LEAST_S

    def update(self, x: Features, seconds: float) -> float:
        """Learns one observation (finite, at least 0); returns its ratio to the prediction."""
        seen = max(seconds, LEAST_S)
        first = self.predict(x)
        ratio = seen / first
        if self._is_gross(ratio):
            self._rescale(ratio)
        predicted = self.predict(x)
        innovation = self._cut(seen / predicted - 1.0)
        scaled = (x[0] / predicted, x[1] / predicted, x[2] / predicted, x[3] / predicted)
        self._step(scaled, innovation)
        self.count += 1
        pace = max(0.05, 1.0 / self.count)
        self.error += pace * (abs(seen - first) / max(seen, first) - self.error)
        return ratio

    def _is_gross(self, ratio: float) -> bool:
        """Whether the scale itself is wrong, judged at the first observation and after a streak."""
        if self.count == 0:
            return not 1.0 / GROSS <= ratio <= GROSS
        return abs(self.streak) >= STREAK

    def _rescale(self, ratio: float) -> None:
        """Multiplies all coefficients and resets the trust in their proportions."""
        self.theta = [min(t * ratio, COEFFICIENT_LIMIT) for t in self.theta]
        self.streak = 0
        self.usual = USUAL_ERROR
        self._forget(1.0)

    def _forget(self, variance: float) -> None:
        largest = max(self.theta)
        self.spread = [[0.0] * FEATURES for _ in range(FEATURES)]
        for i, t in enumerate(self.theta):
            self.spread[i][i] = variance * max(t, 0.3 * largest) ** 2

    def _cut(self, wrong: float) -> float:
        """Bounds an error after the first few observations, and moves the usual error towards it.

        A single outlier therefore counts as an error of at most ``OUTLIER`` times the usual one.
        """
        bound = OUTLIER * max(self.usual, USUAL_ERROR_MIN)
        size = abs(wrong)
        if self.count < TRUST_AFTER:
            self.usual += (min(size, 1.0) - self.usual) / (self.count + 2)
            return wrong
        self.usual += 0.1 * (min(size, bound) - self.usual)
        if size <= bound:
            self.streak = 0
            return wrong
        side = 1 if wrong > 0.0 else -1
        self.streak = self.streak + side if self.streak * side >= 0 else side
        return bound * side

    def _step(self, x: Features, innovation: float) -> None:
        """Does a least-squares step, forgetting only along the observation (Kulhavy 1987).

        Directions without information from the observation keep their variance, so there is no
        windup.
        """
        a, b, c, d = x
        spread = self.spread
        px = [r[0] * a + r[1] * b + r[2] * c + r[3] * d for r in spread]
        information = (px[0] * a + px[1] * b + px[2] * c + px[3] * d) / NOISE
        if information < INFORMATION_MIN:
            return
        gain = innovation / (NOISE * (1.0 + information))
        shrink = (FORGETTING * information - (1.0 - FORGETTING)) / (
            information * FORGETTING * (1.0 + information) * NOISE
        )
        theta = self.theta
        for i in range(FEATURES):
            theta[i] = min(max(theta[i] + px[i] * gain, 0.0), COEFFICIENT_LIMIT)
            row = spread[i]
            for j in range(i, FEATURES):
                row[j] = spread[j][i] = row[j] - shrink * px[i] * px[j]
