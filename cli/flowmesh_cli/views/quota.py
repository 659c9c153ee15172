"""Renders amounts of a quota: for ``fmesh quota`` and ``fmesh status``."""

import msgspec

from flowmesh_api.v1.quotas import QuotaLimit, QuotaUnit, QuotaUsage
from flowmesh_core.units import NANO_PER_USD, bytes_text, usd_text


def left(limit: QuotaLimit) -> float | None:
    """Returns what is left of a limit; None for what is counted over time or by user."""
    return None if limit.used is None else max(0.0, limit.most - limit.used)


def amount(value: float | None, unit: QuotaUnit | msgspec.UnsetType) -> str:
    """Formats an amount of a limit; empty for None."""
    if value is None:
        return ""
    if unit is QuotaUnit.BYTES:
        return bytes_text(int(value))
    if unit is QuotaUnit.USD:
        return usd_text(round(value * NANO_PER_USD))
    return f"{value:g}" if value % 1 else f"{value:,.0f}"


def left_text(usage: QuotaUsage) -> str:
    """Returns the line on what is left; empty where nothing is bounded."""
    if not usage.quota:
        return ""
    parts = [
        f"{limit.name} {amount(left(limit), limit.unit)} of {amount(limit.most, limit.unit)}"
        for limit in usage.limits
        if limit.used is not None
    ]
    return f"left of {usage.namespace}'s quota {usage.quota}: {', '.join(parts)}"
