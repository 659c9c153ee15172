"""The error for a name that no run has."""

from typing import Any

import pytest
from tests.flowmesh_cli.connection.test_artifact_lookup import run
from tests.flowmesh_cli.connection.test_service_lookup import status

from flowmesh_api.v1.runs import RunSummary
from flowmesh_api.v1.services import ServiceList
from flowmesh_cli.connection.run_lookup import find_run
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

IMPORTED = run("service-ask-docs-1", "service-ask-docs", "default")


class Laptop:
    """A client of a fabric that serves one service."""

    namespace, default_namespace = "", ""

    def __init__(self, *runs: RunSummary, lists_services: bool = True) -> None:
        self.runs, self.lists_services = list(runs), lists_services

    def get(self, path: str, kind: type, **query: Any) -> Any:
        if kind is not ServiceList:
            return self.runs
        if not self.lists_services:
            raise CliError("you may not list services", ExitCode.REFUSED)
        return ServiceList((status("ask-docs", "team-a"),))


@pytest.mark.parametrize("runs", [(), (IMPORTED,)])
def test_a_service_that_is_asked_for_as_a_run_is_shown_by_its_own_command(
    runs: tuple[RunSummary, ...],
) -> None:
    with pytest.raises(CliError, match="no run 'ask-docs', but a service of that name;") as caught:
        find_run(Laptop(*runs), "ask-docs")
    assert caught.value.remedy == "`fmesh services show ask-docs` shows it"


@pytest.mark.parametrize(
    ("client", "given", "message"),
    [
        (Laptop(IMPORTED), "service-ask-doc-1", "did you mean 'service-ask-docs-1'"),
        (Laptop(IMPORTED, lists_services=False), "ask-docs", "did you mean 'service-ask-docs'"),
        (Laptop(), "nothing", "there are no runs"),
        (Laptop(), "", "there are no runs"),
    ],
)
def test_another_name_suggests_a_similar_run(client: Laptop, given: str, message: str) -> None:
    with pytest.raises(CliError, match=message):
        find_run(client, given)
