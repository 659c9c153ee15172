"""``fmesh quota``: what a namespace may have, and what it has."""

from flowmesh_api.v1.quotas import QuotaUsage
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.chosen_namespace import chosen_namespace
from flowmesh_cli.connection.target import Target
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.quota import amount, left


def show_quota(*, namespace: str, place: Target, as_json: bool) -> None:
    """Shows the limits of a namespace, how much of each is used, and what is left."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        wanted = chosen_namespace(http, namespace)
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
            *(amount(value, limit.unit) for value in (limit.most, limit.used, left(limit))),
        ]
        for limit in usage.limits
    ]
    terminal.table(["limit", "most", "used", "left"], rows, right="most used left")
