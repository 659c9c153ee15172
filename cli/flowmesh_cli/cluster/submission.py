"""Submits workflows to a cluster by creating objects with the user's rights."""

import msgspec

from flowmesh_api.v1.runs import RunAccepted
from flowmesh_cli.cluster.gateway import ClusterGateway
from flowmesh_cli.connection.client import EXIT_CODES, UNMEETABLE
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.workflows.sources import Source
from flowmesh_cli.workflows.upload import upload_inputs
from flowmesh_core.errors import SpecError
from flowmesh_sdk import workflow_objects
from flowmesh_sdk.errors import ApiError, FabricUnavailableError
from flowmesh_sdk.workflow_objects import Object


def submit_object(gateway: ClusterGateway, source: Source) -> RunAccepted:
    """Uploads inputs, creates the object, and waits until the operator has started its run.

    Raises:
        FilesError: the workflow is invalid, or its terms cannot be met; each problem has its place
            in the file.
        CliError: the API server or the operator refused it.
    """
    upload_inputs(gateway, source)
    document = source.document.value
    try:
        return workflow_objects.submit_object(gateway, gateway.objects, document, source.uploads)
    except SpecError as e:
        raise FilesError(source.refused_lines(e.problems)) from None
    except ApiError as e:
        if e.status == UNMEETABLE:
            raise source.unmeetable(e.message) from None
        where = f"{source.file}: {source.title}"
        raise CliError(e.message, EXIT_CODES[e.status], where=where, remedy=e.remedy) from None
    except FabricUnavailableError as e:
        raise CliError(e.message, ExitCode.NO_FABRIC, where=e.where, remedy=e.remedy) from None


def amend_object(gateway: ClusterGateway, uid: str, changes: Object) -> None:
    """Changes the spec of a run's object; the operator then amends the run.

    Raises:
        CliError: the object does not exist, or the API server refused the change.
    """
    run = gateway.get(f"/v1/runs/{uid}", _Named)
    gateway.objects.patch(run.namespace, run.name, uid, changes)


class _Named(msgspec.Struct, frozen=True):
    """The part of a run's status that names its object."""

    name: str
    namespace: str
