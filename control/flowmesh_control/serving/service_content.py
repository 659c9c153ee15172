"""What a service consists of: its application as a checked document, its models as a release."""

from collections.abc import Mapping

import msgspec
from pydantic import ValidationError

from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.services import ServiceApplication
from flowmesh_control.errors import ForbiddenError
from flowmesh_control.records.service_records import (
    PendingRelease,
    ReleasedComponent,
    ServiceRecord,
    ServiceRelease,
)
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_control.serving.published_outputs import named_outputs
from flowmesh_core.errors import IdentityError, SpecError
from flowmesh_core.graph.plan import Source
from flowmesh_core.identity import digest_bytes
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.spec.error_messages import problems_of
from flowmesh_core.spec.service import FlowMeshService
from flowmesh_documents.parameters import whole_numbers


def parse_service(application: ServiceApplication) -> FlowMeshService:
    """Returns the service of an application.

    Raises:
        SpecError: everything that is wrong with its fields.
    """
    document = dict(application.document)
    metadata = document.get("metadata")
    if application.namespace and isinstance(metadata, dict):
        document["metadata"] = {**metadata, "namespace": application.namespace}
    document.pop("status", None)
    try:
        return FlowMeshService.model_validate(whole_numbers(document))
    except ValidationError as error:
        raise SpecError(problems_of(error, FlowMeshService)) from error


def uploads_beside_outputs(service: FlowMeshService, uploads: Mapping[str, str]) -> dict[str, str]:
    """Returns the uploads of inputs that are not outputs of workflows."""
    named = named_outputs(service)
    return {name: reference for name, reference in uploads.items() if name not in named}


async def stored_rows(service: FlowMeshService, content: UploadStore, scope: str) -> dict[str, str]:
    """Stores the rows that a service's document has; returns their references by input.

    Raises:
        SpecError: rows have mixed types.
        StoreError: they could not be stored.
    """
    found, problems = {}, []
    for name, given in service.spec.inputs.items():
        if given.rows is not None:
            try:
                found[name] = (await content.put_rows(given.rows, scope)).reference
            except IdentityError as e:
                problems.append(Problem(f"spec.inputs.{name}.rows", e.message))
    if problems:
        raise SpecError(problems)
    return found


def with_models(
    service: ServiceRecord, pending: PendingRelease, models: dict[Source, Artifact] | str
) -> ServiceRecord:
    """Returns a service with the release of these models, or with why there is none."""
    if isinstance(models, str):
        return msgspec.structs.replace(service, failure=models)
    components = tuple(
        ReleasedComponent(c, {e.port: models[e.sources[0]] for e in c.step.edges})
        for c in pending.plan.components
    )
    named = [(c.plan, {p: a.digest for p, a in c.models.items()}) for c in components]
    name = f"r{digest_bytes(msgspec.json.encode(named))[:8]}"
    scopes = pending.scopes
    release = ServiceRelease(
        name,
        components,
        scopes.readable,
        scopes.min_trust,
        pending.entry,
        pending.plan.arrivals,
    )
    return msgspec.structs.replace(service, pending=None, release=release)


def no_right_to_change(service: str) -> ForbiddenError:
    """Returns the error of an application that would change an existing service."""
    return ForbiddenError(
        f"the service {service} exists with another content, and you may not update"
        " flowmeshservices.flowmesh.dev in its namespace",
        where="metadata.name",
        remedy="choose another name, or ask an administrator for the right `update`",
    )
