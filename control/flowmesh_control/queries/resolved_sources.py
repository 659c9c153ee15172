"""Plans whose sources outside were resolved before, for ``fmesh plan --resolve``.

A run resolves each name that may change by a step of its own, and until then a forecast does not
know what is imported. With what that step would find the import has its name, so that published
content is a hit, and how many bytes it has to fetch is known.
"""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from flowmesh_api.v1.runs import ResolvedSource
from flowmesh_control.runs.admission import Compiled
from flowmesh_core.graph.external import pin_path
from flowmesh_core.graph.plan import ArtifactSource, Source, StepPlan, StepSource
from flowmesh_core.identity import canonical_bytes, digest_bytes
from flowmesh_core.protocol.results import content_artifact

Pins = Mapping[str, ResolvedSource]
"""By input, what its address means now."""


def with_pins(compiled: Compiled, pins: Pins) -> Compiled:
    """Returns the workflow whose imports read these pins, in place of those of its own steps."""
    artifacts = dict(compiled.artifacts)
    sources: dict[Source, Source] = {}
    for name, pin in pins.items():
        content = canonical_bytes(msgspec.to_builtins(pin))
        path = pin_path(name)
        artifacts[path] = content_artifact("blob", digest_bytes(content), len(content))
        sources[StepSource(path, "pin")] = ArtifactSource("blob", path)
    steps = tuple(_reading(step, sources) for step in compiled.plan.steps)
    plan = msgspec.structs.replace(compiled.plan, steps=steps)
    return replace(compiled, plan=plan, artifacts=artifacts)


def fetch_bytes(pin: ResolvedSource) -> int:
    """Returns the size of what a pin names; 0 where the source does not tell it."""
    return (pin.size or 0) + sum(size for _, size in pin.files or ())


def _reading(step: StepPlan, sources: Mapping[Source, Source]) -> StepPlan:
    edges = tuple(
        msgspec.structs.replace(edge, sources=tuple(sources.get(s, s) for s in edge.sources))
        for edge in step.edges
    )
    return step if edges == step.edges else msgspec.structs.replace(step, edges=edges)
