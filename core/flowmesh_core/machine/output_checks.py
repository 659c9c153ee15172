"""Checks that an attempt's outputs are those of the step's contract."""

from collections.abc import Mapping

from flowmesh_core.catalog.resolved_contract import output_ports
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.machine.specs import ActionSpec
from flowmesh_core.protocol.results import Artifact

_REMEDY = "correct the engine: its outputs must be those of its contract, each of the port's kind"


def misfit(spec: ActionSpec, outputs: Mapping[str, Artifact]) -> Failure | None:
    """Returns a failure that names the port where outputs differ from the contract, or None."""
    contract = spec.contract
    for name, artifact in outputs.items():
        port = contract.output_port(name)
        if port is None:
            return _failure(
                f"{contract.name} gave an output {name!r}, which is not in its contract"
            )
        if artifact.kind != port.kind:
            return _failure(
                f"{contract.name} gave an output {name!r} of kind {artifact.kind} instead of "
                f"{port.kind}"
            )
    for port in output_ports(contract, spec.params):
        if port.required and port.name not in outputs:
            return _failure(f"{contract.name} gave no output {port.name!r}")
    return None


def _failure(message: str) -> Failure:
    return Failure(FailureKind.ENGINE, message, _REMEDY)
