"""The roofline prior: the parts of an action's time, before anything was observed.

The parts are the features of the regression in ``regression``. Their coefficients start at 1, so
the prior and the learned fit have the same form, and a fit for one model size is useful for another
one. Decoding follows the serial roofline (step = bytes read over bandwidth, plus a linear term in
the sequences of the batch), fitted to the published points named in ``devices``.
"""

from functools import lru_cache

from flowmesh_core.costmodel.devices import (
    ACTION_S,
    HOST_START_S,
    TRAINER_S,
    UNIT_S,
    WAKE_S,
    DeviceRates,
    rates_of,
)
from flowmesh_core.fleet.ready import WorkSize

FEATURES = 4
"""Number of features: fixed time, then three more. For tokens these are prefill, decoding alone and
its growth with the batch; for all other work, units, their growth with the batch and input bytes.
"""
CONTENTION = 0.25
"""Share of an action's time that each other action in the instance adds, for work without tokens.
"""
READ_INPUT_BYTES_PER_S = 2e8

Features = tuple[float, float, float, float]


def token_step_s(rates: DeviceRates, component_bytes: int) -> tuple[float, float]:
    """Returns the seconds of a decoding step: a fixed part and a part per sequence.

    Weights count as two bytes per parameter, so a token needs one operation per byte of weights.
    """
    fixed = component_bytes / rates.read_bytes_per_s + rates.step_s
    per_sequence = component_bytes / rates.decode_flops_per_s + rates.step_s_per_sequence
    return fixed, per_sequence


@lru_cache(maxsize=4096)
def unit_features(
    work_unit: str, device_class: str, component_bytes: int, batch: float
) -> tuple[Features, Features, Features, Features, Features]:
    """Returns what an action, a token in, a token out, a step and a unit add to the features.

    An action's features are the sum of these, each multiplied by its count in the action, so that a
    prediction is a linear function of the work. ``features`` adds the part of the input bytes.
    """
    rates = rates_of(device_class)
    once = (TRAINER_S if work_unit == "samples" else ACTION_S, 0.0, 0.0, 0.0)
    nothing = (0.0, 0.0, 0.0, 0.0)
    if work_unit == "tokens":
        fixed, per_sequence = token_step_s(rates, component_bytes)
        prefill = component_bytes / rates.prefill_flops_per_s + 1e-7
        token_in = (0.0, prefill, 0.0, 0.0)
        token_out = (0.0, 0.0, 0.0, per_sequence * batch)
        step = (0.0, 0.0, fixed, 0.0)
        return once, token_in, token_out, step, nothing
    unit_s = UNIT_S.get(work_unit, UNIT_S["rows"]) / rates.host_scale
    unit = (0.0, unit_s, unit_s * CONTENTION * (batch - 1.0), 0.0)
    return once, nothing, nothing, nothing, unit


def token_counts(work_unit: str, work: WorkSize) -> tuple[float, float, float, float]:
    """Returns an action's tokens in, tokens out, decoding steps and other units."""
    if work_unit != "tokens":
        return 0.0, 0.0, 0.0, work.units
    t_out = work.tokens_out if work.tokens_in or work.tokens_out else work.units
    return work.tokens_in, t_out, work.decode_steps or t_out, 0.0


def byte_feature(work_unit: str, work: WorkSize) -> float:
    """Returns the prior seconds of reading an action's inputs; 0 for work in tokens."""
    return 0.0 if work_unit == "tokens" else work.input_bytes / READ_INPUT_BYTES_PER_S


def features(work_unit: str, device_class: str, work: WorkSize, batch: float) -> Features:
    """Returns the parts of an action's prior seconds in an instance of ``batch`` actions."""
    once, token_in, token_out, step, unit = unit_features(
        work_unit, device_class, work.component_bytes, batch
    )
    t_in, t_out, steps, units = token_counts(work_unit, work)
    read = byte_feature(work_unit, work)
    return (
        once[0],
        token_in[1] * t_in + unit[1] * units,
        step[2] * steps + unit[2] * units,
        token_out[3] * t_out + read,
    )


def load_seconds(engine: str, device_class: str, component_bytes: int) -> float:
    """Returns the prior seconds until a new engine takes work, with its components on disk."""
    if component_bytes <= 0:
        return HOST_START_S
    rates = rates_of(device_class)
    capture_s = rates.capture_s if engine.startswith("llm.") and engine != "llm.embed" else 0.0
    return rates.process_s + capture_s + component_bytes / rates.load_bytes_per_s


def wake_seconds(device_class: str, component_bytes: int) -> float:
    """Returns the prior seconds until an engine that is asleep takes work."""
    return WAKE_S + component_bytes / rates_of(device_class).wake_bytes_per_s


def size_class(component_bytes: int) -> int:
    """Returns the class of a size: sizes within a factor of about four share a class."""
    return (component_bytes.bit_length() + 1) // 2
