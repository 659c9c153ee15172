"""How long one attempt of a step may run: the step's timeout, or its engine's default.

Timeouts are not part of a name, a signature or an identity: a result is the same however long it
took. The compiler checks a step's timeout, and the machine gives it to each attempt.
"""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.catalog.contract import EngineContract

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
_START_S = MINUTE_S
"""Seconds of an attempt besides the work that a parameter limits."""
_UNITS = ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "m"))


def attempt_timeout_s(contract: EngineContract, params: Mapping[str, Any], given_s: float) -> float:
    """Returns how long an attempt may run, in seconds; 0 is unlimited.

    Args:
        contract: of the engine.
        params: of the step; one of them may limit the engine's own work, and a default is never
            shorter than that.
        given_s: the step's timeout; 0 where it has none.
    """
    if given_s or not contract.default_timeout_s:
        return given_s
    own_s = float(params.get(contract.timeout_param) or 0.0) if contract.timeout_param else 0.0
    return max(contract.default_timeout_s, own_s + _START_S if own_s else 0.0)


def timeout_problem(contract: EngineContract, given_s: float) -> str:
    """Returns what is wrong with a step's timeout, and what to do; empty where nothing is."""
    longest = contract.max_timeout_s
    if not longest or given_s <= longest:
        return ""
    return (
        f"an attempt of {contract.name} may run {duration(longest)} at most;"
        f" write {duration(longest)} or less, or split the step"
    )


def duration(seconds: float) -> str:
    """Returns a duration as users write it, in its largest whole unit: ``10m``, ``24h``, ``7d``."""
    for unit_s, name in _UNITS:
        if seconds % unit_s == 0 and (name != "d" or seconds > 2 * DAY_S):
            return f"{seconds / unit_s:.0f}{name}"
    return f"{seconds:g}s"
