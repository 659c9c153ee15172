"""Adapters of one base model: which steps share an engine, and their input locality."""

import pytest
from msgspec.structs import replace
from tests.flowmesh_core.machine.world import ASK, World, plan, step

from flowmesh_core.graph.plan import ArtifactSource, Edge, StepPlan
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.protocol.messages import EngineVariant
from flowmesh_core.protocol.results import Artifact

MIB = 1024 * 1024


def artifact(kind: str, name: str, size_mib: int) -> Artifact:
    digest = digest_bytes(name.encode())
    return Artifact(kind, digest, digest, size_mib * MIB)


BASE = artifact("model", "base", 500)
SMALL = artifact("adapter", "small", 3)
LARGE = artifact("adapter", "large", 90)


def ask(path: str, adapter: Artifact | None = None) -> StepPlan:
    given = {"model": BASE} | ({"adapter": adapter} if adapter else {})
    edges = tuple(
        Edge(port, a.kind, (ArtifactSource(a.kind, f"cas:{a.blob}"),)) for port, a in given.items()
    )
    return replace(step(path, *edges, uses=ASK), fields={"dtype": "float32"})


@pytest.fixture
def world() -> World:
    world = World()
    world.join("w1", variants=(EngineVariant(ASK.name, dtypes=("float32",)),))
    steps = (ask("plain"), ask("small", SMALL), ask("large", LARGE))
    world.submit(plan(*steps), artifacts=(BASE, SMALL, LARGE))
    return world


def test_steps_with_adapters_share_one_engine_and_steps_without_share_another(world: World) -> None:
    world.tick(0.1)
    held = {tuple(a.inputs): [] for a in world.attempts()}  # type: ignore[var-annotated]
    for a in world.attempts():
        held[tuple(a.inputs)].append(a)
    [plain], [one, other] = held["model",], held["model", "adapter"]
    assert one.signature == other.signature != plain.signature
    assert one.memory_mib == other.memory_mib == plain.memory_mib == 256 + 500


def test_an_adapter_counts_as_an_input_for_locality_and_not_as_a_component_of_the_engine(
    world: World,
) -> None:
    ready = {a.inputs: a for a in world.machine.snapshot(world.now).ready}
    assert set(ready) == {(), ((SMALL.digest, 3 * MIB),), ((LARGE.digest, 90 * MIB),)}
    infos = world.machine.state.signatures.values()
    assert {info.components for info in infos} == {((BASE.digest, 500 * MIB),)}
