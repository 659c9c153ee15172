"""What happened in real runs, without what they were about; for ``fmesh replay``."""

from flowmesh_core.trace.project import recorded
from flowmesh_core.trace.records import (
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
