"""Reads the records of a step's results again and compares them with what the run used."""

from collections.abc import Mapping, Sequence

from flowmesh_api.v1.why import AttemptLine, HitLine
from flowmesh_control.verification.broken_link import BrokenLinkError
from flowmesh_control.verification.content import ContentVerification
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.machine.model import StepRun
from flowmesh_core.machine.step_results import compose
from flowmesh_core.protocol.results import ActionResult, Artifact
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import decoded
from flowmesh_store.keys import action_key
from flowmesh_store.ports import RecordStore
from flowmesh_store.withheld_results import WithheldResults

_MADE = frozenset({"published", "adopted", "shared"})
Actions = dict[str, dict[int, Digest]]
"""Action ids by step and part, in the order of the parts."""


def actions_of(lines: Sequence[Line]) -> Actions:
    """Returns the actions whose results the steps of a run used, by its ledger.

    A whole step that was reused is its part -1, and replaces the others.
    """
    found: Actions = {}
    for line in lines:
        if isinstance(line, HitLine) or (isinstance(line, AttemptLine) and line.outcome in _MADE):
            parts = found.setdefault(line.step, {})
            parts[line.chunk] = line.action_id
    return {step: dict(sorted(parts.items())) for step, parts in found.items()}


class ResultRecords:
    """The records of one run's results.

    Attributes:
        read: how many seals were checked.
    """

    def __init__(
        self,
        records: RecordStore,
        scopes: Sequence[str],
        withheld: WithheldResults,
        content: ContentVerification,
    ) -> None:
        self._records = records
        self._scopes = scopes
        self._withheld = withheld
        self._content = content
        self.read = 0

    async def verify(
        self,
        step: StepRun,
        actions: Mapping[int, Digest],
        inputs: Mapping[str, Artifact],
        outputs: Mapping[str, Artifact | None],
    ) -> None:
        """Compares the records of a step with its plan, its inputs and its outputs in the ledger.

        Raises:
            BrokenLinkError: a record is missing or not believed, or says something else.
            StoreUnavailableError: the store does not answer.
        """
        path = step.plan.path
        if not actions:
            raise BrokenLinkError("step", path, "the ledger names no result that it used")
        chosen = {-1: actions[-1]} if -1 in actions else actions
        results = []
        for action_id in chosen.values():
            key, result = await self._record(path, action_id)
            self._content.add_inline(key, result.inline)
            _require_same_work(key, result, step, inputs, whole=len(chosen) == 1)
            results.append(result)
        for port, used in outputs.items():
            _require_same_output(path, port, step, results, used)

    async def _record(self, path: str, action_id: Digest) -> tuple[str, ActionResult]:
        reason = ""
        for scope in self._scopes:
            key = action_key(scope, action_id)
            record = await self._records.read(key)
            if record is None:
                continue
            self.read += 1
            result = decoded(record)
            if record.damage or result is None:
                raise BrokenLinkError("record", key, record.damage or "it cannot be read")
            if result.action_id != action_id:
                raise BrokenLinkError("record", key, "it is the record of another action")
            if not self._withheld.hides(scope, result):
                return key, result
            reason = f"its result is withheld ({key})"
        key = action_key(self._scopes[0], action_id)
        missing = f"no scope of the run has the record of a result of step {path}"
        raise BrokenLinkError("record", key, reason or missing)


def _require_same_work(
    key: str, result: ActionResult, step: StepRun, inputs: Mapping[str, Artifact], *, whole: bool
) -> None:
    """Refuses the record of another engine, other parameters or other inputs."""
    plan = step.plan
    work = (plan.engine, plan.params, plan.fields)  # a repin may have changed the versions since
    if (result.engine, result.params, result.fields) != work:
        raise BrokenLinkError("record", key, f"it is not of the work of step {plan.path}")
    left_out = {*plan.cache.ignored_inputs, *(() if whole else (step.contract.row_wise,))}
    expected = {port: a.digest for port, a in inputs.items() if port not in left_out}
    given = {port: digest for port, digest in result.inputs.items() if port not in left_out}
    if given != expected:
        raise BrokenLinkError("record", key, f"it was made of other inputs than step {plan.path}")


def _require_same_output(
    path: str, port: str, step: StepRun, results: list[ActionResult], used: Artifact | None
) -> None:
    try:
        made = compose(step, port, results)
    except FlowMeshError as e:
        raise BrokenLinkError("step", f"{path}.{port}", e.message) from e
    if (made and made.digest) != (used and used.digest):
        reason = "the records of its results name another artifact than the run used"
        raise BrokenLinkError("step", f"{path}.{port}", reason)
