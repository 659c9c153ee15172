"""Answers the worker agent's questions about the installed engines."""

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import Assignment, FailureReport, PrewarmSpec
from flowmesh_core.worker_agent.ports import Preload
from flowmesh_worker.engines.preload import HostPreload
from flowmesh_worker.engines.registry import Engines


class InstalledEngines:
    """Implements the agent's port ``EngineFacts``."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._preloads: dict[str, HostPreload] = {}

    def refusal(self, wanted: Assignment | PrewarmSpec) -> FailureReport | None:
        """See ``EngineFacts.refusal``: the engine is missing, or has another version."""
        name = wanted.engine
        contract = self._engines.contract(name)
        if contract is None:
            return FailureReport(
                FailureKind.ENGINE.value,
                f"this worker has no engine {name!r}",
                f"it has {', '.join(self._engines.names())}; install the plugin in its image",
            )
        expected = (wanted.contract, wanted.implementation)
        if expected != (contract.version, contract.implementation):
            return FailureReport(
                FailureKind.ENGINE.value,
                f"contract and implementation of {name} on this worker are "
                f"{(contract.version, contract.implementation)}: expected {expected}",
                "use a pool with the pinned version, or re-pin the run",
            )
        return None

    def devices(self, engine: str, tensor_parallel: int) -> int:
        """See ``EngineFacts.devices``."""
        return self._engines.devices(engine, tensor_parallel)

    def preload(self, wanted: Assignment | PrewarmSpec) -> Preload | None:
        """See ``EngineFacts.preload``."""
        preload = self._engines.preparation(wanted.engine, wanted.signature_params)
        if preload is None:
            return None
        key = f"{preload.name}: {' '.join(preload.modules)}"
        self._preloads[key] = preload
        return Preload(key, preload.memory_mib)

    def host_preload(self, name: str) -> HostPreload:
        """Returns what a standby host imports, by the name that :meth:`preload` returned."""
        return self._preloads[name]
