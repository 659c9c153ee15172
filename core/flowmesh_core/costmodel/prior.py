"""The roofline prior: what an action takes in parts, before anything was observed.

The parts are the features of the regression in ``model``: their coefficients start at 1, so the
prior and the learned fit have one form, and what is learned on one model size carries over to
another. Decoding follows the serial roofline (step = bytes read over bandwidth, plus a linear term
in the sequences of the batch), fitted to the published points named in ``devices``.
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
"""Fixed time; then, for tokens, prefill, decoding alone, decoding's growth with the batch; for all
other work, units, growth with the batch, input bytes."""
CONTENTION = 0.25
"""Part of an action's time that each other action in an instance adds, for work without tokens."""
READ_INPUT_BYTES_PER_S = 2e8

Features = tuple[float, float, float, float]


def token_step_s(rates: DeviceRates, component_bytes: int) -> tuple[float, float]:
    """Returns the seconds of a decoding step: its fixed part, and the part per sequence.

    Weights count two bytes a parameter, so a token costs as many operations as there are bytes.
    """
    fixed = component_bytes / rates.read_bytes_per_s + rates.step_s
    per_sequence = component_bytes / rates.decode_flops_per_s + rates.step_s_per_sequence
    return fixed, per_sequence


@lru_cache(maxsize=4096)
def unit_features(
    work_unit: str, device_class: str, component_bytes: int, batch: float
) -> tuple[Features, Features, Features, Features, Features]:
    """Returns the features that an action, a token in, a token out, a step and a unit contribute.

    The features of an action are the sum of these, times its tokens and units, so that a prediction
    is a linear function of the work (``bytes`` are treated by ``features``).
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
    """Returns tokens in, tokens out, decoding steps and other units of an action."""
    if work_unit != "tokens":
        return 0.0, 0.0, 0.0, work.units
    t_out = work.tokens_out if work.tokens_in or work.tokens_out else work.units
    return work.tokens_in, t_out, work.decode_steps or t_out, 0.0


def byte_feature(work_unit: str, work: WorkSize) -> float:
    """Returns the prior seconds of reading the inputs, for work without tokens."""
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
    """Returns the prior seconds until an engine with its components on disk takes work."""
    if component_bytes <= 0:
        return HOST_START_S
    rates = rates_of(device_class)
    capture_s = rates.capture_s if engine.startswith("llm.") and engine != "llm.embed" else 0.0
    return rates.process_s + capture_s + component_bytes / rates.load_bytes_per_s


def wake_seconds(device_class: str, component_bytes: int) -> float:
    """Returns the prior seconds until an engine that is asleep takes work."""
    return WAKE_S + component_bytes / rates_of(device_class).wake_bytes_per_s


def size_class(component_bytes: int) -> int:
    """Returns the class of a size: weights within a factor of about four share one."""
    return (component_bytes.bit_length() + 1) // 2
