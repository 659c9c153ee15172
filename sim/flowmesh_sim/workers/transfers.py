"""Transfers between a simulated worker and the store.

They are inputs and checkpoints of attempts, components of the prewarm list, and outputs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import Assignment, Checkpoint, FailureReport, InputRef
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent.attempts import comes_inline
from flowmesh_sim.workers.batch import SimJob
from flowmesh_sim.workers.checkpoints import saved_share
from flowmesh_sim.workers.context import WorkerContext
from flowmesh_sim.workers.disk_cache import DiskCache
from flowmesh_sim.workers.inputs import Items, items_of
from flowmesh_sim.workers.instance import SimInstance


@dataclass(slots=True, eq=False)
class SimAttempt:
    """The shell's data of an attempt, until ``DropAttempt``.

    Attributes:
        missing: number of inputs still to be fetched.
        resumed: share of the work that its checkpoint saves.
        host: where it runs or ran, as ``job``; None before.
    """

    assignment: Assignment
    missing: int = 0
    resumed: float = 0.0
    host: SimInstance | None = None
    job: SimJob | None = None
    outputs: Mapping[str, Artifact] = field(default_factory=dict)
    inline: Mapping[Digest, bytes] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its id."""
        return self.assignment.attempt_id

    def upload_bytes(self) -> int:
        """Returns the size of the outputs that do not travel in the report."""
        return sum(
            a.size_bytes
            for a in self.outputs.values()
            if any(blob not in self.inline for blob in a.blobs())
        )


class Transfers:
    """Fetches and uploads; each transfer is answered with an event.

    Attributes:
        disk: content on this worker.
        attempts: by id, from their inputs to their end.
    """

    def __init__(
        self,
        context: WorkerContext,
        post: Callable[[e.Event], None],
        loaded: Callable[[], set[Digest]],
    ) -> None:
        """Starts with an empty disk.

        Args:
            context: shared by all workers.
            post: hands an event to the worker agent.
            loaded: returns components in the memory of hosts; they stay on the disk.
        """
        self._context = context
        self._engine = context.engine
        self._post = post
        self._loaded = loaded
        self._pinned: dict[Digest, set[Digest]] = {}
        self.attempts: dict[str, SimAttempt] = {}
        self.disk = DiskCache(
            context.engine,
            context.store,
            budget_bytes=context.disk_bytes,
            downloads=context.downloads,
            request_s=context.request_s,
            in_use=self._in_use,
            weights_changed=lambda local: post(e.ComponentsChanged(local)),
        )

    def drop(self, attempt_id: str) -> None:
        """Removes an attempt that has ended; does nothing for an unknown one."""
        self.attempts.pop(attempt_id, None)

    def stop(self) -> None:
        """Removes all attempts: the worker's process is gone."""
        self.attempts.clear()

    def _in_use(self) -> set[Digest]:
        inputs = {
            ref.artifact.digest
            for attempt in self.attempts.values()
            for ref in attempt.assignment.inputs.values()
        }
        return inputs.union(self._loaded(), *self._pinned.values())

    # -- inputs ----------------------------------------------------------------------------------

    def fetch_inputs(self, a: Assignment) -> None:
        """Fetches the inputs of an attempt."""
        attempt = self.attempts[a.attempt_id] = SimAttempt(a)
        remote = [ref for ref in a.inputs.values() if not comes_inline(ref)]
        if not remote:
            self._post(e.InputsReady(a.attempt_id))
        elif self._context.duties.weights_mib(a) > a.memory_mib * max(1, a.tensor_parallel):
            # Only the manifest and the model's configuration are read before this is known.
            message = f"the weights do not fit {a.memory_mib} MiB"
            failure = FailureReport(FailureKind.OUT_OF_MEMORY.value, message)
            self._engine.after(2 * self._context.request_s, self._inputs_fetched, attempt, failure)
        else:
            items: Items = {}
            for ref in remote:
                items.update(items_of(ref))
            attempt.missing = len(items)
            for digest, (blobs, size) in items.items():
                self.disk.fetch(digest, blobs, size, partial(self._fetched, attempt))

    def _fetched(self, attempt: SimAttempt, failure: FailureReport | None) -> None:
        attempt.missing -= 1
        if failure is not None or attempt.missing == 0:
            self._inputs_fetched(attempt, failure)

    def _inputs_fetched(self, attempt: SimAttempt, failure: FailureReport | None) -> None:
        if failure is not None:
            self._post(e.InputsFailed(attempt.id, failure))
        else:
            self._post(e.InputsReady(attempt.id))

    def fetch_checkpoint(self, attempt_id: str) -> None:
        """Fetches the checkpoint at which an attempt begins."""
        attempt = self.attempts[attempt_id]
        resume = attempt.assignment.resume
        assert resume is not None
        done = partial(self._checkpoint_fetched, attempt, resume.artifact.digest)
        for digest, (blobs, size) in items_of(resume).items():
            self.disk.fetch(digest, blobs, size, done)

    def _checkpoint_fetched(
        self, attempt: SimAttempt, digest: Digest, failure: FailureReport | None
    ) -> None:
        unusable = None
        if failure is None:
            attempt.resumed = saved_share(self._context.store, digest)
        else:
            unusable = Checkpoint(attempt.id, digest, spoiled=(digest,))
        self._post(e.CheckpointFetched(attempt.id, unusable))

    def fetch_component(self, signature: Digest, port: str, artifact: Artifact) -> None:
        """Fetches a component of the prewarm list; it stays until it is released."""
        self._pinned.setdefault(signature, set()).add(artifact.digest)
        done = partial(self._component_fetched, signature, port)
        self.disk.fetch(artifact.digest, (artifact.blob,), artifact.size_bytes, done)

    def _component_fetched(
        self, signature: Digest, port: str, failure: FailureReport | None
    ) -> None:
        if failure is None:
            self._post(e.ComponentFetched(signature, port))
        else:
            self._post(e.ComponentFailed(signature, failure))

    def release_components(self, signature: Digest) -> None:
        """Lets the components of an entry of the prewarm list be evicted."""
        self._pinned.pop(signature, None)

    # -- outputs ---------------------------------------------------------------------------------

    def store_outputs(self, attempt_id: str) -> None:
        """Uploads the outputs of an attempt."""
        self._upload(self.attempts[attempt_id])

    def _upload(self, attempt: SimAttempt) -> None:
        context = self._context
        took_s = context.request_s + context.store.slow_s
        took_s += attempt.upload_bytes() / context.upload_bytes_per_s
        self._engine.after(took_s, self._uploaded, attempt)

    def _uploaded(self, attempt: SimAttempt) -> None:
        store = self._context.store
        if self.attempts.get(attempt.id) is not attempt:
            return
        if attempt.host is None or attempt.host.has_ended:
            failure = FailureReport(
                FailureKind.STORE.value, "the files were removed with their host"
            )
            self._post(e.OutputsFailed(attempt.id, failure))
            return
        if store.down:
            self._upload(attempt)
            return
        for artifact in attempt.outputs.values():
            store.put(artifact, attempt.inline)
            if any(blob not in attempt.inline for blob in artifact.blobs()):
                for digest, (_, size) in items_of(InputRef(artifact)).items():
                    self.disk.add(digest, size)
        self._post(e.OutputsStored(attempt.id, attempt.outputs, attempt.inline))
