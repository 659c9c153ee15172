"""Finds steps that no worker can ever run, by what workers are and what their pools declare.

Called by the planner, for admission and forecasts, and by the command line before it starts a
fabric. A pool without workers counts with what its object says. What an administrator changes
without a new pool (reservations, trust, the version of an image) refuses nothing: such steps wait.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_api.v1.problems import Problem
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.catalog.builtin_models import builtin_model
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.catalog.resolved_contract import runs_user_code
from flowmesh_core.fleet.pool_declaration import UNKNOWN_CLASS
from flowmesh_core.fleet.snapshot import Requirement
from flowmesh_core.graph.plan import Plan, StepPlan
from flowmesh_core.machine.action_spec import least_requirement
from flowmesh_core.placement.constraints import remedy, unmet
from flowmesh_core.protocol.messages import WorkerShape

_PASSES = (None, RejectionCause.SANDBOX)
"""The nodes of a pool decide about the sandbox, and may be replaced."""
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class WorkerOffer:
    """What a worker is, or one of a pool will be.

    Attributes:
        shape: the worker's; of a pool without workers what its object says.
        any_memory: whether the memory of its devices is not known before the first worker.
    """

    shape: WorkerShape
    any_memory: bool = False

    @classmethod
    def of_pool(cls, pool: PoolView) -> "WorkerOffer":
        """Returns what the next worker of a pool will be."""
        declared = pool.declaration
        unknown = declared is not None and declared.devices and not declared.device_memory_mib
        return cls(pool.shape, any_memory=bool(unknown))

    def meets(self, wanted: Requirement) -> bool:
        """Whether such a worker may run it, now or with an image of another version."""
        offered = self.shape.engines.get(wanted.engine)
        if offered is None:
            return False
        any_product = self.shape.device_class == UNKNOWN_CLASS
        asked = replace(
            wanted,
            contract=offered.version,
            implementation_version=offered.implementation,
            minor=0,
            gpu_product=() if any_product else wanted.gpu_product,
            memory_mib=0 if self.any_memory else wanted.memory_mib,
        )
        return unmet(asked, self.shape) in _PASSES


def unplaceable_steps(
    plan: Plan,
    catalog: Catalog,
    offers: Sequence[WorkerOffer],
    places: Mapping[str, str],
    *,
    ended: Collection[str] = (),
) -> dict[str, list[Problem]]:
    """Returns what no worker can ever meet, by the path of the step that needs it.

    Args:
        plan: the workflow.
        catalog: the engine contracts.
        offers: of all workers and pools; without any nothing is known, and nothing found.
        places: the place of a step in its file (``spec.steps[2]``), by its name.
        ended: paths of steps that run nothing: their results are published.
    """
    found: dict[str, list[Problem]] = {}
    known: dict[bytes, list[tuple[str, str]]] = {}
    for step in _certain(plan) if offers else ():
        contract = catalog.pinned(step.engine, step.contract, step.implementation, step.minor)
        if contract is None or step.path in ended:
            continue
        alike = _key(step, contract)
        if alike not in known:
            known[alike] = list(_unmet_fields(least_requirement(step, contract), offers))
        place = places.get(step.name, f"spec.{step.path.removesuffix('.pin')}")
        if problems := [_problem(place, step, *each) for each in known[alike]]:
            found[step.path] = problems
    return found


def _key(step: StepPlan, contract: EngineContract) -> bytes:
    """Equal for steps that need the same of a worker: a workflow may have many of them."""
    code, model = runs_user_code(contract, step.params), builtin_model(step.engine, step.params)
    parts = (step.engine, step.contract, step.implementation, step.resources, step.fields)
    return msgspec.msgpack.encode((*parts, code, model))


def step_places(document: Mapping[str, Any]) -> dict[str, str]:
    """Returns the place of each step of a workflow, by its name."""
    steps = document.get("spec", {}).get("steps", ())
    return {str(step.get("name")): f"spec.steps[{i}]" for i, step in enumerate(steps)}


def _certain(plan: Plan) -> Iterator[StepPlan]:
    """Yields the steps that no condition skips."""
    uncertain: set[str] = set()
    for step in plan.steps:
        if step.when or not uncertain.isdisjoint(step.parents()):
            uncertain.add(step.path)
        else:
            yield step


def _problem(place: str, step: StepPlan, field: str, message: str) -> Problem:
    is_import = place.startswith("spec.inputs.")
    path = place if is_import or not field else f"{place}.{field}"
    return Problem(path, f"step {step.name!r}: {message}")


def _unmet_fields(wanted: Requirement, offers: Sequence[WorkerOffer]) -> Iterator[tuple[str, str]]:
    """Yields the fields of a step that no worker meets, each with what the workers have."""
    offering = [o for o in offers if wanted.engine in o.shape.engines]
    if not offering:
        pools = _listed(sorted({o.shape.pool for o in offers}))
        text = f"no worker offers {wanted.engine} (pool {pools}); add a pool whose image has it"
        yield "uses", text
        return
    alone = list(_constraints(wanted, [o.shape for o in offering]))
    failed = [c for c in alone if not any(o.meets(c.wanted) for o in offering)]
    yield from ((c.field, c.text) for c in failed)
    if not failed and not any(o.meets(wanted) for o in offering):
        named = _listed(dict.fromkeys(c.field for c in alone))
        yield "", f"no worker meets {named} together, though some meet each"


@dataclass(frozen=True, slots=True)
class _Constraint:
    """One part of a requirement.

    Attributes:
        field: of the step, that states it.
        wanted: a requirement of nothing else.
        text: why no worker meets it, where none does.
    """

    field: str
    wanted: Requirement
    text: str


def _constraints(r: Requirement, shapes: Sequence[WorkerShape]) -> Iterator[_Constraint]:
    nothing = Requirement(r.engine, r.contract, r.implementation_version, memory_mib=0)
    variant = replace(
        nothing,
        checks_variants=r.checks_variants,
        implementation=r.implementation,
        dtype=r.dtype,
        batch_invariant=r.batch_invariant,
    )
    model, code = replace(nothing, builtin_model=r.builtin_model), replace(nothing, user_code=True)
    if r.checks_variants:
        text = remedy(variant, RejectionCause.VARIANT_UNSUPPORTED, shapes)
        yield _Constraint("with", variant, text)
    if r.builtin_model:
        yield _Constraint("uses", model, remedy(model, RejectionCause.NOT_BUILT_IN, shapes))
    if r.user_code:
        pools = _listed(dict.fromkeys(s.pool for s in shapes))
        yield _Constraint(
            "uses",
            code,
            f"{r.engine} runs the user's code, and no worker with it (pool {pools}) may; use a pool"
            " with userCode: true",
        )
    yield from _label_constraints(r, nothing, shapes)
    yield from _device_constraints(r, nothing, shapes)


def _label_constraints(
    r: Requirement, nothing: Requirement, shapes: Sequence[WorkerShape]
) -> Iterator[_Constraint]:
    for key, value in r.labels.items():
        there = _have(shapes, _label(key))
        text = f"no worker has the label {key}: {value}; there is {there}"
        wanted = replace(nothing, labels={key: value})
        yield _Constraint(f"resources.labels.{key}", wanted, text)
    for key, value in r.anti_labels.items():
        text = f"every worker has the label {key}: {value}"
        wanted = replace(nothing, anti_labels={key: value})
        yield _Constraint(f"resources.antiLabels.{key}", wanted, text)


def _device_constraints(
    r: Requirement, nothing: Requirement, shapes: Sequence[WorkerShape]
) -> Iterator[_Constraint]:
    if r.gpu_product:
        there = _have(shapes, lambda s: s.device_class)
        text = f"no worker has {' or '.join(r.gpu_product)}; there is {there}"
        yield _Constraint("resources.gpuProduct", replace(nothing, gpu_product=r.gpu_product), text)
    if r.tensor_parallel > 1:
        there = _have(shapes, lambda s: str(s.devices))
        text = f"no worker has {r.tensor_parallel} devices; there is {there}"
        wanted = replace(nothing, tensor_parallel=r.tensor_parallel)
        yield _Constraint("resources.tensorParallel", wanted, text)
    there = _have(shapes, lambda s: f"{s.device_memory_mib:,} MiB")
    text = f"no worker has {r.memory_mib:,} MiB of memory for one engine; there is {there}"
    yield _Constraint("resources.memory", replace(nothing, memory_mib=r.memory_mib), text)


def _label(key: str) -> Callable[[WorkerShape], str]:
    return lambda shape: f"{key}: {shape.labels[key]}" if key in shape.labels else "none"


def _have(shapes: Sequence[WorkerShape], value: Callable[[WorkerShape], str]) -> str:
    """Returns what the workers have, each value with its pools: ``cpu (pool a, b)``."""
    pools: dict[str, dict[str, None]] = {}
    for shape in shapes:
        pools.setdefault(value(shape), {})[shape.pool] = None
    return _listed([f"{what} (pool {_listed(list(names))})" for what, names in pools.items()])


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more
