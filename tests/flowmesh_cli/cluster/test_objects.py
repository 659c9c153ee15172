"""Messages of ``fmesh`` when the API server refuses an object."""

import json

import pytest

from flowmesh_cli.cluster.objects import ExistsError, MissingError, call_api_server
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

exceptions = pytest.importorskip("kubernetes.client.exceptions", reason="the operator extra")


def refused(status: int, body: dict[str, object]) -> CliError:
    error = exceptions.ApiException(status=status, reason="refused")
    error.body = json.dumps(body)

    def call() -> None:
        raise error

    with pytest.raises(CliError) as caught:
        call_api_server(call, where="flowmeshworkflows in team-a")
    return caught.value


def test_a_missing_namespace_is_an_error_with_the_command_that_creates_it() -> None:
    details = {"name": "team-a", "kind": "namespaces"}
    message = 'namespaces "team-a" not found'
    error = refused(404, {"reason": "NotFound", "message": message, "details": details})
    assert error.code == ExitCode.NOT_FOUND
    assert error.message == message
    assert error.remedy == "kubectl create namespace team-a, or choose another with -n NAME"


def test_a_missing_workflow_is_not_reported_as_a_missing_namespace() -> None:
    details = {"name": "nightly", "kind": "flowmeshworkflows"}
    error = refused(404, {"reason": "NotFound", "message": "not found", "details": details})
    assert "namespace" not in error.remedy


def test_a_missing_permission_still_refers_to_the_administrator() -> None:
    assert "administrator" in refused(403, {"message": "forbidden"}).remedy


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (409, "AlreadyExists", ExistsError),
        (404, "NotFound", MissingError),
        (409, "Conflict", MissingError),  # the precondition on the uid failed: another object
        (403, "Forbidden", CliError),
    ],
)
def test_an_object_that_exists_or_is_gone_is_an_error_of_its_own(
    status: int, reason: str, kind: type[CliError]
) -> None:
    assert type(refused(status, {"reason": reason})) is kind
