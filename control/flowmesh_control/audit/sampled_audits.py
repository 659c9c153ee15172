"""Audits that the control plane begins by itself, for the ``verify`` of cache policies (ADR 46).

Before a run's end is durable, its drawn results are made again on other workers, by an audit that
the fabric pays. Where nothing else can make a result, it is not compared. A difference is settled
by a third worker (``sample_verdicts``).
"""

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from flowmesh_api.v1.audit import AuditCheck, AuditOrder, Repetition
from flowmesh_api.v1.enums import StepState
from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.audit.capable_workers import avoided, capable_workers
from flowmesh_control.audit.reproducibility import ReproducibilityCheck
from flowmesh_control.audit.submission import REPEATS, check_of
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.audit_records import ORDER
from flowmesh_control.runs.admission import Admission, Compiled
from flowmesh_core.audit.drawing import SampleDraw
from flowmesh_core.audit.plan import audit_plan
from flowmesh_core.audit.reconstruct import ReproducibleAction
from flowmesh_core.catalog.contract import Determinism
from flowmesh_core.catalog.determinism import determinism_of
from flowmesh_core.errors import FlowMeshError, StoreFullError, StoreUnavailableError
from flowmesh_core.identity import digest_bytes
from flowmesh_core.identity.quarantine_salt import signature_class
from flowmesh_core.machine.action_spec import terms_of
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing.scopes import audit_scopes
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.blobs import BlobViews

log = logging.getLogger("flowmesh.control")
_PREFIX = "sample-of-"


class Drawn(NamedTuple):
    """An action to make again, its published result, and the workers that made it: pool, name."""

    action: ReproducibleAction
    check: AuditCheck
    made_by: tuple[tuple[str, str], ...]


class SampledAudits:
    """Draws results of runs and starts the audits that make them again."""

    def __init__(
        self,
        *,
        state: State,
        store: BlobViews,
        cache: ActionCache,
        admission: Admission,
        draw: SampleDraw,
        clock: Clock,
    ) -> None:
        """Keeps what it works with.

        Args:
            state: the machine's, to read.
            store: has the inputs.
            cache: has the published results.
            admission: accepts the audits.
            draw: says which actions are drawn.
            clock: Unix time in seconds.
        """
        self._state = state
        self._store = store
        self._cache = cache
        self._admission = admission
        self._draw = draw
        self._clock = clock

    async def draw(self, run: Run) -> None:
        """As :meth:`RunSampling.draw`."""
        share = run.scopes.verify_sample
        if not share or run.plan.paid_by_fabric:
            return
        chosen = [a for a in _published(run) if self._draw.draws(a.action_id, share)]
        if not chosen:
            return
        try:
            drawn = await self._checked(run, chosen)
            await self.begin(run, drawn, round_=1)
        except (StoreUnavailableError, StoreFullError):
            raise
        except FlowMeshError as e:
            log.warning("the drawn results of run %s are not compared: %s", run.uid, e)

    async def begin(self, run: Run, drawn: Sequence[Drawn], *, round_: int) -> set[str]:
        """Starts an audit of those actions that a further worker can make.

        Args:
            run: that they were drawn from, or the audit that made them again.
            drawn: the actions.
            round_: 1 for a second worker, 2 for a third.

        Returns:
            The paths of the actions that are made again.
        """
        avoid: dict[str, tuple[str, ...]] = {}
        for one in drawn:
            workers = self._workers(run, one)
            if workers:
                avoid[one.check.path] = workers
        taken = [one for one in drawn if one.check.path in avoid]
        if taken:
            await self._submit(run, taken, avoid, round_)
        return set(avoid)

    async def _checked(self, run: Run, chosen: Sequence[ReproducibleAction]) -> list[Drawn]:
        """Returns the chosen actions whose published results and inputs are stored."""
        checkable = ReproducibilityCheck(self._store, self._cache, run.scopes, list(_parts(run)))
        drawn = []
        for action in chosen:
            found = await checkable.record_of(action)
            if isinstance(found, str) or found.result.run_uid != run.uid:
                continue
            if not await checkable.lacks(action):
                bump = run.quarantine_salts.get(action.signature_class, 0)
                by = found.result.provenance
                drawn.append(Drawn(action, check_of(action, found, bump), ((by.pool, by.worker),)))
        return drawn

    def _workers(self, run: Run, one: Drawn) -> tuple[str, ...]:
        """Returns the workers to avoid; empty where no other can make it."""
        step = run.steps[one.action.step.path]
        info = terms_of(self._state, run, step, one.action.inputs, ()).info
        requirement = info.with_trust(_min_trust(run)).requirement
        names = [name for _, name in one.made_by]
        capable = capable_workers(self._state, requirement, run.plan.namespace, names)
        others: list[str] = []
        if one.action.determinism is Determinism.SEEDED:  # other devices would show nothing
            device_class = one.check.published_by.device_class
            others = [w.name for w in capable if w.device_class != device_class]
            capable = [w for w in capable if w.device_class == device_class]
        return (*avoided(self._state, capable, one.made_by), *others) if capable else ()

    async def _submit(
        self, run: Run, drawn: Sequence[Drawn], avoid: Mapping[str, tuple[str, ...]], round_: int
    ) -> None:
        audited = run.plan.audit_of or run.uid
        plan, artifacts = audit_plan(
            audited, run.plan, [one.action for one in drawn], avoid_workers=avoid
        )
        plan = msgspec.structs.replace(plan, name=f"{_PREFIX}{_name(run)}")
        uid = f"{plan.name}-{secrets.token_hex(4)}"
        order = AuditOrder(
            run_uid=audited,
            run=_name(run),
            namespace=plan.namespace,
            share=run.scopes.verify_sample,
            seed=0,
            created_s=self._clock(),
            eligible=len(drawn),
            checks=tuple(one.check for one in drawn),
            unchecked=(),
            passed_over={},
            sampled=True,
        )
        document = {"kind": "FlowMeshAudit", ORDER: msgspec.to_builtins(order)}
        scopes = audit_scopes(uid, run.scopes, _min_trust(run))
        compiled = Compiled(document, plan, scopes, artifacts, {})
        digest = digest_bytes(msgspec.json.encode(["sample", run.uid, round_]))
        await self._admission.accept_plan(compiled, digest, uid=uid)


def is_sampled_audit(status: RunStatus) -> bool:
    """Whether a run is a sampled audit, which its namespace did not ask for."""
    return bool(status.audit_of) and status.name.startswith(_PREFIX)


def doubted(one: Drawn, second: Repetition) -> Drawn:
    """Returns an action for a third worker, after a second gave another result."""
    by = second.made_by
    check = msgspec.structs.replace(one.check, doubted=second)
    return Drawn(one.action, check, (*one.made_by, (by.pool, by.worker)))


def of_audit(run: Run, check: AuditCheck) -> Drawn:
    """Returns the action that a step of an audit made again."""
    step = run.steps[check.path]
    by = check.published_by
    action = _action(step, -1, step.parts[0].inputs, Digest(check.action_id))
    return Drawn(action, check, ((by.pool, by.worker),))


def _name(run: Run) -> str:
    return run.plan.name.removeprefix(_PREFIX)


def _min_trust(run: Run) -> int:
    return max(run.scopes.min_trust, run.plan.min_trust, run.scopes.verify_min_trust)


def _published(run: Run) -> Iterator[ReproducibleAction]:
    """Yields the actions that promise to repeat and whose results this run published."""
    for action in _parts(run):
        if action.determinism in REPEATS and not action.step.secrets:
            result = run.steps[action.step.path].parts[max(action.chunk, 0)].result
            if result is not None and result.run_uid == run.uid and result.provenance.worker:
                yield action


def _parts(run: Run) -> Iterator[ReproducibleAction]:
    for step in run.steps.values():
        if step.state is not StepState.COMPLETED or step.step_level:
            continue
        for number, part in step.parts.items():
            if part.key is not None:
                chunk = number if len(step.parts) > 1 else -1
                yield _action(step, chunk, part.inputs, part.key.action_id)


def _action(
    step: StepRun, chunk: int, inputs: dict[str, Artifact], action_id: Digest
) -> ReproducibleAction:
    plan, contract = step.plan, step.contract
    digests = {port: artifact.digest for port, artifact in inputs.items()}
    return ReproducibleAction(
        step=plan,
        chunk=chunk,
        inputs=inputs,
        action_id=action_id,
        signature_class=signature_class(contract, plan.params, plan.fields, digests),
        determinism=determinism_of(contract, plan.params, plan.fields),
    )
