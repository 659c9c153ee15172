"""``fmesh token``: the keys with which OpenAI's clients call a service of a cluster."""

from flowmesh_api.v1 import routes
from flowmesh_api.v1.services import (
    ServiceTokenCreated,
    ServiceTokenList,
    ServiceTokenRequest,
    ServiceTokenRevoked,
)
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.service_lookup import find_service
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.formatting import date
from flowmesh_core.spec.quantities import not_zero, seconds

_NEVER = "never"


def create_token(
    service: str, *, expires: str, namespace: str, place: Target, as_json: bool
) -> None:
    """Creates a token and prints it.

    Raises:
        CliError: the service is unknown, or ``expires`` is not a duration.
    """
    terminal = Terminal(as_json=as_json)
    body = ServiceTokenRequest(0.0 if expires == _NEVER else _valid_s(expires))
    path = routes.SERVICE_TOKENS.format(name=service)
    with query_fabric(place) as http:
        query = {"namespace": find_service(http, namespace, service)}
        found = http.ask("POST", path, ServiceTokenCreated, query=query, document=body)
    if as_json:
        terminal.answer(found)
        return
    terminal.text(found.token)
    terminal.note(f"id {found.id}, expires {_when(found.expires_s)}; it is not shown again")


def show_tokens(service: str, *, namespace: str, place: Target, as_json: bool) -> None:
    """Lists the tokens of a service."""
    terminal = Terminal(as_json=as_json)
    path = routes.SERVICE_TOKENS.format(name=service)
    with query_fabric(place) as http:
        wanted = find_service(http, namespace, service)
        found = http.get(path, ServiceTokenList, namespace=wanted)
    if as_json:
        terminal.answer(found)
        return
    rows = [[t.id, date(t.created_s), _when(t.expires_s)] for t in found.tokens]
    terminal.table(["id", "created", "expires"], rows)


def revoke_token(
    service: str, token_id: str, *, namespace: str, place: Target, as_json: bool
) -> None:
    """Revokes a token."""
    terminal = Terminal(as_json=as_json)
    path = routes.SERVICE_TOKEN.format(name=service, id=token_id)
    with query_fabric(place) as http:
        query = {"namespace": find_service(http, namespace, service)}
        found = http.ask("DELETE", path, ServiceTokenRevoked, query=query)
    if as_json:
        terminal.answer(found)
        return
    terminal.text(f"token {token_id} is revoked; routers refuse it within seconds")


def _valid_s(text: str) -> float:
    try:
        return not_zero(seconds(text))
    except ValueError as e:
        raise CliError(
            str(e), ExitCode.USAGE, where="--expires", remedy=f"write 30d, 12h or {_NEVER}"
        ) from e


def _when(expires_s: float) -> str:
    return date(expires_s) if expires_s else _NEVER
