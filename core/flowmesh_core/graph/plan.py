"""A compiled workflow: what the machine runs.

Made by ``graph.compile`` from a validated workflow and the catalog; read by the machine, the
planner and the CLI. Everything is expanded (matrix), typed (parameters after defaults) and ordered
(a step comes after all that it needs). It is stored in ``runs/<uid>/spec`` and read back, so that a
restarted control plane runs exactly what was accepted.

External inputs are steps too: ``inputs.base`` is a step of engine ``model.import`` whose port
``pin`` has the resolved revision (ADR 2).
"""

from typing import Any

import msgspec

from flowmesh_api.v1.trace import Weights

PLAN_LEVEL = 4
"""The highest level of plans that this release runs.

A release whose plans have a field that older releases must not drop raises it, and pins the runs
that use the field to the new level; an older release lets such a run wait. Level 2 has
``min_trust``, level 3 ``paid_by_fabric``, level 4 ``Edge.pick``, ``Edge.when_skipped`` and
``StepPlan.after``.
"""

ALL, FIRST = "all", "first"
"""Values of ``Edge.pick``."""
SKIP, ABSENT, EMPTY = "skip", "absent", "empty"
"""Values of ``Edge.when_skipped``."""


class StepSource(msgspec.Struct, frozen=True, tag="step", gc=False):
    """An output port of another step."""

    step: str
    port: str


class ArtifactSource(msgspec.Struct, frozen=True, tag="artifact", gc=False):
    """Content that is already in the store: an uploaded file, inline rows, or a ``cas:`` reference.

    Attributes:
        kind: ``dataset``, ``model``, ``adapter``, ``metrics`` or ``blob``.
        reference: ``cas:<kind>:<digest>.<key id><mac>``; checked against the namespace's scopes at
            admission.
    """

    kind: str
    reference: str


Source = StepSource | ArtifactSource


class Edge(msgspec.Struct, frozen=True, gc=False):
    """The sources of an input port.

    Attributes:
        port: the input's name (for a ``*`` port, the name that the user chose).
        kind: the kind of artifact.
        sources: one source, or several in the order that the author gave.
        required: false only in plans of earlier releases, where a skipped source left out an input
            that the engine could do without.
        concatenate: whether several sources are joined: data sets one after the other, metrics as a
            list of instances.
        pick: ``all`` takes every source, ``first`` the first that was not skipped.
        when_skipped: what happens where no source has an artifact: ``skip`` skips this step,
            ``absent`` leaves the input out, ``empty`` gives a data set without rows. Skipped
            sources among others are left out.
        empty_columns: the columns of that data set, by name.
    """

    port: str
    kind: str
    sources: tuple[Source, ...]
    required: bool = True
    concatenate: bool = False
    pick: str = ALL
    when_skipped: str = SKIP
    empty_columns: dict[str, str] = {}

    @property
    def skips(self) -> bool:
        """Whether the step is skipped where no source has an artifact."""
        return self.required and self.when_skipped == SKIP

    @property
    def level(self) -> int:
        """The least ``PLAN_LEVEL`` of a release that runs it."""
        return 1 if self.pick == ALL and self.when_skipped == SKIP else 4


class Resources(msgspec.Struct, frozen=True, gc=False):
    """What a step requires of a worker. Zero and empty mean the contract's default."""

    memory_mib: int = 0
    gpu_product: tuple[str, ...] = ()
    tensor_parallel: int = 1
    labels: dict[str, str] = {}
    anti_labels: dict[str, str] = {}


class Retry(msgspec.Struct, frozen=True, gc=False):
    """Limits of the attempts after failures of the engine (losses have limits of their own)."""

    attempts: int = 3
    backoff_s: float = 1.0


class Cache(msgspec.Struct, frozen=True, gc=False):
    """Reuse rules of a step."""

    reuse: str = "always"  # always | run | never
    salt: str = ""
    max_age_s: float = 0.0  # 0: unlimited
    ignored_inputs: tuple[str, ...] = ()


class StepPlan(msgspec.Struct, frozen=True, gc=False):
    """One expanded step.

    Attributes:
        path: its unique name: ``sample``, ``tune[lr=1e-5]``, ``inputs.base``.
        name: the step's name in the file.
        engine: ``uses``.
        contract: pinned contract version.
        implementation: pinned implementation version.
        params: typed parameters after defaults, without the identity fields.
        fields: the identity fields (``dtype``, ``batchInvariant``, ``implementation``,
            ``tensorParallel``), resolved.
        edges: the inputs.
        when: a CEL condition, or empty.
        when_steps: paths of steps whose outputs the condition reads (edges of the graph).
        matrix: this instance's matrix values.
        timeout_s: limit of one attempt as the step has it; 0 leaves it to the engine's contract.
        secrets: names of secrets to send for one attempt, each with its place where the workflow
            gives one (``SecretLocation``).
        minor: the least minor of the contract that knows everything that the step sets.
        avoid_workers: workers that are used only where there is no other; of a sampled audit, those
            whose results it compares.
        after: paths of steps that must have ended before, though nothing of them is read.
    """

    path: str
    name: str
    engine: str
    contract: int
    implementation: int
    params: dict[str, Any]
    fields: dict[str, Any]
    edges: tuple[Edge, ...] = ()
    when: str = ""
    when_steps: tuple[str, ...] = ()
    matrix: dict[str, Any] = {}
    resources: Resources = Resources()
    retry: Retry = Retry()
    cache: Cache = Cache()
    timeout_s: float = 0.0
    secrets: tuple[str, ...] = ()
    minor: int = 0
    avoid_workers: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def parents(self) -> tuple[str, ...]:
        """Returns the paths of all steps that must end before this one begins, without repeats."""
        found = [s.step for e in self.edges for s in e.sources if isinstance(s, StepSource)]
        return tuple(dict.fromkeys([*found, *self.when_steps, *self.after]))

    @property
    def level(self) -> int:
        """The least ``PLAN_LEVEL`` of a release that runs it."""
        return 4 if self.after else max((e.level for e in self.edges), default=1)


class UtilityWeights(Weights, frozen=True, gc=False):
    """Coefficients of the utility, each at least 0."""

    @property
    def thrifty(self) -> bool:
        """Whether dollars weigh more than seconds, as with ``optimize: cost``."""
        return self.beta > self.alpha


class Plan(msgspec.Struct, frozen=True, gc=False):
    """A compiled workflow.

    Attributes:
        name: ``metadata.name``.
        namespace: the tenant.
        steps: in topological order, ties in order of declaration.
        outputs: output name → its source; several sources are a concatenation.
        params: values of ``params``, for conditions.
        weights: by ``optimize``.
        priority: higher first.
        budget_nanousd: 0 is no budget.
        deadline_s: seconds after creation; 0 is none.
        suspend: accepted but not dispatched.
        audit_of: of an audit, the run whose actions it executes again; empty for every other run.
        min_trust: the least trust of pools that may make its results, where that is more than its
            scopes ask.
        paid_by_fabric: whether the fabric pays for it in place of the namespace.
    """

    name: str
    namespace: str
    steps: tuple[StepPlan, ...]
    outputs: dict[str, tuple[Source, ...]]
    params: dict[str, Any] = {}
    weights: UtilityWeights = UtilityWeights()
    priority: int = 0
    budget_nanousd: int = 0
    deadline_s: float = 0.0
    suspend: bool = False
    audit_of: str = ""
    min_trust: int = 0
    paid_by_fabric: bool = False

    @property
    def level(self) -> int:
        """The least ``PLAN_LEVEL`` of a release that runs it."""
        own = 3 if self.paid_by_fabric else 2 if self.min_trust else 1
        return max(own, max((s.level for s in self.steps), default=1))
