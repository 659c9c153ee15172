"""Fixed names of what goldens of the worker agent hold; see ``tests.golden.kinds``."""

from collections.abc import Mapping

from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i
from flowmesh_core.worker_agent.machine import FullReport
from flowmesh_core.worker_agent.memory_reservations import Reservation

START = "scenario"
"""The kind of the first line, whose event is the scenario."""
FULL_REPORT = "full-report"
SYNC = "sync"
"""The kinds of lines on which the agent was asked for a report; the event are all components."""

EVENTS: Mapping[type, str] = {
    e.Connected: "connected",
    e.Disconnected: "disconnected",
    e.DesiredReceived: "desired-received",
    e.StopRequested: "stop-requested",
    e.TimerFired: "timer-fired",
    e.InputsReady: "inputs-ready",
    e.InputsFailed: "inputs-failed",
    e.CheckpointFetched: "checkpoint-fetched",
    e.CheckpointStored: "checkpoint-stored",
    e.CheckpointsFlushed: "checkpoints-flushed",
    e.ComponentsChanged: "components-changed",
    e.ComponentFetched: "component-fetched",
    e.ComponentFailed: "component-failed",
    e.OutputsStored: "outputs-stored",
    e.OutputsFailed: "outputs-failed",
    e.HostStarted: "host-started",
    e.HostLoaded: "host-loaded",
    e.HostLoadFailed: "host-load-failed",
    e.HostExited: "host-exited",
    e.HostPrinted: "host-printed",
    e.HostSilent: "host-silent",
    e.MemoryMeasured: "memory-measured",
    e.AttemptProgressed: "attempt-progressed",
    e.AttemptFinished: "attempt-finished",
    e.StandbyReady: "standby-ready",
    e.StandbyExited: "standby-exited",
}

INSTRUCTIONS: Mapping[type, str] = {
    i.FetchInputs: "fetch-inputs",
    i.FetchCheckpoint: "fetch-checkpoint",
    i.FlushCheckpoints: "flush-checkpoints",
    i.StoreOutputs: "store-outputs",
    i.DropAttempt: "drop-attempt",
    i.StartHost: "start-host",
    i.CloseHost: "close-host",
    i.KillHost: "kill-host",
    i.RunAttempt: "run-attempt",
    i.CancelAttempt: "cancel-attempt",
    i.RequestCheckpoint: "request-checkpoint",
    i.ReleaseFiles: "release-files",
    i.FetchComponent: "fetch-component",
    i.ReleaseComponents: "release-components",
    i.PrewarmFailed: "prewarm-failed",
    i.StartStandby: "start-standby",
    i.StopStandby: "stop-standby",
    i.Forget: "forget",
    i.SetTimer: "set-timer",
    i.ClearTimer: "clear-timer",
    i.SendReport: "send-report",
    i.Leave: "leave",
}

FIELDS: Mapping[type, tuple[str, ...]] = {
    # -- events
    e.Connected: (),
    e.Disconnected: (),
    e.DesiredReceived: ("desired",),
    e.StopRequested: (),
    e.TimerFired: ("timer",),
    e.InputsReady: ("attempt_id",),
    e.InputsFailed: ("attempt_id", "failure"),
    e.CheckpointFetched: ("attempt_id", "unusable"),
    e.CheckpointStored: ("checkpoint",),
    e.CheckpointsFlushed: ("attempt_id",),
    e.ComponentsChanged: ("local",),
    e.ComponentFetched: ("signature", "port"),
    e.ComponentFailed: ("signature", "failure"),
    e.OutputsStored: ("attempt_id", "outputs", "inline"),
    e.OutputsFailed: ("attempt_id", "failure"),
    e.HostStarted: ("instance_id",),
    e.HostLoaded: ("instance_id", "capacity", "load_s", "libraries"),
    e.HostLoadFailed: ("instance_id", "failure"),
    e.HostExited: ("instance_id", "failure"),
    e.HostPrinted: ("instance_id", "line"),
    e.HostSilent: ("instance_id", "silent_s"),
    e.MemoryMeasured: ("instance_id", "used_mib"),
    e.AttemptProgressed: ("instance_id", "attempt_id", "units", "done", "total", "unit"),
    e.AttemptFinished: (
        "instance_id",
        "attempt_id",
        "failure",
        "keeps_files",
        "outputs",
        "inline",
        "usage",
        "libraries",
    ),
    e.StandbyReady: ("host_id",),
    e.StandbyExited: ("host_id",),
    e.AttemptUsage: ("run_s", "units", "tokens_in", "tokens_out", "joules", "peak_memory_mib"),
    # -- instructions
    i.FetchInputs: ("assignment",),
    i.FetchCheckpoint: ("attempt_id",),
    i.FlushCheckpoints: ("attempt_id",),
    i.StoreOutputs: ("attempt_id",),
    i.DropAttempt: ("assignment", "failure"),
    i.StartHost: ("instance_id", "wanted", "reservation", "standby_id"),
    i.CloseHost: ("instance_id", "within_s"),
    i.KillHost: ("instance_id",),
    i.RunAttempt: ("instance_id", "attempt_id"),
    i.CancelAttempt: ("instance_id", "attempt_id"),
    i.RequestCheckpoint: ("instance_id", "attempt_id"),
    i.ReleaseFiles: ("instance_id", "attempt_id"),
    i.FetchComponent: ("signature", "port", "digest", "read_scopes", "token"),
    i.ReleaseComponents: ("signature",),
    i.PrewarmFailed: ("spec", "failure"),
    i.StartStandby: ("host_id", "preload"),
    i.StopStandby: ("host_id",),
    i.Forget: ("digests",),
    i.SetTimer: ("timer", "at_s"),
    i.ClearTimer: ("timer",),
    i.SendReport: ("at_s",),
    i.Leave: (),
    Reservation: ("memory_mib", "devices"),
    # -- reports
    FullReport: ("held", "ended", "instances", "checkpoints", "draining"),
}
