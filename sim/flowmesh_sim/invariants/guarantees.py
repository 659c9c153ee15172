"""Checks single operations: a dispatch, a publication, a garbage collection."""

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from flowmesh_core.machine.commands import Assign
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import Run
from flowmesh_core.protocol.messages import InputRef
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.units import Digest
from flowmesh_sim.kernel.violation import violated
from flowmesh_sim.models.store import Key, SimStore

if TYPE_CHECKING:
    from flowmesh_sim.control.control import SimulatedControlPlane
    from flowmesh_sim.control.fabric import SimulatedFabric


class ActionInvariants:
    """Checks dispatches, publications and collections."""

    def __init__(self) -> None:
        self._generations = Counter[tuple[str, Digest, int]]()

    def assigned(self, control: "SimulatedControlPlane", c: Assign) -> None:
        """Checks a dispatch: its inputs are published, and a subscriber may read them and pay.

        One that was cancelled in the same turn, since its runs ended in it, is not checked: the
        cancellation follows it to the worker.
        """
        state, store = control.machine.state, control.store
        attempt = state.attempts.get(c.assignment.attempt_id)
        if attempt is None:
            violated(c.assignment.attempt_id, "it was dispatched and is not known")
        if attempt.cancelled:
            return
        action = attempt.action
        runs = [state.runs[s.uid] for s in action.subscribers]
        refs = [*c.assignment.inputs.items()]
        if c.assignment.resume is not None:
            refs.append(("resume", c.assignment.resume))
        for port, ref in refs:
            _readable(c.assignment.attempt_id, port, ref, runs, store)
        for s in action.subscribers:
            run = state.runs[s.uid]
            ignored = run.steps[s.path].plan.cache.ignored_inputs
            left_out = any(p in c.assignment.inputs for p in ignored)
            if left_out and action.key.scope != run.scopes.private:
                violated(c.assignment.attempt_id, "its name leaves an input out, and it is shared")
        for r in runs:
            part = attempt.reserved.get(r.uid, 0)
            if r.budget_nanousd and r.paid_nanousd + part > r.budget_nanousd:
                violated(c.assignment.attempt_id, f"it was dispatched past the budget of {r.uid}")

    def wrote(self, control: "SimulatedControlPlane", key: ActionKey, result: ActionResult) -> None:
        """Checks a successful publication: it is the only one of its action and generation."""
        name = (key.scope, key.action_id, result.generation)
        self._generations[name] += 1
        if self._generations[name] > 1:
            violated(f"action {key}", f"generation {result.generation} was published twice")
        _trusted(control, key, result)
        for artifact in result.outputs.values():
            control.store.contents.allow(artifact, key.scope)

    def unreadable(self, places: Collection[Key]) -> None:
        """Forgets the generations of results that were deleted or damaged."""
        for name in [n for n in self._generations if n[:2] in places]:
            del self._generations[name]

    def collected(self, fabric: "SimulatedFabric", swept: Collection[Digest]) -> None:
        """Checks a garbage collection: the inputs of accepted runs still exist."""
        deleted = set(swept)
        for uid, spec in fabric.bucket.specs.items():
            if uid in fabric.bucket.finals:
                continue
            missing = {b for a in spec.artifacts.values() for b in a.blobs()} & deleted
            if missing:
                violated(f"run {uid}", f"a collection took {min(missing)[:12]}, which it was given")


def _trusted(control: "SimulatedControlPlane", key: ActionKey, result: ActionResult) -> None:
    """Checks that a scope gets no result of a pool that is trusted less than it asks for."""
    state, trust = control.machine.state, result.provenance.trust
    action = state.actions.get(key)
    for s in action.subscribers if action is not None else ():
        scopes = state.runs[s.uid].scopes
        if scopes.publish == key.scope and trust < scopes.min_trust:
            violated(f"action {key}", f"it asks for trust {scopes.min_trust} and got {trust}")


def _readable(attempt_id: str, port: str, ref: InputRef, runs: list[Run], store: SimStore) -> None:
    a = ref.artifact
    for blob in (b for b in a.blobs() if b != a.blob or a.manifest is None):
        if blob in ref.inline or a.value is not None:
            continue
        if blob not in store.ever_stored:
            violated(attempt_id, f"input {port} was never there")
        allowed = store.contents.scopes.get(blob, set())
        if not any(_reads(run, allowed) for run in runs):
            violated(attempt_id, f"input {port} is of scopes {sorted(allowed)}")


def _reads(run: Run, scopes: set[str]) -> bool:
    return bool(scopes & {run.scopes.publish, run.scopes.private, *run.scopes.lookup})
