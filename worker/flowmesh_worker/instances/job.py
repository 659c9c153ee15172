"""An attempt as its lane sees it: what to run, whom to tell, and how it ended."""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from flowmesh_core.protocol.messages import Assignment, FailureReport
from flowmesh_worker.ipc.frames import AttemptEnded, HostInput, RunAttempt

_serial = itertools.count()


class JobInstance(Protocol):
    """What a job may ask of the lane that has it.

    Attributes:
        gone: its host has exited, and the host's files with it.
    """

    gone: bool

    def abandon(self, job: "AttemptJob") -> None:
        """Stops the job, which nobody waits for any more."""
        ...

    def stop(self, job: "AttemptJob") -> None:
        """Asks the job to hand over a checkpoint and itself back, as far as its engine can."""
        ...

    def release_files(self, attempt_id: str) -> None:
        """The outputs of an attempt are stored; its directory may go."""
        ...

    def last_lines(self, since: int = 0) -> str:
        """The last lines that the host printed, not before a given count of lines."""
        ...


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job ended: the host's word, or a failure that the host could not report itself."""

    ended: AttemptEnded | None
    failure: FailureReport | None
    log: str
    libraries: Mapping[str, str]


@dataclass(slots=True)
class AttemptJob:
    """An attempt on its way through a lane.

    Attributes:
        run: what the host is told.
        components: what a new host must load for it.
        on_phase: told ``loading``, ``queued`` and ``running``.
        on_progress: told how far it is.
        on_line: told what the host prints meanwhile.
        on_checkpoint: told of a directory that it handed over, and how far the work was.
        outcome: set when it has ended.
        queued_s: when it was handed in, ``sent_s`` when the host got it (0 before), on a clock
            that does not step.
        load_s: how long it waited for the engine to load.
    """

    assignment: Assignment
    run: RunAttempt
    components: Mapping[str, HostInput]
    on_phase: Callable[[str], None]
    on_progress: Callable[[float, float, str], None]
    on_line: Callable[[str], None]
    on_checkpoint: Callable[[str, float], None]
    outcome: asyncio.Future[JobOutcome]
    queued_s: float = 0.0
    sent_s: float = 0.0
    load_s: float = 0.0
    peak_memory_mib: int = 0
    lane: "JobInstance | None" = None
    log_from: int = 0
    serial: int = field(default_factory=lambda: next(_serial))
    abandoned: bool = False
