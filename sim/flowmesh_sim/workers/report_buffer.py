"""What a simulated worker holds and has to say, as the real agent keeps it: levels, not events."""

from flowmesh_core.protocol.messages import (
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    Component,
    EngineInstanceState,
    Sync,
)


class SimReportBuffer:
    """Held attempts, ends not yet acknowledged, and what of it the control plane has not heard."""

    def __init__(self) -> None:
        """Starts empty."""
        self.progress: dict[str, AttemptProgress] = {}
        self.ended: dict[str, AttemptEnd] = {}
        self.checkpoints: dict[str, Checkpoint] = {}
        self.draining = False
        self._settled: set[str] = set()
        self._changed: dict[str, AttemptProgress] = {}
        self._new_ends: dict[str, AttemptEnd] = {}
        self._new_checkpoints: dict[str, Checkpoint] = {}
        self.lanes_changed = False
        self.components_changed = False

    def knows(self, attempt_id: str) -> bool:
        """Whether it is not to be taken up again."""
        return (
            attempt_id in self.progress or attempt_id in self.ended or attempt_id in self._settled
        )

    def take(self, attempt_id: str) -> None:
        """Holds an attempt from now on."""
        self.progress[attempt_id] = AttemptProgress(attempt_id, "fetching")

    def report(self, progress: AttemptProgress) -> None:
        """Where a held attempt is now."""
        if progress.attempt_id in self.progress:
            self.progress[progress.attempt_id] = progress
            self._changed[progress.attempt_id] = progress

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """A checkpoint is stored, or the one that was given is spoiled."""
        if checkpoint.attempt_id in self.progress or checkpoint.attempt_id in self.ended:
            self.checkpoints[checkpoint.attempt_id] = checkpoint
            self._new_checkpoints[checkpoint.attempt_id] = checkpoint

    def end(self, end: AttemptEnd) -> None:
        """A held attempt has ended."""
        self.progress.pop(end.attempt_id, None)
        self._changed.pop(end.attempt_id, None)
        self.ended[end.attempt_id] = end
        self._new_ends[end.attempt_id] = end

    def acknowledge(self, attempt_id: str) -> None:
        """The control plane has dealt with an end."""
        if self.ended.pop(attempt_id, None) is not None:
            self._new_ends.pop(attempt_id, None)
            self.checkpoints.pop(attempt_id, None)
            self._new_checkpoints.pop(attempt_id, None)
            self._settled.add(attempt_id)

    def said_everything(self) -> None:
        """A Hello told all of it."""
        self._changed.clear()
        self._new_ends.clear()
        self._new_checkpoints.clear()
        self.lanes_changed = self.components_changed = False

    def say_ends_again(self) -> None:
        """Ends that are still not acknowledged go out once more."""
        self._new_ends.update(self.ended)

    def next_sync(
        self, seq: int, lanes: tuple[EngineInstanceState, ...], components: tuple[Component, ...]
    ) -> Sync:
        """All news as one message; they count as said."""
        sync = Sync(
            seq=seq,
            progress=tuple(self._changed.values()),
            ended=tuple(self._new_ends.values()),
            lanes=lanes if self.lanes_changed else None,
            components=components if self.components_changed else None,
            draining=self.draining,
            checkpoints=tuple(self._new_checkpoints.values()),
        )
        self.said_everything()
        return sync
