"""The learned cost model: seconds, dollars and loading time of an action on a device class.

A control plane has one cost model. The machine changes it in place; ``placement`` and ``fmesh
plan`` read it. A prediction comes from the finest of these levels that has an observation: this
signature on this device class, this engine with models of this size on this class, this engine on
this class, the prior.

An engine instance runs several actions at once. An action takes longer beside others, and pays only
for its share of the instance. Predictions and observations therefore have a ``batch``: the number
of actions that the instance runs at once.
"""

from dataclasses import dataclass
from math import exp, isfinite, log

import msgspec

from flowmesh_core.costmodel import prior
from flowmesh_core.costmodel.fetch_times import FetchTimes
from flowmesh_core.costmodel.regression import LEAST_S, PriorFit
from flowmesh_core.costmodel.residuals import Residuals
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.units import Digest

SIGNATURES_MAX = 4096
"""About how many fits are remembered, and how many memory peaks; the one that was updated longest
ago is forgotten first."""
LOAD_PACE = 0.4
"""How far the logarithm of the loading time moves towards a load that was observed as a whole, or
towards a wait that was longer than predicted. If it is the first observation, it is taken as it is.
"""
LOAD_PACE_DOWN = 0.05
"""How far it moves towards a shorter wait, which may have covered only a part of the load."""
LOAD_RATIO_MIN = exp(-6.0)
"""Lower bound on the ratio of a loading time to the prior's; its inverse is the upper bound."""
SAMPLED_FROM = 256
"""After this many observations a signature's fit hardly changes, so it learns from one in
``SAMPLED_EVERY``: with a thousand short actions a second, the rest would cost time and add nothing.
"""
SAMPLED_EVERY = 4
COARSE_EVERY = 8
"""After this many observations of a signature, coarser fits learn from only one in this many."""
NANO_HOUR_S = 3600.0


class CostKey(msgspec.Struct, frozen=True, gc=False):
    """What a fit is for.

    Attributes:
        work_unit: the work unit of the engine's contract; ``tokens`` adds the roofline of decoding.
    """

    engine: str
    signature: Digest
    work_unit: str = "rows"

    @staticmethod
    def of(info: SignatureInfo) -> "CostKey":
        """Returns the key of a signature in a snapshot."""
        return CostKey(info.requirement.engine, info.base, info.work_unit)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted time of an action and its share of an instance.

    Attributes:
        seconds: run time, in an instance of ``batch`` actions.
        p95_s: run time that 95 of 100 such actions do not exceed.
        load_s: seconds until a new engine takes work, with its components on disk.
        share: the share of the instance that the action pays for.
        samples: observations that the prediction is based on; 0 for the prior alone.
        error: recent mean relative error, in [0, 1]; 1 for the prior alone.
    """

    seconds: float
    p95_s: float
    load_s: float
    share: float
    samples: int
    error: float

    def nanousd(self, price_nanousd_per_hour: int) -> int:
        """Returns the action's share of the worker's price while it runs, without loading."""
        return round(self.seconds * self.share * price_nanousd_per_hour / NANO_HOUR_S)

    def p95_nanousd(self, price_nanousd_per_hour: int) -> int:
        """Returns the p95 of that cost, which is what to reserve in a budget."""
        return round(self.p95_s * self.share * price_nanousd_per_hour / NANO_HOUR_S)

    def joules(self, power_w: float) -> float:
        """Returns an estimate of the action's share of the energy at the given power."""
        return self.seconds * self.share * power_w


class Rate(msgspec.Struct, frozen=True, gc=False):
    """A prediction as a linear function of the work, for one signature, device class and batch."""

    once_s: float
    token_in_s: float
    token_out_s: float
    decode_step_s: float
    unit_s: float
    byte_s: float
    p95_ratio: float
    share: float
    tokens: bool

    def seconds(self, work: WorkSize) -> float:
        """Returns the predicted run time."""
        if self.tokens:
            t_in, t_out, steps, _ = prior.token_counts("tokens", work)
            value = self.once_s + self.token_in_s * t_in + self.token_out_s * t_out
            value += self.decode_step_s * steps
        else:
            value = self.once_s + self.unit_s * work.units + self.byte_s * work.input_bytes
        return value if value > LEAST_S else LEAST_S


class FittedModel:
    """A fit with its residuals and the learned correction of the loading time.

    Attributes:
        unsampled: how many observations were skipped since the last one that it learned from.
    """

    __slots__ = ("fit", "load_count", "load_log", "residuals", "unsampled")

    def __init__(self, fit: PriorFit, load_log: float = 0.0) -> None:
        """Starts from a fit and the logarithm of the ratio of loading time to the prior's."""
        self.fit = fit
        self.residuals = Residuals()
        self.load_log = load_log
        self.load_count = 0
        self.unsampled = 0


Level = tuple[str, ...]


class CostModel:
    """Predicts the time of actions and learns from attempts; see the module.

    It has no clock: an observation fades as later ones arrive.

    Attributes:
        learned: level → fit, the fit that was updated longest ago first.
        fetches: predicts the seconds of fetches by pool.
        memory_mib_by_level: peaks of device memory by (device class, engine, signature).
    """

    def __init__(self) -> None:
        self.learned: dict[Level, FittedModel] = {}
        self.fetches = FetchTimes()
        self.memory_mib_by_level: dict[Level, int] = {}

    # -- reading ---------------------------------------------------------------------------------

    def predict(
        self, key: CostKey, device_class: str, work: WorkSize, *, batch: float = 1.0
    ) -> Prediction:
        """Returns the prediction for an action that is one of ``batch`` in its instance."""
        batch = max(1.0, batch)
        found = self._finest(key, device_class, work.component_bytes)
        x = prior.features(key.work_unit, device_class, work, batch)
        fit = found.fit if found else _PRIOR
        seconds = fit.predict(x)
        ratio = found.residuals.p95_ratio() if found else _NOTHING_SEEN.p95_ratio()
        return Prediction(
            seconds=seconds,
            p95_s=seconds * ratio,
            load_s=self.load_s(key, device_class, work.component_bytes),
            share=1.0 / batch,
            samples=fit.count,
            error=fit.error if fit.count else 1.0,
        )

    def rate(
        self, key: CostKey, device_class: str, component_bytes: int, batch: float = 1.0
    ) -> Rate:
        """Returns the same prediction as a function of the work, to score many actions at once."""
        batch = max(1.0, batch)
        found = self._finest(key, device_class, component_bytes)
        fit = found.fit if found else _PRIOR
        fixed, first, second, third = fit.theta
        once, token_in, token_out, step, unit = [
            fixed * a + first * b + second * c + third * d
            for a, b, c, d in prior.unit_features(
                key.work_unit, device_class, component_bytes, batch
            )
        ]
        residuals = found.residuals if found else _NOTHING_SEEN
        return Rate(
            once_s=once,
            token_in_s=token_in,
            token_out_s=token_out,
            decode_step_s=step,
            unit_s=unit,
            byte_s=third / prior.READ_INPUT_BYTES_PER_S,
            p95_ratio=residuals.p95_ratio(),
            share=1.0 / batch,
            tokens=key.work_unit == "tokens",
        )

    def load_s(self, key: CostKey, device_class: str, component_bytes: int) -> float:
        """Returns the seconds until a new engine takes work, with its components on disk."""
        guess = prior.load_seconds(key.engine, device_class, component_bytes)
        for level in _levels(key, device_class, component_bytes):
            found = self.learned.get(level)
            if found is not None and found.load_count:
                return guess * exp(found.load_log)
        return guess

    def wake_s(self, key: CostKey, device_class: str, component_bytes: int) -> float:
        """Returns the seconds until an engine that is asleep takes work."""
        guess = prior.wake_seconds(device_class, component_bytes)
        for level in _wake_levels(key, device_class):
            found = self.learned.get(level)
            if found is not None:
                return guess * exp(found.load_log)
        return guess

    def observations(self, key: CostKey, device_class: str, component_bytes: int) -> int:
        """Returns how many observations of this signature itself its fit on this class has."""
        found = self.learned.get(_levels(key, device_class, component_bytes)[0])
        return found.fit.count if found is not None else 0

    def learned_load_s(self, key: CostKey, device_class: str, component_bytes: int) -> float:
        """Returns the loading seconds learned for this signature itself; 0 without observations."""
        found = self.learned.get(_levels(key, device_class, component_bytes)[0])
        if found is None or not found.load_count:
            return 0.0
        return self.load_s(key, device_class, component_bytes)

    def fetch_s(self, far_bytes: int, pool: str = "") -> float:
        """Returns the seconds that a worker of a pool takes to fetch bytes from the store.

        Without a pool, or for a pool without observations, this is the prior.
        """
        return self.fetches.seconds(far_bytes, pool)

    def memory_mib(self, key: CostKey, device_class: str) -> int:
        """Returns the recent peak of device memory of this signature; 0 if none was observed."""
        return self.memory_mib_by_level.get((device_class, key.engine, key.signature), 0)

    def error(self, key: CostKey, device_class: str, component_bytes: int = 0) -> float:
        """Returns the recent mean relative error in [0, 1]; 1 if nothing was observed."""
        found = self._finest(key, device_class, component_bytes)
        return found.fit.error if found else 1.0

    # -- learning --------------------------------------------------------------------------------

    def observe(
        self,
        key: CostKey,
        work: WorkSize,
        run_s: float,
        load_s: float,
        device_class: str,
        *,
        batch: float = 1.0,
    ) -> None:
        """Learns from an attempt that succeeded.

        Args:
            key: the key of the attempt's signature.
            work: the size that the prediction used, not the size that it turned out to have, so
                that habits such as stopping before ``maxTokens`` are learned too.
            run_s: seconds that the engine worked on the attempt.
            load_s: seconds that the attempt waited for loading; 0 if it did not wait. A load takes
                at least as long as this wait, so the wait raises the estimate fast and lowers it
                slowly.
            device_class: the worker's device class.
            batch: mean number of actions in the instance while the attempt ran.
        """
        if load_s > 0.0:
            waited = self.load_s(key, device_class, work.component_bytes)
            pace = LOAD_PACE if load_s >= waited else LOAD_PACE_DOWN
            self._learn_load(key, device_class, work.component_bytes, load_s, pace)
        if not (isfinite(run_s) and isfinite(batch)) or run_s < 0.0:
            return
        if self._is_unsampled(key, device_class, work.component_bytes):
            return
        x = prior.features(key.work_unit, device_class, work, max(1.0, batch))
        for learned in self._fits_of(key, device_class, work.component_bytes):
            first = learned.fit.count == 0
            ratio = learned.fit.update(x, run_s)
            if not first:
                learned.residuals.add(ratio)

    def _is_unsampled(self, key: CostKey, device_class: str, component_bytes: int) -> bool:
        """Whether to skip this observation, because the signature's fit has enough of them."""
        finest = self.learned.get(_levels(key, device_class, component_bytes)[0])
        if finest is None or finest.fit.count < SAMPLED_FROM:
            return False
        finest.unsampled = (finest.unsampled + 1) % SAMPLED_EVERY
        return finest.unsampled != 0

    def observe_load(
        self,
        key: CostKey,
        device_class: str,
        component_bytes: int,
        load_s: float,
    ) -> None:
        """Learns how long a new engine took to start, until it took work."""
        self._learn_load(key, device_class, component_bytes, load_s, LOAD_PACE)

    def observe_wake(
        self, key: CostKey, device_class: str, component_bytes: int, wake_s: float
    ) -> None:
        """Learns how long an engine that was asleep took to wake, until it took work."""
        if not isfinite(wake_s) or wake_s <= 0.0:
            return
        guess = prior.wake_seconds(device_class, component_bytes)
        seen = log(max(LOAD_RATIO_MIN, min(1.0 / LOAD_RATIO_MIN, wake_s / guess)))
        for level in reversed(_wake_levels(key, device_class)):
            learned = self.learned.pop(level, None)
            step = LOAD_PACE if learned is not None else 1.0
            self.learned[level] = learned = learned or FittedModel(PriorFit())
            learned.load_count += 1
            learned.load_log += step * (seen - learned.load_log)
        if len(self.learned) > SIGNATURES_MAX:
            del self.learned[next(iter(self.learned))]

    def _learn_load(
        self, key: CostKey, device_class: str, component_bytes: int, load_s: float, pace: float
    ) -> None:
        if not isfinite(load_s) or load_s <= 0.0:
            return
        guess = prior.load_seconds(key.engine, device_class, component_bytes)
        seen = log(max(LOAD_RATIO_MIN, min(1.0 / LOAD_RATIO_MIN, load_s / guess)))
        for learned in self._fits_of(key, device_class, component_bytes):
            learned.load_count += 1
            step = 1.0 if learned.load_count == 1 and pace >= LOAD_PACE else pace
            learned.load_log += step * (seen - learned.load_log)

    def observe_fetch(self, pool: str, fetched_bytes: int, fetch_s: float) -> None:
        """Learns how long a worker of a pool took to fetch bytes from the store."""
        self.fetches.observe(pool, fetched_bytes, fetch_s)

    def observe_memory(self, key: CostKey, device_class: str, peak_mib: int) -> None:
        """Remembers a peak of device memory; a higher one fades by 2% with each observation."""
        if peak_mib <= 0:
            return
        level = (device_class, key.engine, key.signature)
        faded = int(self.memory_mib_by_level.pop(level, 0) * 0.98)
        self.memory_mib_by_level[level] = max(peak_mib, faded)
        if len(self.memory_mib_by_level) > SIGNATURES_MAX:
            del self.memory_mib_by_level[next(iter(self.memory_mib_by_level))]

    # -- levels ----------------------------------------------------------------------------------

    def _finest(self, key: CostKey, device_class: str, component_bytes: int) -> FittedModel | None:
        for level in _levels(key, device_class, component_bytes):
            found = self.learned.get(level)
            if found is not None and found.fit.count:
                return found
        return None

    def _fits_of(self, key: CostKey, device_class: str, component_bytes: int) -> list[FittedModel]:
        """Returns the fits that learn, coarsest first; a new one starts from the next coarser."""
        found: list[FittedModel] = []
        coarser: FittedModel | None = None
        for level in reversed(_levels(key, device_class, component_bytes)):
            learned = self.learned.pop(level, None)
            if learned is None:
                learned = _finer(coarser)
            self.learned[level] = learned
            found.append(learned)
            coarser = learned
        if len(self.learned) > SIGNATURES_MAX:
            del self.learned[next(iter(self.learned))]
        seen = found[-1].fit.count
        if seen > COARSE_EVERY and seen % COARSE_EVERY:
            return found[-1:]
        return found


_ENGINE_LEVEL = 2
_PRIOR = PriorFit()
_NOTHING_SEEN = Residuals()


def _levels(key: CostKey, device_class: str, component_bytes: int) -> tuple[Level, Level, Level]:
    """Returns the levels of the fits for a key, finest first."""
    size = str(prior.size_class(component_bytes))
    return (
        (device_class, key.engine, size, key.signature),
        (device_class, key.engine, size),
        (device_class, key.engine),
    )


def _wake_levels(key: CostKey, device_class: str) -> tuple[Level, Level]:
    """Returns the levels of the wakes learned for a key, finest first.

    They need no level by size, because the prior already scales with the bytes.
    """
    return (device_class, key.engine, "wake", key.signature), (device_class, key.engine, "wake")


def _finer(coarser: FittedModel | None) -> FittedModel:
    if coarser is None:
        return FittedModel(PriorFit())
    return FittedModel(PriorFit(tuple(coarser.fit.theta), variance=1.0), coarser.load_log)
