"""``fmesh services top``: the load of services, the busiest first."""

from collections.abc import Iterable

from flowmesh_api.v1.services import ServiceList, ServiceRequests, ServiceStatus
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.chosen_namespace import chosen_namespace
from flowmesh_cli.connection.service_lookup import all_services
from flowmesh_cli.connection.target import Target
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.services import replicas_text, with_namespaces
from flowmesh_cli.views.formatting import usd

_EVERY_S = 2.0
_HEADINGS = ["service", "phase", "rate", "in flight", "p50", "p95", "missed", "ready", "$/h"]
_NUMBERS = ["rate", "in flight", "p50", "p95", "missed", "ready", "$/h"]


def show_top(*, once: bool, namespace: str, place: Target, as_json: bool) -> None:
    """Shows the load of services: again and again on a terminal, else once.

    Args:
        once: shows it once on a terminal too.
        namespace: of the services; empty for the fabric's own, or for all on a laptop.
        place: the fabric.
        as_json: writes the services as JSON, once.
    """
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        wanted = chosen_namespace(http, namespace)

        def found() -> list[ServiceStatus]:
            return by_rate(all_services(http, wanted))

        def table() -> tuple[list[str], list[list[str]]]:
            shown = found()
            rows = rows_of(shown)
            return (_HEADINGS, rows) if wanted else with_namespaces(_HEADINGS, rows, shown)

        if as_json:
            terminal.answer(ServiceList(tuple(found())))
        elif once or not terminal.out.is_terminal:
            terminal.table(*table(), right=_NUMBERS)
        else:
            terminal.redrawn(table, right=_NUMBERS, every_s=_EVERY_S)


def by_rate(listed: Iterable[ServiceStatus]) -> list[ServiceStatus]:
    """Returns the services, the one with the most requests a second first."""
    return sorted(listed, key=lambda s: (-s.requests.rate_per_s, s.name, s.namespace))


def rows_of(services: list[ServiceStatus]) -> list[list[str]]:
    """Returns the cells of a table of services."""
    return [_row(one) for one in services]


def _row(one: ServiceStatus) -> list[str]:
    seen = one.requests
    return [
        one.name,
        one.phase,
        f"{seen.rate_per_s:.3g}/s",
        str(seen.in_flight),
        _ms(seen.p50_s),
        _ms(seen.p95_s),
        _missed(seen),
        replicas_text(one),
        usd(one.nanousd_per_hour) if one.nanousd_per_hour else "-",
    ]


def _missed(seen: ServiceRequests) -> str:
    """Returns the largest share of replies that missed a target; ``-`` without one."""
    shares = [
        missed / ended
        for missed, ended, target_s in (
            (seen.missed, seen.ended, seen.latency_s),
            (seen.missed_ttft, seen.streamed, seen.ttft_s),
            (seen.missed_tpot, seen.token_timed, seen.tpot_s),
        )
        if target_s and ended
    ]
    return f"{max(shares):.1%}" if shares else "-"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds else "-"
