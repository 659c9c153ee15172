"""State of one compilation: the workflow, its names, and the problems found so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from flowmesh_api.v1.problems import Problem
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.dataset.schema import ColumnType
from flowmesh_core.graph.limits import Limits
from flowmesh_core.graph.matrix import Index, StepInstance
from flowmesh_core.graph.plan import Edge, Source, StepPlan
from flowmesh_core.spec.field_notes import FieldNotes
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.spec.workflow import FlowMeshWorkflow, StepSpec
from flowmesh_core.spec.workflow_reader import is_stand_in
from flowmesh_documents.paths import Key, path_text
from flowmesh_documents.substitution import Substitution

Keys = tuple[Key, ...]
_FIELD_DEPTH = 4  # spec.steps[0].with
_STEP_DEPTH = 3
Columns = Mapping[str, ColumnType | None] | None
"""The columns of a data set with their types, a type as None where only the name is known; None
where the columns are not known at admission."""
KnownColumns = Mapping[str, Sequence[str] | Mapping[str, str]]
"""The columns of data sets that a caller has read, by the input's name; with types if it knows."""


class StepEntry(msgspec.Struct, frozen=True):
    """A step of the file: its place, its contract (None where unknown) and its instances.

    Attributes:
        is_partial: whether a problem of the matrix, which is reported, leaves instances out, so
            that a selection may name one of them.
    """

    index: int
    spec: StepSpec
    contract: EngineContract | None
    instances: list[StepInstance]
    by_value: Index
    is_partial: bool = False

    @property
    def keys(self) -> Keys:
        """Its place in the document."""
        return ("spec", "steps", self.index)


class StepDraft(msgspec.Struct, frozen=True, gc=False):
    """An instance of a step, with what connects it to others.

    Attributes:
        entry: the step.
        instance: its path and matrix values.
        edges: its inputs.
        after: paths of steps that it comes after.
        when: its condition; ``when_steps`` the paths that this reads.
    """

    entry: StepEntry
    instance: StepInstance
    edges: tuple[Edge, ...]
    after: tuple[str, ...] = ()
    when: str = ""
    when_steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InputEntry:
    """An input from outside: its kind, its source, and the steps that import it."""

    kind: str
    source: Source
    steps: tuple[StepPlan, ...] = ()
    columns: Columns = None


class EmptyRows(msgspec.Struct, frozen=True):
    """A data set that has no rows, since an input has none and no columns.

    Attributes:
        origin: the input, with its file.
        columns: those that row-wise steps have added.
    """

    origin: str
    columns: Columns


class MetricRead(msgspec.Struct, frozen=True, gc=False):
    """A metric that a condition reads.

    Attributes:
        step: the path of the instance that reports it.
        port: the output.
        name: the metric.
        keys: where the condition is.
    """

    step: str
    port: str
    name: str
    keys: Keys


@dataclass(slots=True)
class CompileContext:
    """One compilation.

    Attributes:
        metric_reads: what conditions read, to be checked when the steps' parameters are known.
        rows: the columns of data sets, as far as they are known.
        without_rows: data sets without rows, whose columns nothing else is checked against.
        bound_queries: the columns of results, by query and tables.
        faulty: steps and their fields with a problem, so that what follows from it is left out.
    """

    workflow: FlowMeshWorkflow
    catalog: Catalog
    limits: Limits
    uploads: Mapping[str, str]
    columns: KnownColumns
    validate_only: bool
    steps: dict[str, StepEntry] = field(default_factory=dict)
    inputs: dict[str, InputEntry | None] = field(default_factory=dict)
    problems: dict[tuple[str, str], Problem] = field(default_factory=dict)
    params_bytes: int = 0
    metric_reads: list[MetricRead] = field(default_factory=list)
    rows: dict[Source, Columns] = field(default_factory=dict)
    without_rows: dict[Source, EmptyRows] = field(default_factory=dict)
    faulty: set[Keys] = field(default_factory=set)
    bound_queries: dict[Any, Columns] = field(default_factory=dict)
    defaults: dict[str, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)

    def report(self, keys: Keys, message: str) -> None:
        """Records a problem once, however many instances of a step have it.

        One that only follows from a problem of the document is left out, and so is an empty one.
        """
        self.faulty.add(keys[:_FIELD_DEPTH])
        if not message or self.notes.follows(keys):
            return
        path, message = path_text(keys), message + self.notes.origin(keys)
        self.problems.setdefault((path, message), Problem(path, message))

    def has_problem(self, entry: "StepEntry", field_name: str) -> bool:
        """Whether a problem of a step's field, or of a part of it, is reported."""
        return bool(self.faulty) and (*entry.keys, field_name) in self.faulty

    def use_bytes(self, count: int) -> None:
        """Counts bytes of parameters against the limit."""
        self.params_bytes += count
        if self.full:
            self.report(
                ("spec", "steps"),
                f"more than {self.limits.params_bytes} bytes of parameters, once filled in",
            )

    @property
    def full(self) -> bool:
        """Whether there are too many bytes of parameters; the rest is not filled in any more."""
        return self.params_bytes > self.limits.params_bytes

    @property
    def notes(self) -> FieldNotes:
        """What is known of the workflow's fields besides their values."""
        return self.workflow.notes

    def params(self) -> dict[str, Any]:
        """Returns the values of the workflow's parameters."""
        return self.workflow.spec.params

    def substitution(self, entry: StepEntry, own: Mapping[str, Any]) -> Substitution:
        """Returns what fills in a step's references.

        Args:
            entry: the step.
            own: the instance's matrix values.
        """
        unknown = self.notes.unknown_names(entry.keys)
        return Substitution(self.params(), own, unknown=unknown, suggest=did_you_mean)

    def step_hint(self, name: str) -> str:
        """Returns the end of an error about a step that there is not; see ``did_you_mean``."""
        return did_you_mean(name, [n for n in self.steps if not is_stand_in(n)])

    def has_own_matrix(self, keys: Keys) -> bool:
        """Whether all matrix names of the step that a field is in are known."""
        return not self.notes.follows((*keys[:_STEP_DEPTH], "matrix"))
