"""The knobs of the control plane around the machine."""

from dataclasses import dataclass, field

from flowmesh_core.graph.limits import Limits
from flowmesh_core.machine.settings import Settings


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """Fixed while a control plane lives.

    Attributes:
        machine: those of the run machine.
        limits: bounds on one workflow, checked at admission.
        sync_interval_s: how often workers say that they are there.
        flush_s: how often ledgers are flushed.
        lead_check_s: how often it is checked that nobody else leads.
        model_save_s: how often the cost model is saved.
        upload_bytes_max: the largest upload of rows or of a directory.
        objects: runs and policies are objects of a cluster: the API takes none in, and changes
            none but by ending or re-pinning a run.
        metrics_open: ``/metrics`` asks for no token; for a network that lets in Prometheus alone.
    """

    machine: Settings = field(default_factory=Settings)
    limits: Limits = field(default_factory=Limits)
    sync_interval_s: float = 1.0
    flush_s: float = 1.0
    lead_check_s: float = 5.0
    model_save_s: float = 30.0
    upload_bytes_max: int = 64 << 30
    objects: bool = False
    metrics_open: bool = False
