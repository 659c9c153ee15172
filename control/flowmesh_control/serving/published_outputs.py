"""Finds what the runs of workflows have published, for inputs of services that name an output.

A service is applied with the output of the newest run that succeeded; with ``follow`` it is applied
again once there is a newer one.
"""

from typing import NamedTuple

from flowmesh_api.v1.enums import Phase
from flowmesh_control.queries.run_views import RunViews
from flowmesh_core.graph.published_inputs import PublishedOutput, parse_output
from flowmesh_core.spec.service import FlowMeshService


class FoundOutputs(NamedTuple):
    """The outputs that a service uses; those that no run has published are missing.

    Attributes:
        runs: the uid of the run that published it, by input.
        references: to its content, by input.
    """

    runs: dict[str, str]
    references: dict[str, str]


def named_outputs(
    service: FlowMeshService, *, followed: bool = False
) -> dict[str, PublishedOutput]:
    """Returns the outputs that inputs of a service name, by input.

    Args:
        service: the service.
        followed: whether only those that it follows are returned.
    """
    found = {}
    for name, spec in service.spec.inputs.items():
        if spec.output is not None and (spec.follow or not followed):
            output = parse_output(spec.output, service.metadata.namespace)
            if isinstance(output, PublishedOutput):
                found[name] = output
    return found


class PublishedOutputs:
    """Looks up runs."""

    def __init__(self, views: RunViews) -> None:
        self._views = views

    def newest_runs(self, namespace: str, outputs: dict[str, PublishedOutput]) -> dict[str, str]:
        """Returns the newest run of each workflow that succeeded, by input; nothing for others."""
        newest = {
            run.name: run.uid
            for run in self._views.summaries(namespace)
            if run.phase == Phase.SUCCEEDED and not run.audit_of
        }
        return {n: newest[o.workflow] for n, o in outputs.items() if o.workflow in newest}

    async def find(self, service: FlowMeshService) -> FoundOutputs:
        """Returns what the newest runs have published.

        Raises:
            DamagedRecordError: the record of a run cannot be read.
        """
        outputs = named_outputs(service)
        if not outputs:
            return FoundOutputs({}, {})
        runs = self.newest_runs(service.metadata.namespace, outputs)
        references: dict[str, str] = {}
        statuses = {uid: await self._views.status(uid) for uid in {*runs.values()}}
        for name, uid in runs.items():
            published = statuses[uid].outputs.get(outputs[name].output) or {}
            if "reference" in published:
                references[name] = published["reference"]
        return FoundOutputs({n: runs[n] for n in references}, references)
