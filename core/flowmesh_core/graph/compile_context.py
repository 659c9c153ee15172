"""State of one compilation: the workflow, its names, and the problems found so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from flowmesh_api.v1.problems import Problem
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.graph.limits import Limits
from flowmesh_core.graph.matrix import Index, StepInstance
from flowmesh_core.graph.plan import Source, StepPlan
from flowmesh_core.spec.workflow import FlowMeshWorkflow, StepSpec
from flowmesh_documents.paths import Key, path_text

Keys = tuple[Key, ...]
Columns = frozenset[str] | None
"""The columns of a data set; None where they are not known at admission."""


class StepEntry(msgspec.Struct, frozen=True):
    """A step of the file: its place, its contract (None where unknown) and its instances."""

    index: int
    spec: StepSpec
    contract: EngineContract | None
    instances: list[StepInstance]
    by_value: Index

    @property
    def keys(self) -> Keys:
        """Its place in the document."""
        return ("spec", "steps", self.index)


@dataclass(frozen=True, slots=True)
class InputEntry:
    """An input from outside: its kind, its source, and the steps that import it."""

    kind: str
    source: Source
    steps: tuple[StepPlan, ...] = ()
    columns: Columns = None


@dataclass(slots=True)
class CompileContext:
    """One compilation; ``texts`` has columns that are known to hold texts, by data set."""

    workflow: FlowMeshWorkflow
    catalog: Catalog
    limits: Limits
    uploads: Mapping[str, str]
    columns: Mapping[str, Sequence[str]]
    validate_only: bool
    steps: dict[str, StepEntry] = field(default_factory=dict)
    inputs: dict[str, InputEntry | None] = field(default_factory=dict)
    texts: dict[Source, frozenset[str]] = field(default_factory=dict)
    problems: dict[tuple[str, str], Problem] = field(default_factory=dict)
    params_bytes: int = 0
    defaults: dict[str, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)

    def report(self, keys: Keys, message: str) -> None:
        """Records a problem once, however many instances of a step have it."""
        path = path_text(keys)
        self.problems.setdefault((path, message), Problem(path, message))

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

    def params(self) -> dict[str, Any]:
        """Returns the workflow's params."""
        return self.workflow.spec.params
