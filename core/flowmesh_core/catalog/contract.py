"""The declaration of an engine.

The compiler types workflows with it, identity reads the versions and the identity fields, the
scheduler reads the batching fields. Contracts are data: the control plane and the CLI load them
without the engine's libraries.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from flowmesh_api.v1.fabric import EngineVersion

ROWS = "rows"
INSTANCES = "instances"
"""The key of the metrics that a port which collects them gets: ``[{matrix, metrics}, ...]``."""


class PortKind(StrEnum):
    """The kind of artifact of a port."""

    DATASET = "dataset"
    MODEL = "model"
    ADAPTER = "adapter"
    METRICS = "metrics"
    BLOB = "blob"


class Reduction(StrEnum):
    """How the outputs of a row-wise step's chunks become the step's output.

    A data set port has none: its chunks are concatenated.
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
    """The type that a parameter is read as before it is hashed."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    OBJECT = "object"
    ANY = "any"


Choice = tuple[str, Any]
"""A parameter and a value: met where the parameter has it, or is a list that contains it."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that an engine reports.

    Attributes:
        name: its name. A parameter in braces makes it several, one for each entry of the list or
            object that the parameter holds: ``share.{labels}``, ``pass_at_{k}``. Verifiers count by
            their names.
        type: the type of its values.
        with_param: a parameter that must be given for the metric to exist; empty where none must.
        without_param: a parameter that must not be given.
        only_with: a parameter and the value that it must have.
    """

    name: str
    type: ParamType = ParamType.NUMBER
    with_param: str = ""
    without_param: str = ""
    only_with: Choice | None = None


@dataclass(frozen=True, slots=True)
class Port:
    """A typed input or output.

    Attributes:
        name: the port's name. An input named ``*`` is any number of inputs of this kind under names
            that the user chooses (for example, tables of ``data.sql``).
        kind: the kind of artifact.
        required: for inputs, whether it must be connected.
        component: whether the artifact is loaded into the engine (a model, a tokenizer) and so is
            part of the signature.
        mixable: whether one engine instance serves several of these at once (LoRA adapters), so
            that it is not part of the signature.
        resident: for inputs, whether a replica of a service loads the artifact once and keeps it,
            though in a workflow each action brings its own.
        reduction: how chunks of a row-wise step become one; only for ports other than data sets.
        doc: one sentence.
        only_with: for outputs, a parameter and the value that it must have for the port to exist,
            such as ``("use_peft", True)``; None where it always does.
            :func:`flowmesh_core.catalog.resolved_contract.output_ports` returns the ports of a
            step.
        metrics: for outputs of metrics, those that there are; empty where the contract does not
            say, so that conditions may read any.
            :func:`flowmesh_core.catalog.resolved_contract.metrics_of` returns those of a step.
        row_of: for outputs of metrics, the data set output whose one row they are.
        collects: for inputs of metrics, whether it takes any number of them as one list, each with
            the matrix values of the instance that made it.
    """

    name: str
    kind: PortKind
    required: bool = True
    component: bool = False
    mixable: bool = False
    reduction: Reduction = Reduction.CONCAT
    doc: str = ""
    only_with: Choice | None = None
    resident: bool = False
    metrics: tuple[Metric, ...] = ()
    row_of: str = ""
    collects: bool = False

    @property
    def is_loaded(self) -> bool:
        """Whether an instance of a service loads the artifact at its start."""
        return self.resident or (self.component and not self.mixable)


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of ``with``.

    Attributes:
        name: the parameter's name.
        type: the type that a value is read as.
        default: the value where the user gives none; ignored when required.
        required: whether the user must give it.
        minimum: the least allowed number (inclusive).
        maximum: the greatest allowed number (inclusive).
        choices: the allowed values; empty where any will do.
        items: the allowed items of a list; empty where any will do.
        batch_wide: whether all actions of one batch must agree on it (it is part of the signature).
        template: ``"jinja"`` where the value is a template over the columns of the row port.
        columns: ``"one"`` or ``"many"`` where the value names columns of the row port.
        format: what the value must parse as at admission: ``json-schema``, ``python``, ``regex``,
            ``sql`` (one SELECT over the inputs), ``chat`` (a list of ``{role, content}``),
            ``chat-rows`` (the name of a column of such lists), ``chat-template``,
            ``chat-template-args``, ``engine-settings`` (see ``catalog.engine_settings``),
            ``verifiers`` (a list of named checks, see ``catalog.verifiers``), ``metrics`` (names
            with their types) or ``secret`` (the name of a secret, whose value is sent with each
            attempt); empty where it is not parsed.
        doc: one sentence.
        beside: parameters that this one may stand for, or stand beside: in a group of which exactly
            one must be given, it counts as each of them.
        needs: parameters of which one must be given too; empty where none must.
        implementations: the values of ``implementation`` with which it may be set; empty for all.
        added: the contract's minor that brought the parameter; 0 where the version had it from the
            start. One that was added later is left out of names while it has its default, which so
            may never change within the version.
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
    added: int = 0
    beside: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    implementations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineContract:
    """An engine's promises.

    Attributes:
        name: as in ``uses``, e.g. ``llm.generate``.
        version: the contract's version; raised when ports or parameters change, other than by
            additions.
        implementation: the implementation's version; raised when results change.
        inputs: input ports.
        outputs: output ports.
        params: parameters of ``with``, without the identity fields below.
        one_of: groups of parameters of which exactly one must be given.
        identity_fields: those of ``dtype``, ``batchInvariant``, ``implementation`` and
            ``tensorParallel`` that change this engine's results.
        determinism: the class of its results, where no parameter changes it; ``determinism_of``
            returns a step's.
        row_wise: the data set input port whose chunks are separate actions; empty where the step is
            one action.
        row_output: for a row-wise engine, the output port with the rows.
        adds_columns: columns added to the row port's (those named by a parameter as ``$param``,
            where it is given), each with its type where that is always the same: ``correct:bool``.
        work_unit: what it counts: ``tokens``, ``samples``, ``rows``, ``steps``, ``bytes`` or
            ``actions``.
        needs_gpu_class: ``accelerator`` where it runs on the pool's devices, ``host`` elsewhere.
        user_code: whether it runs the user's code and needs a pool that allows it.
        idempotent: for external engines, whether a repeated call is harmless.
        external_with: choices of which each makes a step ``external``.
        user_code_with: choices of which each makes a step run the user's code.
        idempotent_with: choices of which each makes a step's repeated call harmless.
        capacity: how many actions one engine instance runs at once.
        base_memory_mib: device memory needed besides components (host memory on a CPU).
        component_memory_factor: device memory per byte of components.
        doc: a paragraph for ``fmesh engines``.
        default_timeout_s: how long an attempt may run where the step has no timeout; 0 is
            unlimited.
        max_timeout_s: the longest timeout of a step; 0 is unlimited. Neither is part of any name.
        timeout_param: a parameter that limits the engine's own work, in seconds; the default is
            never shorter. Empty where there is none.
        minor: the number of additions to this version: raised by one where parameters are added.
        added_fields: identity fields that were added later, each with its minor.
        field_defaults: identity fields whose default is this engine's own, each with it.
        sampled_with: values of identity fields of which each makes a step ``sampled`` in place of
            ``seeded``.
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
    minor: int = 0
    added_fields: tuple[tuple[str, int], ...] = ()
    field_defaults: tuple[Choice, ...] = ()
    sampled_with: tuple[Choice, ...] = ()

    @property
    def versions(self) -> EngineVersion:
        """The versions that a worker with this engine offers."""
        return EngineVersion(self.version, self.implementation, self.minor)

    @property
    def row_port(self) -> str:
        """The data set whose columns templates and parameters name; empty where there is none.

        The row-wise port, or the one named ``rows``.
        """
        named = (p.name for p in self.inputs if p.kind is PortKind.DATASET and p.name == ROWS)
        return self.row_wise or next(named, "")

    def input_port(self, name: str) -> Port | None:
        """Returns the input port of this name, or the ``*`` port, or None."""
        any_name = None
        for port in self.inputs:
            if port.name == name:
                return port
            if port.name == "*":
                any_name = port
        return any_name

    def output_port(self, name: str) -> Port | None:
        """Returns the output port of this name, or None; not every step has it (``only_with``)."""
        return next((p for p in self.outputs if p.name == name), None)

    def param(self, name: str) -> Param | None:
        """Returns the parameter of this name, or None."""
        return next((p for p in self.params if p.name == name), None)


def require_sound_additions(contract: EngineContract) -> None:
    """Refuses additions that would change the names of earlier actions.

    Raises:
        ValueError: names the parameter or field.
    """
    name, minors = contract.name, dict(contract.added_fields)
    minors |= {p.name: p.added for p in contract.params}
    late = next((p for p, minor in minors.items() if minor > contract.minor), "")
    if late:
        raise ValueError(
            f"{name}: {late} was added in minor {minors[late]}, but the contract has minor"
            f" {contract.minor}; raise minor"
        )
    if required := next((p.name for p in contract.params if p.added and p.required), ""):
        raise ValueError(
            f"{name}: {required} was added later and is required; give it a default, or raise"
            " version"
        )
    if strange := sorted(set(dict(contract.added_fields)) - set(contract.identity_fields)):
        raise ValueError(f"{name}: {strange[0]} is not among its identity fields")
