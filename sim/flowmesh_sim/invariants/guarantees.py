"""What is promised of single acts: a dispatch, a publication, a collection."""

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from flowmesh_core.machine.commands import Assign
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import Run
from flowmesh_core.protocol.messages import InputRef
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.units import Digest
from flowmesh_sim.kernel.violation import wrong
from flowmesh_sim.models.store import Key, SimStore

if TYPE_CHECKING:
    from flowmesh_sim.control.control import SimulatedControlPlane
    from flowmesh_sim.control.fabric import SimulatedFabric


class ActionInvariants:
    """Follows what was published."""

    def __init__(self) -> None:
        """Starts with nothing published."""
        self._generations = Counter[tuple[str, Digest, int]]()

    def assigned(self, control: "SimulatedControlPlane", c: Assign) -> None:
        """A dispatch: its inputs are published, and some run may read them and pay.

        One that was cancelled in the same turn, since its runs ended in it, is not looked at: the
        cancellation follows it to the worker.
        """
        state, store = control.machine.state, control.store
        attempt = state.attempts.get(c.assignment.attempt_id)
        if attempt is None:
            wrong(c.assignment.attempt_id, "it was dispatched and is not known")
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
                wrong(c.assignment.attempt_id, "its name leaves an input out, and it is shared")
        # Of several runs one that can pay is enough: another's reservations may pass its budget.
        held = attempt.reserved
        if not any(
            not r.budget_nanousd or r.paid_nanousd + held.get(r.uid, 0) <= r.budget_nanousd
            for r in runs
        ):
            wrong(c.assignment.attempt_id, "it was dispatched past every budget")

    def wrote(self, control: "SimulatedControlPlane", key: ActionKey, result: ActionResult) -> None:
        """A publication that won: the only one of its action and generation."""
        name = (key.scope, key.action_id, result.generation)
        self._generations[name] += 1
        if self._generations[name] > 1:
            wrong(f"action {key}", f"generation {result.generation} was published twice")
        for artifact in result.outputs.values():
            control.store.contents.allow(artifact, key.scope)

    def unreadable(self, places: Collection[Key]) -> None:
        """Results are gone or damaged: nobody knows their generations any more."""
        for name in [n for n in self._generations if n[:2] in places]:
            del self._generations[name]

    def collected(self, fabric: "SimulatedFabric", swept: Collection[Digest]) -> None:
        """A collection: what accepted runs were given is still there."""
        gone = set(swept)
        for uid, spec in fabric.bucket.specs.items():
            if uid in fabric.bucket.finals:
                continue
            taken = {b for a in spec.artifacts.values() for b in a.blobs()} & gone
            if taken:
                wrong(f"run {uid}", f"a collection took {min(taken)[:12]}, which it was given")


def _readable(attempt_id: str, port: str, ref: InputRef, runs: list[Run], store: SimStore) -> None:
    a = ref.artifact
    for blob in (b for b in a.blobs() if b != a.blob or a.manifest is None):
        if blob in ref.inline or a.value is not None:
            continue
        if blob not in store.ever:
            wrong(attempt_id, f"input {port} was never there")
        allowed = store.contents.scopes.get(blob, set())
        if not any(_reads(run, allowed) for run in runs):
            wrong(attempt_id, f"input {port} is of scopes {sorted(allowed)}")


def _reads(run: Run, scopes: set[str]) -> bool:
    return bool(scopes & {run.scopes.publish, run.scopes.private, *run.scopes.lookup})
