"""``fmesh why REQUEST``: where the time of a request went, from the status that its router keeps.

On the laptop, where the state folder says which router serves: no router of a cluster can be chosen
behind one address.
"""

import re
from typing import Any
from urllib.parse import quote

from flowmesh_cli.connection.router_request import json_of, refusal_of, send_to_router
from flowmesh_cli.connection.state_dir import state_dir
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.local.router import Endpoint, endpoint
from flowmesh_cli.terminal import Terminal

_REQUEST_ID = re.compile(r"[0-9a-f]{24}")
_OK, _NOT_FOUND = 200, 404
_TIMEOUT_S = 10.0
_BOUND = "a router remembers the last 100 that ended of each namespace at each service, in memory"
_CODES = {
    "overloaded": "the service was at its limit of requests, or the reply would have been late",
    "rate_limit_exceeded": "its namespace had its full share of the service's requests in flight",
    "no_replica": "no replica was ready in time: `fmesh services list` shows what it waits for",
    "replica_lost": "its replica ended while it ran, and no other replica took it",
    "deadline_exceeded": "its timeout had passed",
    "user_code": "a Python component failed on it",
    "request_cancelled": "it was cancelled by its id",
}


def is_request(named: str) -> bool:
    """Returns whether a name has the form of a request's id, as ``X-Flowmesh-Request`` says it."""
    return _REQUEST_ID.fullmatch(named) is not None


def show_request(request_id: str, *, place: Target, as_json: bool) -> None:
    """Shows a request of a service that is served from the state folder.

    Raises:
        CliError: the target is a cluster, nothing is served here, or the router does not know it.
    """
    if place.is_cluster:
        raise CliError(
            f"only the router that took request {request_id} knows it, and clients of a cluster"
            " cannot choose a router",
            ExitCode.USAGE,
            remedy="GET /v1/services/NAMESPACE/NAME/requests/ID at status.endpoint, with a token of"
            " the service, asks one of its routers",
        )
    terminal = Terminal(as_json=as_json)
    found = _find(endpoint(state_dir(place.state_dir)), request_id)
    if as_json:
        terminal.answer(found)
        return
    for line in story_of(found):
        terminal.text(line)


def story_of(found: dict[str, Any]) -> list[str]:
    """Returns the lines that explain a request's status."""
    lines = [f"request   {found['id']} to {found['service']}, {found['path']}"]
    lines.append(f"state     {_state(found)}")
    if found.get("release"):
        lines.append(f"release   {found['release']}")
    lines += [f"stage     {one['name']}: {one['state']}" for one in found.get("stages", ())]
    calls = found.get("calls", ())
    lines += [_call(one) for one in calls]
    timed = [one for one in calls if one["compute_s"] is not None]
    if len(calls) == len(timed) == 1:  # several may have run side by side
        spent_s = found["ended"] - found["created"]
        rest_s = spent_s - timed[0]["queue_s"] - timed[0]["compute_s"]
        lines.append(f"elsewhere {_ms(max(0.0, rest_s))}: router, connections, and its client")
    return lines


def _find(served: Endpoint, request_id: str) -> dict[str, Any]:
    for model, service in served.services.items():
        url = f"{served.url}/services/{quote(service)}/requests/{request_id}"
        token = served.tokens[model]
        with send_to_router("GET", url, token, timeout_s=_TIMEOUT_S) as response:
            if response.status == _OK:
                return dict(json_of(response))
            if response.status != _NOT_FOUND:
                where = f"{service}, HTTP {response.status}"
                raise CliError(refusal_of(response), ExitCode.REFUSED, where=where)
    raise CliError(
        f"the router of this folder does not know request {request_id}",
        ExitCode.NOT_FOUND,
        where=", ".join(served.services),
        remedy=f"it was refused before it began, was sent to another router, or is forgotten:"
        f" {_BOUND}",
    )


def _state(found: dict[str, Any]) -> str:
    if found["state"] != "ended":
        return str(found["state"])
    text = f"ended, {found['outcome']}, after {_ms(found['ended'] - found['created'])}"
    if (code := found["code"]) is not None:
        text += f": {code}" + (f", {_CODES[code]}" if code in _CODES else "")
    return text


def _call(one: dict[str, Any]) -> str:
    name = f"stage     {one['stage']}: " if one["stage"] else "call      "
    if one["compute_s"] is None:
        return f"{name}at {one['replica']}, which did not say for how long"
    times = f"waited {_ms(one['queue_s'])}, ran {_ms(one['compute_s'])}"
    return f"{name}{times} at {one['replica']}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"
