"""Forecasts of a workflow's time, cost and energy before it runs."""

import msgspec

GUESS = "guess"
"""``PlannedStep.sure`` where the cost model has not observed such work."""


NOTHING = 0.0
"""The seconds and joules of a step with nothing to run. ``omit_defaults`` compares by identity:
this value is left out of the JSON, another 0.0 is not."""


class PlannedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step is expected to take.

    Attributes:
        expect: ``hit`` (all of it is published), ``run`` (its actions are known, some or all have
            to run), ``unknown`` (its inputs are not known before others have run) or ``skip``.
        actions: known actions, ``hits`` those of them that are published.
        batches: engine instances that the rest shares.
        worker: where it would run best; empty where no connected worker can run it.
        fetch_bytes: size of what an import has to fetch, where its source was resolved and tells;
            with a ``limit`` it may fetch less.
        sure: ``measured`` where the cost model has observed such work, else ``GUESS``.
    """

    path: str
    engine: str
    expect: str
    actions: int = 0
    hits: int = 0
    batches: int = 0
    nanousd: int = 0
    seconds: float = NOTHING
    joules: float = NOTHING
    worker: str = ""
    sure: str = ""
    detail: str = ""
    fetch_bytes: int = 0


class Forecast(msgspec.Struct, frozen=True):
    """What a workflow is expected to take.

    Attributes:
        actions: known actions, those that several steps share once; so are ``hits``.
        seconds: along the longest path, with what is known; a lower bound where steps are unknown.
        error: mean relative error of the predictions, 1 for a guess.
        unknown: number of steps whose inputs are not known yet; they are estimated from their
            engine alone.
        refusals: why a budget or a deadline cannot be met.
        unmeasured: number of steps whose figures are guesses, those of ``unknown`` among them.
        least_nanousd: what the other steps take; so do ``least_seconds``, along the longest path,
            and ``least_joules``.
        low_nanousd: the lower end of the range that the run's dollars are expected in, guesses
            included; ``high_nanousd`` is the upper end, and ``low_seconds`` and ``high_seconds``
            are those of its seconds. The upper ends are 0 where nothing bounds them.
    """

    name: str
    namespace: str
    steps: tuple[PlannedStep, ...]
    actions: int
    hits: int
    batches: int
    nanousd: int
    seconds: float
    joules: float
    error: float
    unknown: int
    scopes: tuple[str, ...]
    refusals: tuple[str, ...]
    unmeasured: int = 0
    least_nanousd: int = 0
    least_seconds: float = 0.0
    least_joules: float = 0.0
    low_nanousd: int = 0
    high_nanousd: int = 0
    low_seconds: float = 0.0
    high_seconds: float = 0.0
