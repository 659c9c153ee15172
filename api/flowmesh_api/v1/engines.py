"""The engines of a fabric: their contracts, and which workers offer each."""

from typing import Any

import msgspec

Choice = tuple[str, Any]
"""A parameter and a value; it applies where the parameter has the value, or contains it."""
Number = int | float
"""A number as the contract writes it, with or without a fraction."""


class EngineMetric(msgspec.Struct, frozen=True):
    """A metric that an engine reports.

    Attributes:
        name: a parameter in braces makes it several, one for each entry: ``share.{labels}``.
        type: of its values.
        with_param: a parameter that must be given for it to exist; ``without_param`` one that must
            not be.
        only_with: a parameter and the value that it must have.
    """

    name: str
    type: str
    with_param: str
    without_param: str
    only_with: Choice | None


class EnginePort(msgspec.Struct, frozen=True):
    """A typed input or output of an engine.

    Attributes:
        name: an input named ``*`` is any number of inputs under names that the user chooses.
        kind: ``dataset``, ``model``, ``adapter``, ``metrics`` or ``blob``.
        component: whether the artifact is loaded into the engine.
        mixable: whether one engine instance serves several of these at once.
        reduction: how chunks of a row-wise step become one; only for ports other than data sets.
        only_with: of an output, the parameter and value without which the port does not exist.
        resident: whether a replica of a service loads the artifact and keeps it.
        metrics: of an output of metrics, those that there are; empty where any may be.
        row_of: the data set output whose one row the metrics are.
        collects: whether an input of metrics takes any number of them.
    """

    name: str
    kind: str
    required: bool
    component: bool
    mixable: bool
    reduction: str
    doc: str
    only_with: Choice | None
    resident: bool = False
    metrics: tuple[EngineMetric, ...] = ()
    row_of: str = ""
    collects: bool = False


class EngineParameter(msgspec.Struct, frozen=True):
    """A parameter of ``with``.

    Attributes:
        type: what a value is read as.
        minimum, maximum: inclusive.
        choices: the allowed values; ``items`` the allowed items of a list; empty is any.
        batch_wide: whether all actions of one batch must agree on it.
        template: ``jinja`` where the value is a template over the columns of the row port.
        columns: ``one`` or ``many`` where the value names columns of the row port.
        format: what the value must parse as at admission.
        added: the contract's minor that brought it; 0 where the version had it from the start.
        beside: parameters for which this one counts too in groups of which one must be given.
        needs: parameters of which one must be given too; empty where none must.
        implementations: the values of ``implementation`` that have it; empty for all.
    """

    name: str
    type: str
    default: Any
    required: bool
    minimum: Number | None
    maximum: Number | None
    choices: tuple[Any, ...]
    items: tuple[Any, ...]
    batch_wide: bool
    template: str
    columns: str
    format: str
    doc: str
    added: int
    beside: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    implementations: tuple[str, ...] = ()


class OfferedEngine(msgspec.Struct, frozen=True):
    """An engine's contract, with the workers that offer this version of it.

    Attributes:
        version: of the contract; ``implementation`` of what computes the results.
        one_of: groups of parameters of which exactly one must be given.
        identity_fields: fields that change this engine's results.
        determinism: ``exact``, ``seeded``, ``sampled`` or ``external``.
        row_wise: the input port whose chunks are separate actions; empty where the step is one.
        row_output: for a row-wise engine, the output port with the rows.
        adds_columns: columns added to those of the row port.
        work_unit: what it counts.
        needs_gpu_class: ``accelerator`` where it runs on the pool's devices, else ``host``.
        user_code: whether it runs the user's code.
        idempotent: for external engines, whether a repeated call is harmless.
        external_with, user_code_with, idempotent_with: choices of which each has that effect.
        capacity: number of actions that one engine instance runs at once.
        base_memory_mib: memory needed besides components.
        component_memory_factor: memory per byte of components.
        default_timeout_s: limit of an attempt where the step has none; 0 is unlimited.
        max_timeout_s: the longest timeout that a step may have; 0 is unlimited.
        timeout_param: a parameter that limits the engine's own work, in seconds.
        minor: the number of additions to this version.
        added_fields: identity fields that were added later, each with its minor.
        field_defaults: identity fields with a default of the engine's own, each with it.
        sampled_with: values of identity fields of which each makes results ``sampled``.
    """

    name: str
    version: int
    implementation: int
    inputs: tuple[EnginePort, ...]
    outputs: tuple[EnginePort, ...]
    params: tuple[EngineParameter, ...]
    one_of: tuple[tuple[str, ...], ...]
    identity_fields: tuple[str, ...]
    determinism: str
    row_wise: str
    row_output: str
    adds_columns: tuple[str, ...]
    work_unit: str
    needs_gpu_class: str
    user_code: bool
    idempotent: bool
    capacity: int
    base_memory_mib: int
    component_memory_factor: Number
    doc: str
    examples: tuple[str, ...]
    external_with: tuple[Choice, ...]
    user_code_with: tuple[Choice, ...]
    idempotent_with: tuple[Choice, ...]
    default_timeout_s: Number
    max_timeout_s: Number
    timeout_param: str
    minor: int
    added_fields: tuple[tuple[str, int], ...]
    offered_by: tuple[str, ...] = ()
    field_defaults: tuple[Choice, ...] = ()
    sampled_with: tuple[Choice, ...] = ()
