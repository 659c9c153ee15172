"""``fmesh services capacity``: what becomes of requests at several loads, and what is measured."""

from flowmesh_api.v1.services import ServiceCapacity
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.service_lookup import find_service
from flowmesh_cli.connection.target import Target
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.services import requests_text, scaled_target, service_path
from flowmesh_cli.views.formatting import count

_WHOLE_MS = 10


def show_capacity(name: str, *, namespace: str, place: Target, as_json: bool) -> None:
    """Shows the capacity curve of a service, beside its measured requests."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        wanted = find_service(http, namespace, name)
        path = service_path(name, "capacity")
        found = http.get(path, ServiceCapacity, namespace=wanted)
    if as_json:
        terminal.answer(found)
        return
    terminal.text(f"measured  {requests_text(found.requests)}")
    if found.requests.scale:
        terminal.text(f"target    {scaled_target(found.requests)}")
    for one in found.stages:
        measured = f"{_ms(one.alone_s)} alone, replicas: {one.replicas}"
        if one.at_once:
            measured += f", measured with up to {count(one.at_once, 'call')} at once"
        terminal.text(f"stage     {one.stage}: {measured if one.alone_s else 'not measured yet'}")
    if found.reason:
        terminal.note(f"no capacity curve: {found.reason}")
        return
    has_target = bool(found.requests.latency_s)
    terminal.text(
        f"best      {found.best_per_s:.3g} requests/s, at which some component is always busy"
    )
    rows = [
        [
            f"{p.rate_per_s:.3g}/s",
            _ms(p.p50_s),
            _ms(p.p99_s),
            f"{p.miss_rate:.1%}" if has_target else "-",
            "predicted",
        ]
        for p in found.points
    ]
    seen = found.requests
    if seen.p99_s:
        late = f"{seen.missed / seen.ended:.1%}" if has_target else "-"
        rows.append(
            [f"{seen.rate_per_s:.3g}/s", _ms(seen.p50_s), _ms(seen.p99_s), late, "measured"]
        )
    terminal.table(["load", "p50", "p99", "late", "from"], rows, right="load p50 p99 late")


def _ms(seconds: float) -> str:
    ms = seconds * 1e3
    return f"{ms:.0f} ms" if ms >= _WHOLE_MS else f"{ms:.2g} ms"
