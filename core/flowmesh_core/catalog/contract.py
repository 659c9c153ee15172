"""What an engine declares about itself.

The compiler types workflows with it, identity reads the versions and the identity fields, the
scheduler reads the batching fields. Contracts are data: control and CLI load them without the
engine's libraries.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

ROWS = "rows"


class PortKind(StrEnum):
    """The kind of artifact that a port carries."""

    DATASET = "dataset"
    MODEL = "model"
    ADAPTER = "adapter"
    METRICS = "metrics"
    BLOB = "blob"


class Reduction(StrEnum):
    """How the outputs of a row-wise step's chunks become the step's output.

    A dataset port has none: its chunks are concatenated.
    """

    CONCAT = "concat"
    SUM = "sum"
    MEAN_BY_COUNT = "mean-by-count"
    MERGE = "merge"


class Determinism(StrEnum):
    """What a second run of the same action gives."""

    EXACT = "exact"
    SEEDED = "seeded"
    SAMPLED = "sampled"
    EXTERNAL = "external"


class ParamType(StrEnum):
    """The type a parameter is read as before it is hashed."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    OBJECT = "object"
    ANY = "any"


Choice = tuple[str, Any]
"""A parameter and a value: met where the parameter has it, or, being a list, holds it."""


@dataclass(frozen=True, slots=True)
class Port:
    """A typed input or output.

    Attributes:
        name: the port's name. An input named ``*`` takes any number of inputs of this kind under
            names that the user chooses (tables of ``data.sql``, say).
        kind: the kind of artifact.
        required: for inputs, whether it must be connected.
        component: whether the artifact is loaded into the engine (a model, a tokenizer) and so
            belongs to the signature.
        mixable: whether one engine instance serves several of these at once (LoRA adapters), which
            keeps it out of the signature.
        reduction: how chunks of a row-wise step become one; only for ports that are no dataset.
        doc: one sentence.
        only_with: for outputs, a parameter and the value that it must have for the port to be
            there, ``("use_peft", True)`` say; None where it always is.
            :func:`flowmesh_core.catalog.resolved_contract.output_ports` gives the ports of a step.
    """

    name: str
    kind: PortKind
    required: bool = True
    component: bool = False
    mixable: bool = False
    reduction: Reduction = Reduction.CONCAT
    doc: str = ""
    only_with: Choice | None = None


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of ``with``.

    Attributes:
        name: the parameter's name.
        type: what a value is read as.
        default: the value where the user gives none; ignored when required.
        required: whether the user must give it.
        minimum: the least allowed number (inclusive).
        maximum: the greatest allowed number (inclusive).
        choices: the allowed values; empty where any will do.
        items: the allowed items of a list; empty where any will do.
        batch_wide: whether all actions of one batch must agree on it (it enters the signature).
        template: ``"jinja"`` where the value is a template over the columns of the row port.
        columns: ``"one"`` or ``"many"`` where the value names columns of the row port.
        format: what the value must parse as at admission: ``json-schema``, ``python``, ``regex``,
            ``sql`` (one SELECT over the inputs), ``chat`` (a list of ``{role, content}``),
            ``verifiers`` (a list of named checks, see ``catalog.verifiers``) or ``secret`` (the
            name of a secret, whose value is sent with each attempt); empty where it is not looked
            into.
        doc: one sentence.
    """

    name: str
    type: ParamType
    default: Any = None
    required: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    items: tuple[Any, ...] = ()
    batch_wide: bool = False
    template: str = ""
    columns: str = ""
    format: str = ""
    doc: str = ""


@dataclass(frozen=True, slots=True)
class EngineContract:
    """An engine's promises.

    Attributes:
        name: what ``uses`` says, e.g. ``llm.generate``.
        version: the contract's version; raised when ports or parameters change.
        implementation: the implementation's version; raised when results change.
        inputs: input ports.
        outputs: output ports.
        params: parameters of ``with``, without the identity fields below.
        one_of: groups of parameters of which exactly one must be given.
        identity_fields: those of ``dtype``, ``batchInvariant``, ``implementation`` and
            ``tensorParallel`` that change this engine's results.
        determinism: the class of its results, as far as no parameter changes it;
            ``determinism_of`` says a step's.
        row_wise: the dataset input port whose chunks are worked on one by one; empty where the
            step is one action.
        row_output: for a row-wise engine, the output port that carries the rows.
        adds_columns: columns added to the row port's (those named by a parameter as ``$param``,
            where it is given).
        work_unit: what it counts: ``tokens``, ``samples``, ``rows``, ``steps``, ``bytes`` or
            ``actions``.
        needs_gpu_class: ``accelerator`` where it runs on the pool's devices, ``host`` elsewhere.
        user_code: whether it runs code of the user and needs a pool that allows it.
        idempotent: for external engines, whether a repeated call is harmless.
        external_with: choices of which each makes a step ``external``.
        user_code_with: choices of which each makes a step run code of the user.
        idempotent_with: choices of which each makes a step's repeated call harmless.
        capacity: how many actions one engine instance runs at once.
        base_memory_mib: device memory needed besides components (host memory on a CPU).
        component_memory_factor: device memory per byte of components.
        doc: a paragraph for ``fmesh engines``.
        default_timeout_s: how long an attempt may run where the step does not say; 0 is no bound.
        max_timeout_s: the most that a step may say; 0 is no bound. Neither is part of any name.
        timeout_param: a parameter that bounds the engine's own work in seconds, which the default
            is never shorter than; empty where there is none.
    """

    name: str
    version: int
    implementation: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    params: tuple[Param, ...] = ()
    one_of: tuple[tuple[str, ...], ...] = ()
    identity_fields: tuple[str, ...] = ()
    determinism: Determinism = Determinism.EXACT
    row_wise: str = ""
    row_output: str = ""
    adds_columns: tuple[str, ...] = ()
    work_unit: str = "rows"
    needs_gpu_class: str = "host"
    user_code: bool = False
    idempotent: bool = True
    capacity: int = 1
    base_memory_mib: int = 256
    component_memory_factor: float = 0.0
    doc: str = ""
    examples: tuple[str, ...] = field(default=())
    external_with: tuple[Choice, ...] = ()
    user_code_with: tuple[Choice, ...] = ()
    idempotent_with: tuple[Choice, ...] = ()
    default_timeout_s: float = 0.0
    max_timeout_s: float = 0.0
    timeout_param: str = ""

    @property
    def row_port(self) -> str:
        """The data set whose columns templates and parameters name; empty where there is none.

        The row-wise port, or the one named ``rows``.
        """
        named = (p.name for p in self.inputs if p.kind is PortKind.DATASET and p.name == ROWS)
        return self.row_wise or next(named, "")

    def input_port(self, name: str) -> Port | None:
        """The input port of this name, or the ``*`` port, or None."""
        by_name = {p.name: p for p in self.inputs}
        return by_name.get(name) or by_name.get("*")

    def output_port(self, name: str) -> Port | None:
        """The output port of this name, or None; not every step has it (``only_with``)."""
        return next((p for p in self.outputs if p.name == name), None)

    def param(self, name: str) -> Param | None:
        """The parameter of this name, or None."""
        return next((p for p in self.params if p.name == name), None)
