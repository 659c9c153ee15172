"""Records real runs without their content, for ``fmesh replay`` in the simulator."""

from flowmesh_core.recording.projection import recorded
from flowmesh_core.recording.records import (
    AttemptRecord,
    EngineRecord,
    PartRecord,
    RecordedRun,
    StepDependency,
    StepRecord,
)

__all__ = [
    "AttemptRecord",
    "EngineRecord",
    "PartRecord",
    "RecordedRun",
    "StepDependency",
    "StepRecord",
    "recorded",
]
