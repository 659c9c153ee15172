"""All evaluators of a control plane, as its settings have them."""

from dataclasses import dataclass

from flowmesh_control.evaluators.compilation import CompilerSetup
from flowmesh_control.evaluators.compilers import InlineCompiler, SandboxedCompiler
from flowmesh_control.evaluators.conditions import InlineConditions, SandboxedConditions
from flowmesh_control.settings import ControlSettings
from flowmesh_core.catalog.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Evaluators:
    """What evaluates the texts of tenants.

    Attributes:
        of_runs: the conditions of runs.
        of_forecasts: the conditions of forecasts, so that these do not delay runs.
        compiler: checks and compiles workflows.
    """

    of_runs: InlineConditions | SandboxedConditions
    of_forecasts: InlineConditions | SandboxedConditions
    compiler: InlineCompiler | SandboxedCompiler

    @classmethod
    def of(cls, settings: ControlSettings, catalog: Catalog) -> "Evaluators":
        """Returns the evaluators; none has started a process."""
        setup = CompilerSetup(catalog, settings.limits)
        if settings.sandboxed_evaluators:
            return cls(SandboxedConditions(), SandboxedConditions(), SandboxedCompiler(setup))
        return cls(InlineConditions(), InlineConditions(), InlineCompiler(setup))

    async def close(self) -> None:
        """Ends their processes."""
        for one in (self.of_runs, self.of_forecasts, self.compiler):
            await one.close()
