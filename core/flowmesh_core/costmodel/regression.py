"""Recursive least squares with forgetting, made robust: one fit of the cost model.

The target is a duration, whose noise grows with it, so every observation is divided by its
prediction: relative errors count alike. Coefficients multiply the prior's parts; they stay at or
above zero, so more work never takes less time.
"""

from flowmesh_core.costmodel.prior import FEATURES, Features

FORGETTING = 0.98
"""Weight of the past at each observation: about the last fifty count."""
NOISE = 0.05
"""Relative variance of an observation."""
SPREAD_LIMIT = 25.0
"""Upper bound on a coefficient's variance, so that forgetting without news does not wind up."""
COEFFICIENT_LIMIT = 1e5
TRUST_AFTER = 4
"""Observations from which on an outlier is taken for one."""
OUTLIER = 3.0
"""Errors beyond this many times the usual are cut down to it."""
USUAL_ERROR_MIN = 0.05
LEAST_S = 1e-4


class Fit:
    """Coefficients of the prior's parts, learned from attempts.

    Attributes:
        theta: the coefficients.
        spread: their covariance, row by row.
        count: observations seen.
        usual: running mean of the relative error after cutting, for telling outliers.
        error: running mean of the absolute relative error, for the metric.
    """

    __slots__ = ("count", "error", "spread", "theta", "usual")

    def __init__(self, theta: tuple[float, ...] | None = None, variance: float = 4.0) -> None:
        """Starts at a coarser fit's coefficients, or at the prior."""
        self.theta = list(theta) if theta is not None else [1.0] * FEATURES
        self.spread = [
            [variance if i == j else 0.0 for j in range(FEATURES)] for i in range(FEATURES)
        ]
        self.count = 0
        self.usual = 0.3
        self.error = 0.0

    def predict(self, x: Features) -> float:
        """Seconds, at least ``LEAST_S``."""
        t = self.theta
        value = t[0] * x[0] + t[1] * x[1] + t[2] * x[2] + t[3] * x[3]
        return value if value > LEAST_S else LEAST_S

    def update(self, x: Features, seconds: float) -> float:
        """Learns one observation (finite, at least 0) and returns observed over predicted."""
        predicted = self.predict(x)
        seconds = max(seconds, LEAST_S)
        ratio = seconds / predicted
        wrong = ratio - 1.0
        innovation = self._cut(wrong)
        self._step(
            (x[0] / predicted, x[1] / predicted, x[2] / predicted, x[3] / predicted), innovation
        )
        self.count += 1
        pace = max(0.05, 1.0 / self.count)
        self.error += pace * (abs(seconds - predicted) / max(seconds, predicted) - self.error)
        return ratio

    def _cut(self, wrong: float) -> float:
        """Bounds an error once enough was seen, and moves the usual error towards it.

        A lone outlier moves the fit by the usual error at most; a lasting change raises the usual
        error with every observation, so that the fit follows within about ten.
        """
        bound = OUTLIER * max(self.usual, USUAL_ERROR_MIN)
        size = abs(wrong)
        if self.count < TRUST_AFTER:
            self.usual += (min(size, 1.0) - self.usual) / (self.count + 2)
            return wrong
        self.usual += 0.1 * (min(size, 2.0 * bound) - self.usual)
        return max(-bound, min(bound, wrong))

    def _step(self, x: Features, innovation: float) -> None:
        a, b, c, d = x
        spread = self.spread
        px = [r[0] * a + r[1] * b + r[2] * c + r[3] * d for r in spread]
        scale = NOISE + px[0] * a + px[1] * b + px[2] * c + px[3] * d
        gain = innovation / scale
        theta = self.theta
        for i in range(FEATURES):
            value = theta[i] + px[i] * gain
            theta[i] = min(max(value, 0.0), COEFFICIENT_LIMIT)
            row = spread[i]
            for j in range(i, FEATURES):
                # Written to both sides: an antisymmetric rounding error would grow by forgetting.
                row[j] = spread[j][i] = (row[j] - px[i] * px[j] / scale) / FORGETTING
        for i in range(FEATURES):
            variance = spread[i][i]
            if variance > SPREAD_LIMIT:
                shrink = (SPREAD_LIMIT / variance) ** 0.5
                for j in range(FEATURES):
                    spread[i][j] *= shrink
                    spread[j][i] *= shrink
