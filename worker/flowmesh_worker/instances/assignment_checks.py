"""What a worker refuses as it comes in, before anything is fetched for it."""

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import Assignment, FailureReport, PrewarmSpec
from flowmesh_worker.engines.registry import Engines


def refused(
    engines: Engines, asked: Assignment | PrewarmSpec, *, draining: bool
) -> FailureReport | None:
    """Why an attempt cannot be taken up here, or a host opened; None where it can."""
    name = asked.engine
    contract = engines.contract(name)
    if draining:
        return FailureReport(FailureKind.DRAINED.value, "the worker takes nothing new")
    if contract is None:
        return FailureReport(
            FailureKind.ENGINE.value,
            f"this worker has no engine {name!r}",
            f"it has {', '.join(engines.names())}; install the plugin in its image",
        )
    wanted = (asked.contract, asked.implementation)
    if wanted != (contract.version, contract.implementation):
        return FailureReport(
            FailureKind.ENGINE.value,
            f"{name} is wanted in contract and implementation {wanted}; this worker has "
            f"{(contract.version, contract.implementation)}",
            "use a pool with the pinned version, or re-pin the run",
        )
    return None
