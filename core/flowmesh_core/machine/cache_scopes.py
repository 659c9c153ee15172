"""In which scope an action is published, and in which it is looked up."""

from collections.abc import Mapping

from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.protocol.results import Artifact


def scopes_of(
    run: Run, step: StepRun, inputs: Mapping[str, Artifact]
) -> tuple[str, tuple[str, ...]]:
    """Returns the scope where a part with these inputs is published, and those for its look-up.

    A name that leaves an input out does not depend on that input's content. No name depends on
    secrets either, and what they open is not everybody's. So such a result neither leaves the run's
    own scope nor comes from another one.
    """
    plan = step.plan
    if plan.secrets or any(port in inputs for port in plan.cache.ignored_inputs):
        return run.scopes.private, (run.scopes.private,)
    return run.scopes.publish, run.scopes.lookup
