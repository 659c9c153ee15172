"""What runs the code of components for their host: the sandbox, or a thread for trusted code."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from flowmesh_worker.engines.code.component_frames import BatchCall, CallResult, StepMember
from flowmesh_worker.engines.code.iterating_code import StepResults
from flowmesh_worker.ipc.passed_values import StageBytes


class CodeRunner(Protocol):
    """Runs batches, and steps of components that iterate, one at a time."""

    @property
    def iterating(self) -> tuple[str, ...]:
        """The names of the components that iterate."""
        ...

    async def run(
        self,
        component: str,
        calls: Sequence[BatchCall],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> list[CallResult]:
        """Returns the results, in order; ``passed`` has values of other hosts, by call."""
        ...

    async def step(
        self,
        component: str,
        members: Sequence[StepMember],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> StepResults:
        """Returns the results, in order; ``passed`` has values of other hosts, by member."""
        ...

    def forget(self, keys: tuple[str, ...]) -> None:
        """Drops results, or states of calls, that are kept."""
        ...

    async def close(self) -> None:
        """Ends what runs the code."""
        ...
