"""From a step's part to an action: its name, its signature, its predicted size.

Called when the inputs of a part are known, and by ``prewarm`` when its models are.
"""

from typing import Any

import msgspec

from flowmesh_core.catalog.builtin_models import BUILTIN_MODEL_BYTES, builtin_model
from flowmesh_core.catalog.contract import Determinism, EngineContract
from flowmesh_core.catalog.determinism import determinism_of
from flowmesh_core.catalog.resolved_contract import repeatable, runs_user_code
from flowmesh_core.catalog.timeouts import attempt_timeout_s
from flowmesh_core.fleet.ready import SEQUENCES_AT_ONCE, WorkSize
from flowmesh_core.fleet.snapshot import Requirement, SignatureInfo
from flowmesh_core.graph.plan import StepPlan
from flowmesh_core.identity.action import action_id, signature
from flowmesh_core.identity.quarantine_salt import salt_of, signature_class
from flowmesh_core.machine.base_model import base_model
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.machine.specs import ActionSpec, SignatureSpec
from flowmesh_core.machine.state import State
from flowmesh_core.machine.terms import Question, Terms
from flowmesh_core.protocol.messages import PrewarmSpec
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest

BYTES_PER_TOKEN = 4
MIB = 1024 * 1024
SEPARATOR = "\x00"
_EXTERNAL = Determinism.EXTERNAL
_encoder = msgspec.msgpack.Encoder()


def name_of(run: Run, step: StepRun, inputs: dict[str, Artifact]) -> Digest:
    """Returns the action id of a part of a step."""
    plan = step.plan
    return action_id(
        step.contract,
        plan.params,
        plan.fields,
        {port: artifact.digest for port, artifact in inputs.items()},
        _salt(run, step, inputs),
        ignored_inputs=[p for p in plan.cache.ignored_inputs if p in inputs],
    )


def _salt(run: Run, step: StepRun, inputs: dict[str, Artifact]) -> str:
    plan = step.plan
    parts = [run.scopes.salt, plan.cache.salt]
    if plan.cache.reuse == "run":
        parts.append(f"run:{run.uid}")
    elif plan.cache.reuse == "never":
        parts += [f"run:{run.uid}", f"step:{plan.path}"]
    if run.quarantine_salts:
        digests = {port: artifact.digest for port, artifact in inputs.items()}
        found = signature_class(step.contract, plan.params, plan.fields, digests)
        parts += [salt] if (salt := salt_of(run.quarantine_salts, found)) else []
    return SEPARATOR.join(parts) if any(parts) else ""


def question_of(run: Run, step: StepRun, lookup: tuple[str, ...]) -> Question:
    """Returns what a step's look-ups ask in these scopes."""
    max_age_s = step.plan.cache.max_age_s
    return lookup, run.created_s - max_age_s if max_age_s else 0.0, run.min_trust


def terms_of(
    state: State, run: Run, step: StepRun, inputs: dict[str, Artifact], lookup: tuple[str, ...]
) -> Terms:
    """Returns the terms of a step's subscriptions, the same for all its parts."""
    if step.terms is None:
        plan, contract = step.plan, step.contract
        shape = shape_of(state, run, step, inputs)
        step.terms = Terms(
            info=_trusted(state, shape.info, run.min_trust),
            signature_params=shape.params,
            timeout_s=attempt_timeout_s(contract, plan.params, plan.timeout_s),
            own_timeout=plan.timeout_s > 0,
            attempts=plan.retry.attempts,
            backoff_s=plan.retry.backoff_s,
            question=question_of(run, step, lookup),
        )
    return step.terms


def _trusted(state: State, info: SignatureInfo, min_trust: int) -> SignatureInfo:
    """Returns a signature's info for actions that require this trust, always the same object."""
    if not min_trust:
        return info
    key = (info.signature, min_trust)
    known = state.trusted.get(key)
    if known is None:
        known = state.trusted[key] = info.with_trust(min_trust)
    return known


def shape_of(state: State, run: Run, step: StepRun, inputs: dict[str, Artifact]) -> SignatureSpec:
    """Returns what the actions of a step share with all others of their signature."""
    loaded, mixed = component_ports(step.contract, inputs)
    components = {c: inputs[c] for c in loaded}
    shape = _shape(state, step.plan, step.contract, components, mixed)
    opening = state.openings[shape.info.signature]
    if components and opening.read_scopes != run.scopes.readable:
        # A worker fetches the components as the newest run that needs them may.
        state.openings[shape.info.signature] = msgspec.structs.replace(
            opening, components=components, read_scopes=run.scopes.readable
        )
    return shape


def component_ports(
    contract: EngineContract, inputs: dict[str, Artifact]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the ports that a host loads at its start, and those that it loads per attempt."""
    loaded, mixed = [], []
    for name in inputs:
        port = contract.input_port(name)
        if port is not None and port.mixable:
            mixed.append(name)
        elif port is not None and port.component:
            loaded.append(name)
    return tuple(loaded), tuple(mixed)


def spec_of(run: Run, step: StepRun, inputs: dict[str, Artifact], terms: Terms) -> ActionSpec:
    """Returns everything that a worker needs to know of a part of a step."""
    plan, contract = step.plan, step.contract
    loaded, mixed = component_ports(contract, inputs)
    inline = {
        digest: run.inline[digest]
        for artifact in inputs.values()
        for digest in artifact.blobs()
        if digest in run.inline
    }
    return ActionSpec(
        contract=contract,
        params=plan.params,
        fields=plan.fields,
        inputs=inputs,
        inline=inline,
        components=loaded + mixed,
        loaded=loaded,
        signature_params=terms.signature_params,
        work=work_of(contract, plan.params, inputs, loaded, mixed),
        row_output=contract.row_output if contract.row_wise else "",
        secrets=plan.secrets,
        once=_only_once(plan, contract),
        model=base_model(run, step),
    )


def _only_once(plan: StepPlan, contract: EngineContract) -> bool:
    """Whether a call that has begun must not be repeated."""
    external = determinism_of(contract, plan.params, plan.fields) is _EXTERNAL
    return external and not repeatable(contract, plan.params)


def _shape(
    state: State,
    plan: StepPlan,
    contract: EngineContract,
    components: dict[str, Artifact],
    mixed: tuple[str, ...],
) -> SignatureSpec:
    """What the actions of a signature share; steps that are alike are not hashed again."""
    params = {p.name: plan.params.get(p.name, p.default) for p in contract.params if p.batch_wide}
    params.update(plan.fields)
    key = _shape_key(plan, contract, params, components, mixed)
    known = state.shapes.get(key)
    if known is None:
        info = signature_info(plan, contract, components, mixed)
        info = state.signatures.setdefault(info.signature, info)
        known = state.shapes[key] = SignatureSpec(info, params)
        opening = opening_of(info, plan, contract, components)
        state.openings[info.signature] = msgspec.structs.replace(
            opening, per_attempt_components=mixed
        )
    return known


def opening_of(
    info: SignatureInfo,
    plan: StepPlan,
    contract: EngineContract,
    components: dict[str, Artifact],
) -> PrewarmSpec:
    """Returns what a host of a signature loads, without its memory and where to read."""
    params = {p.name: plan.params.get(p.name, p.default) for p in contract.params if p.batch_wide}
    return PrewarmSpec(
        signature=info.signature,
        engine=contract.name,
        contract=contract.version,
        implementation=contract.implementation,
        components=components,
        signature_params=params | plan.fields,
        tensor_parallel=plan.resources.tensor_parallel,
    )


def _shape_key(
    plan: StepPlan,
    contract: EngineContract,
    params: dict[str, Any],
    components: dict[str, Artifact],
    mixed: tuple[str, ...],
) -> bytes:
    """Equal for steps of one signature and equal components; cheaper than the signature."""
    return _encoder.encode(
        (
            contract.name,
            contract.version,
            contract.implementation,
            list(params.items()),
            plan.resources,
            [(port, a.digest, a.size_bytes) for port, a in components.items()],
            runs_user_code(contract, plan.params),
            builtin_model(contract.name, plan.params),
            mixed,
            plan.minor,
        )
    )


def signature_info(
    plan: StepPlan,
    contract: EngineContract,
    components: dict[str, Artifact],
    mixed: tuple[str, ...] = (),
) -> SignatureInfo:
    """Returns what actions, and replicas, with these components share."""
    resources = plan.resources
    size = sum(a.size_bytes for a in components.values())
    memory = resources.memory_mib or round(
        contract.base_memory_mib
        + contract.component_memory_factor * size / MIB / max(1, resources.tensor_parallel)
    )
    resource_class = repr(
        (
            memory,
            resources.tensor_parallel,
            resources.gpu_product,
            sorted(resources.labels.items()),
            sorted(resources.anti_labels.items()),
        )
    )
    if runs_user_code(contract, plan.params) and not contract.user_code:
        # Steps of one engine that may need different workers must not share a batch.
        resource_class += " user-code"
    if model := builtin_model(contract.name, plan.params):
        resource_class += f" holds {model}"
    name = signature(
        contract,
        plan.params,
        plan.fields,
        {port: a.digest for port, a in components.items()},
        resource_class,
        mixed,
    )
    return SignatureInfo(
        signature=name,
        requirement=_requirement(plan, contract, memory),
        components=tuple((a.digest, a.size_bytes) for a in components.values()),
        capacity=contract.capacity,
        work_unit=contract.work_unit,
    )


def least_requirement(plan: StepPlan, contract: EngineContract) -> Requirement:
    """Returns what a step needs of a worker at least, before its components are known."""
    return _requirement(plan, contract, plan.resources.memory_mib or contract.base_memory_mib)


def _requirement(plan: StepPlan, contract: EngineContract, memory_mib: int) -> Requirement:
    fields = plan.fields
    return Requirement(
        engine=contract.name,
        contract=contract.version,
        implementation_version=contract.implementation,
        minor=plan.minor,
        memory_mib=memory_mib,
        checks_variants=bool(contract.identity_fields),
        implementation=str(fields.get("implementation") or ""),
        dtype=str(fields.get("dtype") or ""),
        batch_invariant=fields.get("batchInvariant"),
        tensor_parallel=plan.resources.tensor_parallel,
        user_code=runs_user_code(contract, plan.params),
        builtin_model=builtin_model(contract.name, plan.params),
        gpu_product=plan.resources.gpu_product,
        labels=plan.resources.labels,
        anti_labels=plan.resources.anti_labels,
    )


AGENT_TURNS = 3.0
"""Completions of an agent's row: two calls of tools and an answer. Assumed until attempts teach the
cost model otherwise, as is that each completion has ``maxTokens``."""


def work_of(
    contract: EngineContract,
    params: dict[str, Any],
    inputs: dict[str, Artifact],
    components: tuple[str, ...],
    mixed: tuple[str, ...],
) -> WorkSize:
    """Returns the predicted size of an action: the most rows, samples, turns and ``maxTokens``."""
    data = [a for name, a in inputs.items() if name not in components and name not in mixed]
    rows = max((a.rows for a in data), default=0) or 1
    input_bytes = sum(a.size_bytes for a in data)
    component_bytes = sum(inputs[c].size_bytes for c in components)
    if contract.work_unit != "tokens":
        converted = BUILTIN_MODEL_BYTES.get(builtin_model(contract.name, params), 1)
        counted = {
            "rows": float(rows),
            "samples": _samples(params, rows),
            "bytes": float(converted),
        }
        units = counted.get(contract.work_unit, 1.0)
        return WorkSize(units, 0.0, 0.0, input_bytes, component_bytes)
    samples = float(params.get("samples") or 1)
    sequences = rows * samples
    tokens_in = sequences * max(32.0, input_bytes / BYTES_PER_TOKEN / rows / 8)
    turns = min(AGENT_TURNS, float(params.get("maxTurns") or 1))
    longest = turns * float(params.get("maxTokens") or 1)
    return WorkSize(
        units=tokens_in + sequences * longest,
        tokens_in=tokens_in,
        tokens_out=sequences * longest,
        input_bytes=input_bytes,
        component_bytes=component_bytes,
        decode_steps=longest * max(1.0, sequences / SEQUENCES_AT_ONCE),
    )


def _samples(params: dict[str, Any], rows: int) -> float:
    """Returns how many samples a training step learns from."""
    if episodes := params.get("total_episodes"):
        return float(episodes)
    steps = params.get("max_steps") or 0
    if steps > 0:
        batch = params.get("per_device_train_batch_size") or 1
        return float(steps * batch * (params.get("gradient_accumulation_steps") or 1))
    return float(rows) * float(params.get("num_train_epochs") or 1)
