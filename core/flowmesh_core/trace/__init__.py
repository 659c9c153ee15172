"""What happened in real runs, without what they were about; for ``fmesh replay``."""

from flowmesh_core.trace.project import recorded
from flowmesh_core.trace.records import (
    After,
    AttemptRecord,
    EngineRecord,
    PartRecord,
    RecordedRun,
    StepRecord,
)

__all__ = [
    "After",
    "AttemptRecord",
    "EngineRecord",
    "PartRecord",
    "RecordedRun",
    "StepRecord",
    "recorded",
]
