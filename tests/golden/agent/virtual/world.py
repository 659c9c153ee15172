"""A scenario in virtual time: what it is made of, and what the agent does in it."""

from typing import Any

from tests.golden.agent.format import (
    Effect,
    EffectKind,
    ListedReplica,
    Prewarm,
    Scenario,
    Send,
    seconds,
)
from tests.golden.agent.virtual.timeline import Timeline

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import (
    Assignment,
    Desired,
    FailureReport,
    InputRef,
    PrewarmSpec,
    RouterAddress,
    ServingReplica,
)
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.ports import Preload

BEGIN_S = 1000.0
"""The agent's clock at the beginning of a scenario."""
WALL_S = 1_700_000_000.0
_ADAPTER = "adapter"


class World:
    """A scenario, its clock, and the effects so far.

    Attributes:
        oom_kills: processes that the kernel has killed for want of memory.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.time = Timeline(BEGIN_S)
        self.effects: list[Effect] = []
        self.oom_kills = 0
        self.attempts = {a.id: a for a in scenario.attempts}
        self.engines = {e.name: e for e in scenario.engines}
        self.signatures = {s.name: s for s in scenario.signatures}
        self.components = {c.digest: c for c in scenario.components}
        self.preloads = {p.name: p for p in scenario.preloads}

    def count(self) -> int:
        """As ``OomKills.count``."""
        return self.oom_kills

    def add(self, kind: EffectKind, *details: Any) -> None:
        """Records an effect."""
        self.effects.append((seconds(self.time.t), kind.value, *details))

    def assignment(self, attempt_id: str) -> Assignment:
        """What the control plane assigns."""
        attempt = self.attempts[attempt_id]
        signature = self.signatures[attempt.signature]
        trees = {f"c{i}": ("model", d) for i, d in enumerate(signature.components)}
        if attempt.adapter:
            trees[_ADAPTER] = ("adapter", attempt.adapter)
        refs = {port: _ref(kind, digest) for port, (kind, digest) in trees.items()}
        if attempt.fetch_s is not None:
            refs["data"] = _ref("blob", attempt_id)
        return Assignment(
            attempt_id=attempt_id,
            action_id=Digest(attempt_id),
            signature=Digest(signature.name),
            engine=signature.engine,
            contract=1,
            implementation=1,
            params={},
            fields={},
            inputs=refs,
            components=tuple(trees),
            memory_mib=signature.memory_mib,
            tensor_parallel=signature.devices,
            priority=attempt.priority,
            timeout_s=attempt.timeout_s,
            isolate=attempt.isolate,
            resume=None if attempt.resume_s is None else _ref("model", f"{attempt_id}@"),
        )

    def desired(self, one: Send) -> Desired:
        """What the control plane sends."""
        listed, replicas, routers = one.hold_open, one.replicas, one.routers
        return Desired(
            epoch=1,
            seq=1,
            assign=tuple(map(self.assignment, one.assign)),
            cancel=one.cancel,
            acknowledged=one.acknowledged,
            full_state=one.everything,
            keep=one.keep,
            drain=one.drain,
            prewarm=None if listed is None else tuple(map(self._prewarm, listed)),
            forget=tuple(map(Digest, one.forget)),
            replicas=None if replicas is None else tuple(map(self._replica, replicas)),
            routers=None if routers is None else tuple(map(RouterAddress, routers)),
        )

    def loaded_components(self, wanted: Assignment | PrewarmSpec) -> tuple[str, ...]:
        """Digests of the components that a host loads before it runs anything."""
        if isinstance(wanted, PrewarmSpec):
            return tuple(a.digest for a in wanted.components.values())
        mixable = self.engines[wanted.engine].mixable
        return tuple(
            wanted.inputs[p].artifact.digest for p in wanted.components if p not in mixable
        )

    def _replica(self, listed: ListedReplica) -> ServingReplica:
        opening = self._prewarm(Prewarm(listed.signature, listed.memory_mib))
        return ServingReplica(listed.id, f"team/{listed.id}", "llm", "r1", opening)

    def _prewarm(self, entry: Prewarm) -> PrewarmSpec:
        signature = self.signatures[entry.signature]
        return PrewarmSpec(
            signature=Digest(signature.name),
            engine=signature.engine,
            contract=1,
            implementation=entry.implementation,
            components={
                f"c{i}": Artifact("model", Digest(d), Digest(d))
                for i, d in enumerate(signature.components)
            },
            memory_mib=entry.memory_mib or signature.memory_mib,
            tensor_parallel=signature.devices,
        )


class Facts:
    """Implements the agent's port ``EngineFacts`` with the engines of a scenario."""

    def __init__(self, world: World) -> None:
        self._world = world

    def refusal(self, wanted: Assignment | PrewarmSpec) -> FailureReport | None:
        """See ``EngineFacts.refusal``."""
        if wanted.engine in self._world.engines and wanted.implementation == 1:
            return None
        return failure("engine")

    def devices(self, engine: str, tensor_parallel: int) -> int:
        """See ``EngineFacts.devices``."""
        known = self._world.engines.get(engine)
        on_device = known is not None and known.accelerated and self._world.scenario.devices > 0
        return max(1, tensor_parallel) if on_device else 0

    def preload(self, wanted: Assignment | PrewarmSpec) -> Preload | None:
        """See ``EngineFacts.preload``."""
        engine = self._world.engines.get(wanted.engine)
        preload = self._world.preloads.get(engine.preload) if engine is not None else None
        return Preload(preload.name, preload.memory_mib) if preload is not None else None


class NoEnergy:
    """Implements the agent's port ``EnergyCounter``; no effect has energy."""

    def begin(self, attempt_id: str) -> None:
        """See ``EnergyCounter.begin``."""

    def end(self, attempt_id: str) -> tuple[float, bool]:
        """See ``EnergyCounter.end``."""
        return 0.0, False


class NoFetchCounter:
    """Implements the agent's port ``FetchCounter``; nothing that effects fetch has a size."""

    def begin(self, attempt_id: str) -> None:
        """See ``FetchCounter.begin``."""

    def end(self, attempt_id: str) -> int:
        """See ``FetchCounter.end``."""
        return 0


def failure(kind: str) -> FailureReport:
    """Returns a failure of a kind."""
    return FailureReport(FailureKind(kind).value, "the scenario says so")


def _ref(kind: str, digest: str) -> InputRef:
    return InputRef(Artifact(kind, Digest(digest), Digest(digest)))
