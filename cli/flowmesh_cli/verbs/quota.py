"""``fmesh quota``: what a namespace may have, and what it has."""

import msgspec

from flowmesh_api.v1.quotas import QuotaUnit, QuotaUsage
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.target import Target
from flowmesh_cli.terminal import Terminal
from flowmesh_core.units import NANO_PER_USD, bytes_text, usd_text


def show_quota(*, namespace: str, place: Target, as_json: bool) -> None:
    """Shows the limits of a namespace, how much of each is used, and what is left."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        wanted = namespace or http.namespace or http.default_namespace
        usage = http.get("/v1/quota", QuotaUsage, namespace=wanted)
    if as_json:
        terminal.answer(usage)
        return
    if not usage.quota:
        terminal.note(f"no FlowMeshQuota selects namespace {usage.namespace}: nothing is bounded")
        return
    terminal.text(
        f"namespace {usage.namespace}: quota {usage.quota}, weight {usage.weight:g} in fair shares"
    )
    rows = [
        [
            limit.name,
            _amount(limit.most, limit.unit),
            "" if limit.used is None else _amount(limit.used, limit.unit),
            "" if limit.used is None else _amount(max(0.0, limit.most - limit.used), limit.unit),
        ]
        for limit in usage.limits
    ]
    terminal.table(["limit", "most", "used", "left"], rows, right="most used left")


def _amount(value: float, unit: QuotaUnit | msgspec.UnsetType) -> str:
    """Formats an amount of a limit."""
    if unit is QuotaUnit.BYTES:
        return bytes_text(int(value))
    if unit is QuotaUnit.USD:
        return usd_text(round(value * NANO_PER_USD))
    return f"{value:g}" if value % 1 else f"{value:,.0f}"
