"""Hard constraints: whether a worker could ever run an action, and if not, what is missing.

They read a worker's shape, not its load. A cycle evaluates them once per signature and shape. The
planner and the capacity signal evaluate them for pools.
"""

from collections.abc import Collection, Mapping, Sequence

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.fleet.snapshot import Requirement
from flowmesh_core.placement.engine_variants import VariantRequest, problem
from flowmesh_core.protocol.messages import EngineVersion, WorkerShape
from flowmesh_core.protocol.sandbox_levels import suffices

CHECKS = (
    RejectionCause.ENGINE_NOT_OFFERED,
    RejectionCause.VERSION_NOT_OFFERED,
    RejectionCause.NOT_BUILT_IN,
    RejectionCause.VARIANT_UNSUPPORTED,
    RejectionCause.USER_CODE,
    RejectionCause.SANDBOX,
    RejectionCause.LABELS,
    RejectionCause.DEVICES,
    RejectionCause.MEMORY,
    RejectionCause.TRUST,
    RejectionCause.RESERVED,
)
"""In order of evaluation. The worker that passes most checks gives the reason for a rejection."""


def unmet(requirement: Requirement, shape: WorkerShape) -> RejectionCause | None:
    """Returns the first constraint that the worker does not meet, or None if it meets all."""
    offered = shape.engines.get(requirement.engine)
    if offered is None:
        return RejectionCause.ENGINE_NOT_OFFERED
    if not _is_version(requirement, offered):
        return RejectionCause.VERSION_NOT_OFFERED
    if not _has_model(shape, requirement.builtin_model):
        return RejectionCause.NOT_BUILT_IN
    if requirement.checks_variants and not _variant_of(requirement).met_by(shape):
        return RejectionCause.VARIANT_UNSUPPORTED
    if requirement.user_code and (cause := _unmet_by_sandbox(shape)) is not None:
        return cause
    return _unmet_by_hardware(requirement, shape)


def unmet_in_pool(
    requirement: Requirement,
    shape: WorkerShape,
    reserved: Collection[str],
    admitting: Collection[str],
) -> RejectionCause | None:
    """Returns :func:`unmet`, with the reservation of the worker's pool as the last constraint.

    Args:
        requirement: the requirement of the action's signature.
        shape: the worker's shape.
        reserved: the names of all reserved pools.
        admitting: the reserved pools that admit the action.
    """
    cause = unmet(requirement, shape)
    if cause is None and shape.pool in reserved and shape.pool not in admitting:
        return RejectionCause.RESERVED
    return cause


def _unmet_by_sandbox(shape: WorkerShape) -> RejectionCause | None:
    if not shape.allows_user_code:
        return RejectionCause.USER_CODE
    if not suffices(shape.sandbox, shape.sandbox_minimum):
        return RejectionCause.SANDBOX
    return None


def _is_version(requirement: Requirement, offered: EngineVersion) -> bool:
    wanted = (requirement.contract, requirement.implementation_version)
    return (offered.version, offered.implementation) == wanted and (
        requirement.minor <= offered.minor
    )


def _has_model(shape: WorkerShape, model: str) -> bool:
    return not model or shape.builtin_models is None or model in shape.builtin_models


def _unmet_by_hardware(requirement: Requirement, shape: WorkerShape) -> RejectionCause | None:
    if (requirement.labels or requirement.anti_labels) and not _labelled(requirement, shape.labels):
        return RejectionCause.LABELS
    if requirement.tensor_parallel > shape.devices or (
        requirement.gpu_product and shape.device_class not in requirement.gpu_product
    ):
        return RejectionCause.DEVICES
    if requirement.memory_mib > shape.device_memory_mib or (
        shape.device_memory_mib <= requirement.min_memory_by_class.get(shape.device_class, -1)
    ):
        return RejectionCause.MEMORY
    return RejectionCause.TRUST if requirement.min_trust > shape.trust else None


def _labelled(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    if any(labels.get(k) != v for k, v in requirement.labels.items()):
        return False
    return all(labels.get(k) != v for k, v in requirement.anti_labels.items())


def _variant_of(requirement: Requirement) -> VariantRequest:
    return VariantRequest(
        requirement.engine,
        requirement.implementation,
        requirement.dtype,
        requirement.batch_invariant,
    )


def remedy(requirement: Requirement, cause: RejectionCause, shapes: Sequence[WorkerShape]) -> str:
    """Returns one sentence for users: what is missing and what to change.

    Args:
        requirement: the requirement of the signature.
        cause: one of ``CHECKS``.
        shapes: the workers' shapes, at least one.
    """
    r = requirement
    largest_mib = max(shape.device_memory_mib for shape in shapes)
    able = sorted({shape.pool for shape in shapes if unmet(r, shape) is None})
    texts = {
        RejectionCause.ENGINE_NOT_OFFERED: (
            f"no worker offers engine {r.engine}; add a pool whose image has it, or on one machine"
            " install it (`fmesh doctor` shows the command)"
        ),
        RejectionCause.VERSION_NOT_OFFERED: _other_version(r, shapes),
        RejectionCause.NOT_BUILT_IN: (
            f"no worker with {r.engine} has the built-in model {r.builtin_model} in its image; add "
            "a pool with flavor cpu, or install the model's package in the pool's image"
        ),
        RejectionCause.VARIANT_UNSUPPORTED: problem(_variant_of(r), shapes),
        RejectionCause.USER_CODE: (
            f"{r.engine} runs the user's code, and no pool with this engine allows that; use a "
            "pool with userCode: true"
        ),
        RejectionCause.SANDBOX: _weak_sandbox(r, shapes),
        RejectionCause.LABELS: (
            f"no worker has labels {dict(r.labels)} without {dict(r.anti_labels)}; change "
            "resources.labels or label a pool"
        ),
        RejectionCause.DEVICES: (
            f"no worker has {r.tensor_parallel} device(s) of {' or '.join(r.gpu_product) or 'any'}"
            " class; change resources.gpuProduct or resources.tensorParallel, or add a pool"
        ),
        RejectionCause.MEMORY: (
            f"a device with {max(r.memory_mib, min_learned(r) + 1)} MiB is needed, the largest has "
            f"{largest_mib} MiB; lower resources.memory or add a pool with larger devices; on one "
            "machine free memory and start fmesh again, since it sizes its workers at its start"
        ),
        RejectionCause.TRUST: (
            f"a pool of trust {r.min_trust} is needed, and those that could run it otherwise have"
            f" less; raise spec.trust of a pool that deserves it, or lower minTrust in the workflow"
            " or in its cache policy"
        ),
        RejectionCause.RESERVED: (
            f"every worker that can run it belongs to pool {' or '.join(able)}, which is reserved "
            "for other namespaces; add a pool, or name the namespace in the pool's reservedFor"
        ),
    }
    return texts[cause]


def _weak_sandbox(r: Requirement, shapes: Sequence[WorkerShape]) -> str:
    below = [s for s in shapes if not suffices(s.sandbox, s.sandbox_minimum)]
    found = ", ".join(
        f"pool {pool}: {level}, minimum {minimum}"
        for pool, level, minimum in sorted(
            {(s.pool, s.sandbox or "unknown", s.sandbox_minimum) for s in below}
        )
    )
    return (
        f"{r.engine} runs the user's code, and the sandbox is below the pool's minimum ({found});"
        " use nodes with Linux 6.12 and Landlock, or lower spec.sandbox.minimum of the pool"
    )


def _other_version(r: Requirement, shapes: Sequence[WorkerShape]) -> str:
    wanted = (r.contract, r.implementation_version)
    offered = [s.engines[r.engine] for s in shapes if r.engine in s.engines]
    minors = [o.minor for o in offered if (o.version, o.implementation) == wanted]
    if minors:
        return (
            f"the step sets a parameter that minor {r.minor} of {r.engine} added, and workers have "
            f"minor {max(minors)}; update a pool's image, or leave the parameter out"
        )
    return (
        f"no worker offers {r.engine} in contract version {r.contract}, implementation "
        f"{r.implementation_version}; add a pool with that image, or `fmesh repin` the run"
    )


def unmet_remedy(requirement: Requirement, shapes: Sequence[WorkerShape]) -> str:
    """Returns :func:`remedy` for the worker that passes most checks; empty if one passes all."""
    causes = [unmet(requirement, shape) for shape in shapes]
    missing = [cause for cause in causes if cause is not None]
    if not missing or len(missing) < len(causes):
        return ""
    return remedy(requirement, max(missing, key=CHECKS.index), shapes)


def min_learned(requirement: Requirement) -> int:
    """Returns the smallest memory bound learned for a device class; -1 if none was learned."""
    return min(requirement.min_memory_by_class.values(), default=-1)
