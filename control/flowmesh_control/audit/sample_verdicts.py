"""Draws the consequences of sampled audits: a third worker decides, the odd one out is withheld.

Called when the report of such an audit is written and before its run's end is, so a leader that
dies in between leaves it to the next one. Everything here may be repeated.
"""

import logging
from collections.abc import Awaitable, Callable

from flowmesh_api.v1.audit import AuditCheck, AuditFinding, Provenance, Repetition
from flowmesh_api.v1.withheld import ResultSelector
from flowmesh_control.audit.sampled_audits import Drawn, SampledAudits, doubted, of_audit
from flowmesh_control.errors import NotFoundError
from flowmesh_control.records.audit_records import AuditRecords
from flowmesh_control.withholding.withholding import Withholding
from flowmesh_core.audit.sample_decision import Consequence, SampleDecision, decision_of
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.machine.events import WorkerDisagreed
from flowmesh_core.machine.model import Run

log = logging.getLogger("flowmesh.control")


class SampleVerdicts:
    """Implements :class:`RunSampling`: draws, and decides what the repetitions show."""

    def __init__(
        self,
        *,
        sampled: SampledAudits,
        audits: AuditRecords,
        withholding: Withholding,
        post_and_wait: Callable[[WorkerDisagreed], Awaitable[None]],
    ) -> None:
        """Keeps what it works with.

        Args:
            sampled: draws results and starts audits.
            audits: have the reports, and the quarantine.
            withholding: withholds results.
            post_and_wait: gives an event to the machine.
        """
        self._sampled = sampled
        self._audits = audits
        self._withholding = withholding
        self._post_and_wait = post_and_wait

    async def draw(self, run: Run) -> None:
        """As :meth:`RunSampling.draw`."""
        await self._sampled.draw(run)

    async def concluded(self, run: Run) -> None:
        """As :meth:`RunSampling.concluded`."""
        try:
            report = await self._audits.report(run.uid)
        except (NotFoundError, DamagedRecordError) as e:
            log.warning("nothing follows from audit %s: %s", run.uid, e)
            return
        if not report.order.sampled:
            return
        open_: list[Drawn] = []
        for finding in report.findings:
            decision = decision_of(finding)
            if decision.consequence is Consequence.ASK_A_THIRD:
                second = Repetition(finding.again, finding.again_by)
                open_.append(doubted(of_audit(run, finding.check), second))
                continue
            try:
                await self._carry_out(run, finding, decision)
            except DamagedRecordError as e:
                log.warning("not all follows from audit %s: %s", run.uid, e)
        asked = await self._sampled.begin(run, open_, round_=2)
        for one in open_:
            if one.check.path not in asked:
                await self._withhold_alone(one.check, "no third worker can make it")

    async def _carry_out(self, run: Run, finding: AuditFinding, decision: SampleDecision) -> None:
        if decision.worker is not None:
            await self._disbelieve(decision.worker, decision.reason)
        match decision.consequence:
            case Consequence.WITHHOLD:
                await self._withhold_alone(finding.check, decision.reason)
            case Consequence.QUARANTINE:
                await self._withhold_alone(finding.check, decision.reason)
                await self._audits.quarantine_class(run, finding)

    async def _disbelieve(self, liar: Provenance, reason: str) -> None:
        """Cordons a worker and withholds everything that it has published."""
        log.error(
            "%s than worker %s of pool %s; what it has published is withheld",
            reason,
            liar.worker,
            liar.pool,
        )
        await self._post_and_wait(WorkerDisagreed(liar.worker, liar.pool))
        everything = ResultSelector(pool=liar.pool, worker=liar.worker)
        await self._withholding.withhold(everything, reason=reason)

    async def _withhold_alone(self, check: AuditCheck, reason: str) -> None:
        """Withholds a result that another worker contradicts, where no third one decides."""
        by = check.published_by
        log.warning(
            "the result of action %s by worker %s did not repeat, and %s; it is withheld",
            check.action_id,
            by.worker,
            reason,
        )
        if by.attempt_id:
            await self._withholding.withhold(
                ResultSelector(attempt=by.attempt_id),
                reason=f"another worker gave another result, and {reason}",
            )
