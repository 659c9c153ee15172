"""Engines that a simulated worker holds open ahead of work, by the real agent's rules.

One model is fetched at a time, and only while no attempt fetches anything; a lane is opened only
where nothing waits for one; for room the least used idle lane goes that is not to be held.
"""

from collections.abc import Callable
from functools import partial

from flowmesh_core.protocol.messages import Assignment, FailureReport, InputRef, PrewarmSpec
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_sim.models.content import SimContents, SimWeights
from flowmesh_sim.models.work_model import HOST, WorkItem
from flowmesh_sim.workers.disk_cache import DiskCache
from flowmesh_sim.workers.instance import SimJob
from flowmesh_sim.workers.instances import SimInstances


class SimPrewarmer:
    """What is to be held open, and how far that is."""

    def __init__(
        self,
        lanes: SimInstances,
        shelf: DiskCache,
        contents: SimContents,
        may_open: Callable[[], bool],
        asked: Callable[[PrewarmSpec], None],
    ) -> None:
        """Takes the parts that an opening passes through.

        Args:
            lanes: of the worker.
            shelf: its disk.
            contents: what models are.
            may_open: whether anything may be opened now.
            asked: told of an opening that is about to be brought about.
        """
        self._lanes = lanes
        self._shelf = shelf
        self._contents = contents
        self._may_open = may_open
        self._asked = asked
        self._wanted: dict[Digest, PrewarmSpec] = {}
        self._tried: set[Digest] = set()

    def told(self, wanted: tuple[PrewarmSpec, ...]) -> None:
        """Takes the list, which replaces the one before."""
        self._wanted = {one.signature: one for one in wanted}
        self._tried &= self._wanted.keys()
        self._lanes.keep = frozenset(self._wanted)
        self.go_on()

    def go_on(self) -> None:
        """Does what can be done now."""
        for signature, one in self._wanted.items():
            if not self._may_open():
                return
            if signature in self._lanes.by_key:
                self._tried.discard(signature)
            elif signature not in self._tried:
                self._open(one)

    def _open(self, one: PrewarmSpec) -> None:
        found = {port: self._contents.by_digest.get(d) for port, d in one.components.items()}
        models = {
            port: Artifact("model", digest, digest, weights.size_bytes)
            for port, digest in one.components.items()
            if isinstance(weights := found[port], SimWeights)
        }
        if len(models) < len(one.components):
            self._tried.add(one.signature)
            return
        self._asked(one)
        for model in models.values():
            if model.digest not in self._shelf.held:
                came = partial(self._came, one.signature)
                self._shelf.ahead(model.digest, (model.blob,), model.size_bytes, came)
                return
        if self._lanes.open_ahead(_job(one, models)):
            self._tried.add(one.signature)

    def _came(self, signature: Digest, failure: FailureReport | None) -> None:
        if failure is not None:
            self._tried.add(signature)
        self.go_on()


def _job(one: PrewarmSpec, models: dict[str, Artifact]) -> SimJob:
    """Nobody's job, of which a lane takes only what it is opened with."""
    assignment = Assignment(
        attempt_id="",
        action_id=one.signature,
        signature=one.signature,
        engine=one.engine,
        contract=one.contract,
        implementation=one.implementation,
        params={},
        fields={},
        inputs={port: InputRef(model) for port, model in models.items()},
        signature_params=one.signature_params,
        components=(*models, *one.mixed),
        memory_mib=one.memory_mib,
        tensor_parallel=one.tensor_parallel,
    )
    return SimJob(assignment, WorkItem(HOST, 0.0), 0.0, 0)
