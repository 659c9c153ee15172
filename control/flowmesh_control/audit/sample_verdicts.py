"""Draws the consequences of sampled audits: a third worker decides, the odd one out is withheld.

Called when the report of such an audit is written and before its run's end is, so a leader that
dies in between leaves it to the next one. Everything here may be repeated.
"""

import logging
from collections.abc import Awaitable, Callable

from flowmesh_api.v1.audit import AuditCheck, AuditFinding, AuditReport, Provenance, Repetition
from flowmesh_api.v1.enums import Verdict
from flowmesh_api.v1.withheld import ResultSelector
from flowmesh_control.audit.sampled_audits import Drawn, SampledAudits, doubted, of_audit
from flowmesh_control.errors import NotFoundError
from flowmesh_control.records.audit_records import AuditRecords
from flowmesh_control.withholding.withholding import Withholding
from flowmesh_core.audit.majority import OddOne, odd_one
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
            if finding.check.doubted is not None:
                await self._decide(run, finding, finding.check.doubted)
            elif _differs(finding):
                second = Repetition(finding.again, finding.again_by)
                open_.append(doubted(of_audit(run, finding.check), second))
        await self._ask_a_third(run, report, open_)

    async def _ask_a_third(self, run: Run, report: AuditReport, open_: list[Drawn]) -> None:
        if not open_:
            return
        asked = await self._sampled.begin(run, open_, round_=2)
        for one in open_:
            if one.check.path not in asked:
                await self._withhold_alone(one.check, "and no third worker can make it")

    async def _decide(self, run: Run, finding: AuditFinding, second: Repetition) -> None:
        """Decides by the third worker's result which worker is not believed any more."""
        check = finding.check
        if finding.verdict is Verdict.SAME:
            third = check.outputs
        elif _differs(finding):
            third = finding.again
        else:
            await self._withhold_alone(check, f"and a third did not make it ({finding.detail})")
            return
        odd = odd_one(check.outputs, second.outputs, third)
        if odd is OddOne.NONE:
            await self._withhold_alone(check, "and a third gave yet another result")
            if finding.quarantines:
                await self._audits.quarantine_class(run, finding)
            return
        liar = second.made_by if odd is OddOne.SECOND else check.published_by
        await self._disbelieve(check, liar)

    async def _disbelieve(self, check: AuditCheck, liar: Provenance) -> None:
        """Cordons a worker and withholds everything that it has published."""
        log.error(
            "worker %s of pool %s gave another result of action %s than two others; what it has "
            "published is withheld",
            liar.worker,
            liar.pool,
            check.action_id,
        )
        await self._post_and_wait(WorkerDisagreed(liar.worker, liar.pool))
        await self._withholding.withhold(
            ResultSelector(pool=liar.pool, worker=liar.worker),
            reason=f"two workers gave another result of action {check.action_id[:12]}",
        )

    async def _withhold_alone(self, check: AuditCheck, why: str) -> None:
        """Withholds a result that another worker contradicts, where no third one decides."""
        by = check.published_by
        log.warning(
            "the result of action %s by worker %s did not repeat %s; it is withheld",
            check.action_id,
            by.worker,
            why,
        )
        if by.attempt_id:
            await self._withholding.withhold(
                ResultSelector(attempt=by.attempt_id),
                reason=f"another worker gave another result, {why}",
            )


def _differs(finding: AuditFinding) -> bool:
    """Whether another worker gave a result that shows something.

    A seeded result of another device class or other libraries shows nothing, nor does one that the
    same worker made again since the others had left.
    """
    check, by = finding.check, finding.again_by
    made_by = [check.published_by]
    if check.doubted is not None:
        made_by.append(check.doubted.made_by)
    again_by_another = all((by.pool, by.worker) != (m.pool, m.worker) for m in made_by)
    return finding.verdict is Verdict.DIFFERS and not finding.detail and again_by_another
