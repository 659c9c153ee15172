"""Workflows that load the fabric: no-op graphs, and the base of the paper's groups A and B.

A shape builds a compiled plan for a data slice. Plans of equal slices have equal actions: sharing
between workflows depends on the load's ``variants`` and on the common parts of shapes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.graph.plan import (
    ArtifactSource,
    Cache,
    Edge,
    Plan,
    Resources,
    Source,
    StepPlan,
    StepSource,
    UtilityWeights,
)
from flowmesh_core.protocol.results import Artifact
from flowmesh_sim.models.content import SimContents
from flowmesh_sim.models.devices import HardwareCatalog

IDENTITY: dict[str, Any] = {
    "dtype": "bfloat16",
    "batchInvariant": True,
    "implementation": "vllm",
    "tensorParallel": 1,
}
WEIGHTS = {
    "balanced": UtilityWeights(),
    "cost": UtilityWeights(0.5, 2.0, 1.0),
    "throughput": UtilityWeights(2.0, 0.5, 1.0),
    "latency": UtilityWeights(2.0, 0.5, 0.5),
}
TRAIN_ROWS = 512
"""Rows of a post-training step, a slice of the training split."""


@dataclass
class PlanBuilder:
    """Builds the plan of one run.

    Attributes:
        variant: the slice of the data; equal variants have equal content.
        rows: of a step that works on rows.
        rng: randomness of this run.
    """

    contents: SimContents
    hardware: HardwareCatalog
    catalog: Catalog
    rng: Random
    variant: int
    rows: int
    reuse: str = "always"
    options: dict[str, Any] = field(default_factory=dict)
    steps: list[StepPlan] = field(default_factory=list)
    artifacts: dict[str, Artifact] = field(default_factory=dict)

    def source(self, artifact: Artifact) -> ArtifactSource:
        """Returns a source of uploaded content."""
        reference = f"cas:{artifact.blob}"
        self.artifacts[reference] = artifact
        return ArtifactSource(artifact.kind, reference)

    def model(self, name: str) -> Source:
        """Returns a base model."""
        return self.source(self.contents.model(name, self.hardware.models[name].weights_bytes))

    def data(self, name: str, rows: int = 0, *, shots: bool = False, split: str = "test") -> Source:
        """Returns a slice of a data set."""
        facts = self.hardware.facts.one("datasets", name)
        extra = facts.shots_tokens if shots else 0.0
        which = f"{name}/{split}/{self.variant}/{rows or self.rows}/{int(shots)}"
        return self.source(self.contents.dataset(which, rows or self.rows, facts, extra))

    def step(self, path: str, engine: str, inputs: dict[str, Source], **params: Any) -> StepPlan:
        """Adds a step; parameters other than ``memory_mib`` and ``ignored`` are the engine's."""
        contract = self.catalog.newest(engine)
        assert contract is not None, engine
        memory_mib = int(params.pop("memory_mib", 0))
        ignored = tuple(params.pop("ignored", ()))
        values = {p.name: p.default for p in contract.params}
        step = StepPlan(
            path=path,
            name=path,
            engine=engine,
            contract=contract.version,
            implementation=contract.implementation,
            params={**values, **params},
            fields={k: v for k, v in IDENTITY.items() if k in contract.identity_fields},
            edges=tuple(_edge(contract, port, source) for port, source in inputs.items()),
            resources=Resources(memory_mib=memory_mib),
            cache=Cache(reuse=self.reuse, ignored_inputs=ignored),
        )
        self.steps.append(step)
        return step

    def plan(self, name: str, tenant: str, weights: UtilityWeights, **changes: Any) -> Plan:
        """Returns the plan of the steps so far; the last step's outputs are the run's."""
        last = self.steps[-1]
        contract = self.catalog.newest(last.engine)
        assert contract is not None
        outputs: dict[str, tuple[Source, ...]] = {
            p.name: (StepSource(last.path, p.name),) for p in contract.outputs[:1]
        }
        return Plan(name, tenant, tuple(self.steps), outputs, weights=weights, **changes)


def _edge(contract: EngineContract, port: str, source: Source) -> Edge:
    known = contract.input_port(port)
    assert known is not None, f"{contract.name} has no port {port}"
    return Edge(port, known.kind, (source,))


def out(step: StepPlan, port: str = "rows") -> StepSource:
    """Returns an output of a step."""
    return StepSource(step.path, port)


Shape = Callable[[PlanBuilder], None]
SHAPES: dict[str, Shape] = {}


def shape(name: str) -> Callable[[Shape], Shape]:
    """Returns a decorator that registers a shape."""

    def register(function: Shape) -> Shape:
        SHAPES[name] = function
        return function

    return register


# -- graphs of cheap actions ----------------------------------------------------------------------


def _noop(m: PlanBuilder, path: str, after: list[StepPlan], value: object) -> StepPlan:
    seconds = float(m.options.get("seconds", 0.0))
    inputs: dict[str, Source] = {f"after{n}": out(s, "metrics") for n, s in enumerate(after)}
    if seconds:
        return m.step(path, "test.sleep", inputs, seconds=seconds, value=value)
    return m.step(path, "test.noop", inputs, value=value)


@shape("noop-flat")
def noop_flat(m: PlanBuilder) -> None:
    """``rows`` steps without edges."""
    for n in range(m.rows):
        _noop(m, f"s{n}", [], f"{m.variant}/{n}")


@shape("noop-chain")
def noop_chain(m: PlanBuilder) -> None:
    """A chain of ``rows`` steps."""
    before: list[StepPlan] = []
    for n in range(m.rows):
        before = [_noop(m, f"s{n}", before, f"{m.variant}/{n}")]


@shape("noop-diamond")
def noop_diamond(m: PlanBuilder) -> None:
    """One step, ``rows`` steps after it, and one after all of them."""
    first = _noop(m, "first", [], f"{m.variant}")
    middle = [_noop(m, f"s{n}", [first], f"{m.variant}/{n}") for n in range(m.rows)]
    _noop(m, "last", middle, f"{m.variant}/last")


@shape("map-stream")
def map_stream(m: PlanBuilder) -> None:
    """A chain of row-wise steps over chunks."""
    rows: Source = m.data("gsm8k", m.rows)
    for n in range(int(m.options.get("steps", 3))):
        rows = out(m.step(f"s{n}", "test.map", {"rows": rows}, value=f"{m.variant}/{n}"))


@shape("steps")
def steps(m: PlanBuilder) -> None:
    """A chain of long steps with checkpoints."""
    before: list[StepPlan] = []
    for n in range(int(m.options.get("steps", 3))):
        inputs: dict[str, Source] = {f"after{i}": out(s, "metrics") for i, s in enumerate(before)}
        before = [
            m.step(
                f"s{n}",
                "test.steps",
                inputs,
                steps=m.rows,
                stepSeconds=0.5,
                checkpointEvery=max(1, m.rows // 4),
                value=f"{m.variant}/{n}",
            )
        ]


@shape("sleepers")
def sleepers(m: PlanBuilder) -> None:
    """Parallel steps of very different lengths."""
    for n in range(min(8, m.rows)):
        m.step(f"s{n}", "test.sleep", {}, seconds=float(2**n) / 4, value=m.variant)


@shape("mixed")
def mixed(m: PlanBuilder) -> None:
    """Row-wise steps, and steps that depend on their rows and metrics."""
    rows = m.data("gsm8k", m.rows)
    first = m.step("map", "test.map", {"rows": rows}, value=m.variant)
    second = m.step("again", "test.map", {"rows": out(first)}, value="again")
    m.step("count", "test.noop", {"a": out(first, "metrics"), "b": out(second, "metrics")})
    m.step("last", "data.sql", {"rows": out(second)}, query=f"select {m.rng.randrange(3)}")


@shape("private")
def private(m: PlanBuilder) -> None:
    """Steps with ignored inputs: their results stay with the tenant."""
    corpus = m.step("corpus", "test.map", {"rows": m.data("mmlu", m.rows)}, value=m.rng.random())
    rows: Source = m.data("gsm8k", m.rows)
    for n in range(2):
        inputs: dict[str, Source] = {"rows": rows, "corpus": out(corpus)}
        rows = out(m.step(f"s{n}", "retrieve.topk", inputs, k=n + 1, ignored=["corpus"]))


@shape("conditional")
def conditional(m: PlanBuilder) -> None:
    """Steps with conditions on the rows of a step: about half of them run."""
    first = m.step("map", "test.map", {"rows": m.data("gsm8k", m.rows)}, value=m.variant)
    steps = []
    for n in range(min(8, m.rows)):
        text = f"steps['map'].rows.count > {n * 2}"
        step = m.step(f"s{n}", "test.map", {"rows": out(first)}, value=n)
        m.steps[-1] = msgspec.structs.replace(step, when=text, when_steps=("map",))
        steps.append(_noop(m, f"after{n}", [step], n))
    m.step("last", "test.noop", {"a": out(first, "metrics"), "b": out(steps[0], "metrics")})
