"""Verifies outputs of an ended run from their bytes down to what was brought into the fabric.

Every record is read from the store again and its seal checked: the run's end, its plan, its ledger,
and the results of each step that an output rests on. The bytes of every artifact on the way are
read again. What a worker computed is not repeated: that is what audits are for.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress

from flowmesh_api.v1.verification import VerificationReport
from flowmesh_control.errors import ConflictError, NotFoundError
from flowmesh_control.records.keys import final_key, ledger_prefix, spec_key
from flowmesh_control.records.ledger import read_segments
from flowmesh_control.records.run_pins import read_pins
from flowmesh_control.records.run_records import (
    FinalRecord,
    PinsRecord,
    decode_record,
    final_decoder,
)
from flowmesh_control.verification.broken_link import BrokenLinkError
from flowmesh_control.verification.content import ContentVerification
from flowmesh_control.verification.result_records import Actions, ResultRecords, actions_of
from flowmesh_core.accounting.ledger_lines import Line, StepLine
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.graph.plan import ArtifactSource, Source, StepSource
from flowmesh_core.machine.events import Submitted
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.run_lifecycle import run_of
from flowmesh_core.machine.steps import inputs_of, source_artifact
from flowmesh_store.store import Store
from flowmesh_store.withheld_results import WithheldResults

_IMPORTS = frozenset({"dataset.import", "model.import", "source.resolve"})


class OutputVerification:
    """Verifies outputs of ended runs, one request at a time, since it reads much."""

    def __init__(self, store: Store, catalog: Catalog, withheld: WithheldResults) -> None:
        """Keeps what it reads.

        Args:
            store: with sealed records.
            catalog: the engine contracts.
            withheld: results that are not believed.
        """
        self._store = store
        self._catalog = catalog
        self._withheld = withheld
        self._lock = asyncio.Lock()

    async def verify(self, uid: str, output: str = "") -> VerificationReport:
        """Verifies one output of a run, or all of them.

        Raises:
            NotFoundError: there is no such run or output.
            ConflictError: its engines are not installed here.
            StoreUnavailableError: the store does not answer.
        """
        async with self._lock:
            chain = _Chain(uid, self._store, self._catalog, self._withheld)
            with suppress(BrokenLinkError):
                await chain.follow(output)
            return chain.report


class _Chain:
    """One verification; ``report`` grows with it."""

    def __init__(self, uid: str, store: Store, catalog: Catalog, withheld: WithheldResults) -> None:
        self._uid = uid
        self._store = store
        self._catalog = catalog
        self._withheld = withheld
        self._broken: BrokenLinkError | None = None
        self._outputs: tuple[str, ...] = ()
        self._run_records = 0
        self._steps: dict[str, str] = {}
        self._given: set[str] = set()
        self._content: ContentVerification | None = None
        self._results: ResultRecords | None = None

    @property
    def report(self) -> VerificationReport:
        """What was verified so far."""
        content, results = self._content, self._results
        return VerificationReport(
            uid=self._uid,
            outputs=self._outputs,
            steps=len(self._steps),
            imports=sum(engine in _IMPORTS for engine in self._steps.values()),
            records=self._run_records + (results.read if results else 0),
            blobs=content.blobs if content else 0,
            bytes=content.read_bytes if content else 0,
            given=len(self._given),
            broken=None if self._broken is None else self._broken.link,
        )

    async def follow(self, output: str) -> None:
        """Follows outputs to their origins.

        Raises:
            BrokenLinkError: a link does not hold; the report names it.
        """
        try:
            await self._follow(output)
        except DamagedRecordError as e:
            self._broken = BrokenLinkError("record", e.key, e.message)
            raise self._broken from e
        except BrokenLinkError as e:
            self._broken = e
            raise

    async def _follow(self, output: str) -> None:
        final = await self._final()
        self._outputs = _chosen(self._uid, final, output)
        lines = (await read_segments(self._store.records, self._uid)).lines
        pins = await read_pins(self._store.records, self._uid, lines)
        self._run_records += 2 + sum([1 async for _ in self._segments()])
        run = self._run(pins, lines)
        scopes = pins.scopes
        view = self._store.view(write=scopes.private, read=scopes.readable)
        content = self._content = ContentVerification(view)
        readable = tuple(dict.fromkeys((*scopes.readable, scopes.publish, scopes.private)))
        self._results = ResultRecords(self._store.records, readable, self._withheld, content)
        ends = {la.step: la for la in lines if isinstance(la, StepLine)}
        sources = [s for name in self._outputs for s in pins.plan.outputs.get(name, ())]
        needed = _needed(run, sources)
        actions = actions_of(lines)
        for path in run.steps:  # in topological order, so that inputs come first
            if path in needed:
                await self._verify_step(run, path, ends.get(path), actions)
        await self._verify_outputs(run, final)

    def _segments(self) -> AsyncIterator[str]:
        return self._store.records.keys(ledger_prefix(self._uid))

    async def _final(self) -> FinalRecord:
        key = final_key(self._uid)
        record = await self._store.records.read(key)
        if record is None:
            if await self._store.records.read(spec_key(self._uid)) is None:
                raise NotFoundError(f"there is no run {self._uid!r}", where="runs")
            raise BrokenLinkError("record", key, "it is missing: the run has not ended")
        return decode_record(final_decoder, key, record)

    def _run(self, pins: PinsRecord, lines: Sequence[Line]) -> Run:
        missing = [s.engine for s in pins.plan.steps if self._catalog.newest(s.engine) is None]
        if missing:
            raise ConflictError(
                f"engine {missing[0]} is not installed",
                where="verify",
                remedy="install the engines that the run used",
            )
        event = Submitted(self._uid, pins.plan, 0.0, pins.scopes, pins.artifacts)
        run = run_of(self._catalog, event)
        for line in lines:
            if isinstance(line, StepLine) and line.step in run.steps:
                run.steps[line.step].outputs = line.outputs
        return run

    async def _verify_step(
        self, run: Run, path: str, end: StepLine | None, actions: Actions
    ) -> None:
        step = run.steps[path]
        if end is None:
            raise BrokenLinkError("step", path, "the ledger does not say how it ended")
        self._steps[path] = step.plan.engine
        if not any(end.outputs.values()):
            return  # it was skipped, or failed
        assert self._content is not None
        assert self._results is not None
        inputs = inputs_of(run, step)
        if inputs is None:
            raise BrokenLinkError("step", path, "it has outputs, but an input of it has none")
        for edge in step.plan.edges:
            for source in edge.sources:
                if isinstance(source, ArtifactSource):
                    await self._verify_given(run, source)
        await self._results.verify(step, actions.get(path, {}), inputs, end.outputs)
        for port, artifact in end.outputs.items():
            if artifact is not None:
                await self._content.verify(f"{path}.{port}", artifact, stored_whole=False)

    async def _verify_given(self, run: Run, source: ArtifactSource) -> None:
        assert self._content is not None
        artifact = run.artifacts.get(source.reference)
        name = f"the {source.kind} that the run was given"
        if artifact is None:
            raise BrokenLinkError("record", spec_key(self._uid), f"it does not name {name}")
        if source.reference not in self._given:
            self._given.add(source.reference)
            await self._content.verify(name, artifact, stored_whole=False)

    async def _verify_outputs(self, run: Run, final: FinalRecord) -> None:
        assert self._content is not None
        for name in self._outputs:
            found = [source_artifact(run, s) for s in run.plan.outputs.get(name, ())]
            made = [artifact.digest for artifact in found if artifact is not None]
            shown = final.outputs.get(name, ())
            if [artifact.digest for artifact in shown] != made:
                reason = f"its output {name!r} is not what the ledger says"
                raise BrokenLinkError("record", final_key(self._uid), reason)
            for artifact in shown:
                await self._content.verify(f"output {name}", artifact, stored_whole=True)


def _chosen(uid: str, final: FinalRecord, output: str) -> tuple[str, ...]:
    """Returns the outputs to verify."""
    if not output:
        return tuple(final.outputs)
    if output not in final.outputs:
        raise NotFoundError(
            f"run {uid} has no output {output!r}",
            where="outputs",
            remedy=f"it has {', '.join(final.outputs) or 'none'}",
        )
    return (output,)


def _needed(run: Run, sources: Iterable[Source]) -> set[str]:
    """Returns the steps that the sources rest on."""
    found: set[str] = set()
    left = [source.step for source in sources if isinstance(source, StepSource)]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += run.steps[path].parents
    return found
