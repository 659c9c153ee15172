"""Inputs, components, checkpoints and outputs in virtual time: what is fetched and stored."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.golden.agent.format import EffectKind, done_units
from tests.golden.agent.virtual.timeline import Call
from tests.golden.agent.virtual.world import World, failure

from flowmesh_core.protocol.messages import Assignment, Checkpoint, FailureReport, InputRef
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent.instructions import DropAttempt, FetchComponent

Post = Callable[[e.Event], None]


@dataclass(eq=False)
class Need:
    """Something that needs a component on the disk."""

    answer: Callable[[FailureReport | None], None]
    given_up: bool = False


@dataclass(eq=False)
class _Component:
    ready: bool = False
    needs: list[Need] = field(default_factory=list)
    fetch: Call | None = None


class Components:
    """Components on the disk: each is fetched once for all that need it at the time."""

    def __init__(self, world: World, post: Post) -> None:
        self._world = world
        self._post = post
        on_disk = [c.digest for c in world.scenario.components if c.on_disk]
        self._known = {digest: _Component(ready=True) for digest in on_disk}

    def digests(self) -> frozenset[Digest]:
        """All that are on the disk."""
        return frozenset(Digest(d) for d, component in self._known.items() if component.ready)

    def need(self, digest: str, answer: Callable[[FailureReport | None], None]) -> Need:
        """Fetches a component unless it is there; never answers before it returns."""
        need = Need(answer)
        component = self._known.setdefault(digest, _Component())
        if component.ready:
            self._world.time.soon(partial(self._answer, [need], None))
            return need
        component.needs.append(need)
        if component.fetch is None:
            self._world.add(EffectKind.FETCH_COMPONENT, digest)
            fetch_s = self._world.components[digest].fetch_s
            component.fetch = self._world.time.after(fetch_s, partial(self._fetched, digest))
        return need

    def give_up(self, digest: str, need: Need) -> None:
        """It is not needed any more; a fetch that nothing else waits for ends."""
        need.given_up = True
        component = self._known.get(digest)
        if component is None or component.ready or need not in component.needs:
            return
        component.needs.remove(need)
        if not component.needs and component.fetch is not None:
            self._world.add(EffectKind.FETCH_COMPONENT_CANCELLED, digest)
            component.fetch.cancel()
            del self._known[digest]

    def _fetched(self, digest: str) -> None:
        component = self._known[digest]
        kind = self._world.components[digest].failure
        if kind:
            del self._known[digest]
        else:
            component.ready = True
            self._post(e.ComponentsChanged(self.digests()))
        self._answer(component.needs, failure(kind) if kind else None)

    @staticmethod
    def _answer(needs: list[Need], failed: FailureReport | None) -> None:
        for need in list(needs):
            if not need.given_up:
                need.answer(failed)


class PrewarmFetches:
    """Components that are fetched for entries of the prewarm list."""

    def __init__(self, components: Components, post: Post) -> None:
        self._components = components
        self._post = post
        self._needs: dict[Digest, list[tuple[Digest, Need]]] = {}

    def fetch(self, wanted: FetchComponent) -> None:
        """Brings a component to the disk."""
        need = self._components.need(wanted.digest, partial(self._fetched, wanted))
        self._needs.setdefault(wanted.signature, []).append((wanted.digest, need))

    def release(self, signature: Digest) -> None:
        """Ends fetching for an entry."""
        for digest, need in self._needs.pop(signature, []):
            self._components.give_up(digest, need)

    def close(self) -> None:
        """Ends fetching for all."""
        for signature in list(self._needs):
            self.release(signature)

    def _fetched(self, wanted: FetchComponent, failed: FailureReport | None) -> None:
        if failed is None:
            self._post(e.ComponentFetched(wanted.signature, wanted.port))
        else:
            self._post(e.ComponentFailed(wanted.signature, failed))


@dataclass(eq=False)
class _Data:
    """What is under way for one attempt.

    Attributes:
        end_effect: recorded where it is dropped before that has ended.
    """

    assignment: Assignment
    needs: list[tuple[str, Need]] = field(default_factory=list)
    call: Call | None = None
    open_parts: int = 0
    end_effect: EffectKind | None = None
    resumed: bool = False
    checkpoint: Call | None = None
    waiting: float | None = None
    flushing: bool = False


class AttemptData:
    """The data of all attempts."""

    def __init__(
        self,
        world: World,
        components: Components,
        post: Post,
        *,
        has_host: Callable[[str], bool],
    ) -> None:
        """Fetches and stores nothing yet.

        Args:
            world: the scenario.
            components: on the disk.
            post: takes events.
            has_host: whether the host is still there that an attempt ran in.
        """
        self._world = world
        self._components = components
        self._post = post
        self._has_host = has_host
        self._attempts: dict[str, _Data] = {}

    def is_resumed(self, attempt_id: str) -> bool:
        """Whether an attempt begins at a checkpoint."""
        return self._attempts[attempt_id].resumed

    def fetch(self, assignment: Assignment) -> None:
        """Brings the inputs of an attempt to the disk."""
        data = self._attempts[assignment.attempt_id] = _Data(assignment)
        if not assignment.inputs:
            self._post(e.InputsReady(assignment.attempt_id))
        else:
            data.call = self._world.time.soon(partial(self._fetch, data))

    def fetch_checkpoint(self, attempt_id: str) -> None:
        """Brings the checkpoint of an attempt to the disk."""
        data = self._attempts[attempt_id]
        data.call = self._world.time.soon(partial(self._fetch_checkpoint, data))

    def store(self, attempt_id: str) -> None:
        """Stores the outputs of an attempt."""
        data = self._attempts[attempt_id]
        data.call = self._world.time.soon(partial(self._store, data))

    def take_checkpoint(self, attempt_id: str, fraction: float) -> None:
        """Stores a checkpoint; a newer one replaces one that waits."""
        data = self._attempts.get(attempt_id)
        if data is None:
            return
        data.waiting = done_units(fraction)
        if data.checkpoint is None:
            data.checkpoint = self._world.time.soon(partial(self._next_checkpoint, data))

    def flush_checkpoints(self, attempt_id: str) -> None:
        """Answers once no checkpoint of an attempt is being stored."""
        data = self._attempts[attempt_id]
        data.flushing = True
        data.call = self._world.time.soon(partial(self._flushed, data))

    def drop(self, instruction: DropAttempt) -> None:
        """Ends what is under way for an attempt."""
        data = self._attempts.pop(instruction.assignment.attempt_id, None)
        if data is not None:
            self._end(data)

    def close(self) -> None:
        """Ends what is under way for all."""
        for data in self._attempts.values():
            self._end(data)
        self._attempts.clear()

    def _end(self, data: _Data) -> None:
        for call in (data.call, data.checkpoint):
            if call is not None:
                call.cancel()
        if data.end_effect is not None:
            self._world.add(data.end_effect, data.assignment.attempt_id)
        for digest, need in data.needs:
            self._components.give_up(digest, need)

    # -- inputs ----------------------------------------------------------------------------------

    def _fetch(self, data: _Data) -> None:
        attempt_id = data.assignment.attempt_id
        attempt = self._world.attempts[attempt_id]
        if attempt.preflight_failure:
            self._post(e.InputsFailed(attempt_id, failure(attempt.preflight_failure)))
            return
        self._world.add(EffectKind.FETCH, attempt_id)
        data.end_effect = EffectKind.FETCH_CANCELLED
        data.open_parts = len(data.assignment.inputs)
        for ref in data.assignment.inputs.values():
            self._fetch_part(data, ref)

    def _fetch_part(self, data: _Data, ref: InputRef) -> None:
        if ref.artifact.kind != "blob":
            digest = ref.artifact.digest
            need = self._components.need(digest, partial(self._part_fetched, data))
            data.needs.append((digest, need))
            return
        attempt = self._world.attempts[data.assignment.attempt_id]
        kind = attempt.fetch_failure
        answer = partial(self._part_fetched, data, failure(kind) if kind else None)
        data.call = self._world.time.after(attempt.fetch_s or 0.0, answer)

    def _part_fetched(self, data: _Data, failed: FailureReport | None) -> None:
        if data.end_effect is None:
            return
        attempt_id = data.assignment.attempt_id
        data.open_parts -= 1
        if failed is not None:
            data.end_effect = None
            self._post(e.InputsFailed(attempt_id, failed))
        elif not data.open_parts:
            data.end_effect = None
            self._post(e.InputsReady(attempt_id))

    # -- checkpoints -----------------------------------------------------------------------------

    def _fetch_checkpoint(self, data: _Data) -> None:
        attempt = self._world.attempts[data.assignment.attempt_id]
        self._world.add(EffectKind.FETCH_CHECKPOINT, attempt.id)
        fetched = partial(self._checkpoint_fetched, data)
        data.call = self._world.time.after(attempt.resume_s or 0.0, fetched)

    def _checkpoint_fetched(self, data: _Data) -> None:
        attempt = self._world.attempts[data.assignment.attempt_id]
        data.resumed = not attempt.resume_spoiled
        unusable = None
        if attempt.resume_spoiled:
            digest = Digest(f"{attempt.id}@")
            unusable = Checkpoint(attempt.id, digest, spoiled=(digest,))
        self._post(e.CheckpointFetched(attempt.id, unusable))

    def _next_checkpoint(self, data: _Data) -> None:
        data.checkpoint = None
        attempt = self._world.attempts[data.assignment.attempt_id]
        if data.waiting is not None:
            done, data.waiting = data.waiting, None
            self._world.add(EffectKind.STORE_CHECKPOINT, attempt.id, done)
            stored = partial(self._checkpoint_stored, data, done)
            data.checkpoint = self._world.time.after(attempt.checkpoint_store_s, stored)
        elif data.flushing:
            self._post(e.CheckpointsFlushed(attempt.id))

    def _checkpoint_stored(self, data: _Data, done: float) -> None:
        attempt = self._world.attempts[data.assignment.attempt_id]
        if not attempt.checkpoint_store_fails:
            digest = Digest(f"{attempt.id}@{done}")
            self._post(e.CheckpointStored(Checkpoint(attempt.id, digest, done)))
        self._next_checkpoint(data)

    def _flushed(self, data: _Data) -> None:
        if data.checkpoint is None:
            self._post(e.CheckpointsFlushed(data.assignment.attempt_id))

    # -- outputs ---------------------------------------------------------------------------------

    def _store(self, data: _Data) -> None:
        attempt = self._world.attempts[data.assignment.attempt_id]
        self._world.add(EffectKind.STORE, attempt.id)
        data.end_effect = EffectKind.STORE_CANCELLED
        data.call = self._world.time.after(attempt.store_s, partial(self._stored, data))

    def _stored(self, data: _Data) -> None:
        attempt = self._world.attempts[data.assignment.attempt_id]
        data.end_effect = None
        kind = attempt.store_failure if self._has_host(attempt.id) else "store"
        if kind:
            self._post(e.OutputsFailed(attempt.id, failure(kind)))
        else:
            self._post(e.OutputsStored(attempt.id, {}))
