"""Admission: checks, compiles, pins and writes a workflow, then submits it to the machine.

Called by the API and the operator. Every error before the write names a field that the user can
correct. Once ``spec`` is written the run exists, even if this process dies. The run's digest stays
reserved until the machine has the run: a submission of the same document waits for that and then
joins the run. Submissions of other documents are written concurrently.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.runs import RunAccepted
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.keys import spec_key
from flowmesh_control.records.run_records import (
    AcceptedRecord,
    PinsRecord,
    SpecRecord,
    decode_record,
    spec_decoder,
)
from flowmesh_control.runs.former_references import renewed_spec
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import ContentLimitError, InvalidReferenceError, SpecError
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.graph.limits import Limits
from flowmesh_core.graph.plan import ArtifactSource, Plan
from flowmesh_core.identity import SCHEME, digest_bytes
from flowmesh_core.machine.events import Submitted
from flowmesh_core.placement.engine_variants import VariantRequest, problem
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing import REFERENCE_PREFIX, ScopePlan
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.workflow import FlowMeshWorkflow
from flowmesh_core.units import Digest
from flowmesh_store.ports import RecordStore


@dataclass(frozen=True, slots=True)
class Submission:
    """A workflow that a user submits.

    Attributes:
        document: the workflow as JSON-like values.
        namespace: overrides the document's; empty for no override.
        uploads: references to the stored content of local inputs, by the input's name.
        labels: the namespace's labels, for policies that select by label.
        uid: the run's uid where the caller has one (a custom resource); submitting it again
            returns the same run.
        resume: whether to join an unfinished run of the same document and namespace.
    """

    document: Mapping[str, Any]
    namespace: str = ""
    uploads: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    uid: str = ""
    resume: bool = True


@dataclass(frozen=True, slots=True)
class Compiled:
    """A checked and compiled workflow with everything that it refers to."""

    document: dict[str, Any]
    plan: Plan
    scopes: ScopePlan
    artifacts: dict[str, Artifact]
    uploads: dict[str, str]


class Admission:
    """Accepts workflows as runs."""

    def __init__(
        self,
        *,
        records: RecordStore,
        content: UploadStore,
        policies: CachePolicyStore,
        catalog: Catalog,
        limits: Limits,
        clock: Clock,
        quarantine_salts: Callable[[], Mapping[Digest, int]],
        unfinished: Callable[[str], bool],
        submitted: Callable[[Submitted], Awaitable[None]],
        fixed_fleet: Callable[[], Sequence[WorkerShape]],
    ) -> None:
        """Starts without runs.

        Args:
            records: where specs are written.
            content: stores inline rows and loads references.
            policies: give the scopes of a namespace.
            catalog: the engine contracts.
            limits: bounds on one workflow.
            clock: gives the time of creation.
            quarantine_salts: the signature classes in quarantine, which a new run is pinned to.
            unfinished: whether the run of a uid has not ended.
            submitted: posts an accepted run to the machine.
            fixed_fleet: the shapes of all workers, where no others can join: a step that none of
                them serves is refused. Empty while none is connected, and where pools may grow.
        """
        self._records = records
        self._content = content
        self._policies = policies
        self._catalog = catalog
        self._limits = limits
        self._clock = clock
        self._quarantine_salts = quarantine_salts
        self._unfinished = unfinished
        self._submitted = submitted
        self._fixed_fleet = fixed_fleet
        self._by_digest: dict[Digest, str] = {}
        self._reserved: dict[str, asyncio.Event] = {}

    def remember(self, spec: SpecRecord) -> None:
        """Registers an unfinished run of an earlier control plane, so that submissions join it."""
        self._by_digest[spec.digest] = spec.uid
        renewed = self.renewed(spec)
        if renewed is not spec:  # the same files, uploaded again, get references of today's form
            found = _digest(spec.namespace, renewed.document, renewed.uploads)
            self._by_digest[found] = spec.uid

    def forget(self, uid: str) -> None:
        """Prevents later submissions from joining a run, because it is about to be cancelled."""
        for digest in [d for d, run in self._by_digest.items() if run == uid]:
            del self._by_digest[digest]

    def renewed(self, spec: SpecRecord) -> SpecRecord:
        """Returns a spec with references in today's form, which admission accepts."""
        return renewed_spec(spec, self._content.issued)

    async def submit(self, submission: Submission) -> RunAccepted:
        """Accepts a workflow, or returns the unfinished run of the same workflow.

        Raises:
            SpecError: everything that is wrong with it.
            InvalidReferenceError: it names content that the namespace may not read.
            StoreError: it could not be written; nothing was accepted.
        """
        compiled = await self.compile(submission)
        plan, uid = compiled.plan, submission.uid
        digest = _digest(plan.namespace, compiled.document, compiled.uploads)
        # A submission that must not join a run does not wait for the reservation of its digest. It
        # still reserves the digest, because later submissions may join its run.
        waits_for = uid or (digest if submission.resume else "")
        async with self._reservation({digest, uid or digest}, waits_for):
            existing = await self._existing_run(submission, digest)
            if not existing:
                uid = uid or f"{plan.name}-{secrets.token_hex(4)}"
                await self._accept(compiled, digest, uid)
        return RunAccepted(existing or uid, plan.name, plan.namespace, resumed=bool(existing))

    async def accept_plan(self, compiled: Compiled, digest: Digest, *, uid: str) -> RunAccepted:
        """Accepts a plan that the control plane compiled itself, or returns its unfinished run.

        Raises:
            StoreError: it could not be written; nothing was accepted.
        """
        plan = compiled.plan
        async with self._reservation({digest}, digest):
            existing = self._active_run(digest)
            if not existing:
                await self._accept(compiled, digest, uid)
        return RunAccepted(existing or uid, plan.name, plan.namespace, resumed=bool(existing))

    async def active_run(self, digest: Digest) -> str:
        """Returns the uid of the unfinished run of a digest; empty where there is none.

        Waits while a submission of this digest is being written.
        """
        await self._wait_for_release(digest)
        return self._active_run(digest)

    @contextlib.asynccontextmanager
    async def _reservation(self, names: Set[str], waits_for: str) -> AsyncIterator[None]:
        """Reserves names until the machine has the run, or it was not accepted.

        Args:
            names: the run's digest, and its uid where the caller gave one.
            waits_for: the name whose reservation must end first; empty for none.
        """
        await self._wait_for_release(waits_for)
        released = asyncio.Event()
        self._reserved.update(dict.fromkeys(names, released))
        try:
            yield
        finally:
            released.set()
            for name in names:
                if self._reserved.get(name) is released:
                    del self._reserved[name]

    async def _wait_for_release(self, name: str) -> None:
        while (reservation := self._reserved.get(name)) is not None:
            await reservation.wait()

    async def _accept(self, compiled: Compiled, digest: Digest, uid: str) -> None:
        created_s, quarantine_salts = self._clock(), dict(self._quarantine_salts())
        await self._write(uid, created_s, digest, compiled, quarantine_salts)
        await self._submitted(
            Submitted(
                uid,
                compiled.plan,
                created_s,
                compiled.scopes,
                compiled.artifacts,
                quarantine_salts=quarantine_salts,
            )
        )
        self._by_digest[digest] = uid

    async def compile(self, submission: Submission) -> Compiled:
        """Checks and compiles a workflow without accepting it.

        Raises:
            SpecError: everything that is wrong with it.
            InvalidReferenceError: it names content that the namespace may not read.
        """
        try:
            return await self._compile(submission)
        except RecursionError as e:
            raise _nesting_error() from e

    async def _compile(self, submission: Submission) -> Compiled:
        workflow, document = _parse(submission)
        namespace = workflow.metadata.namespace
        scopes = self._policies.scopes(namespace, dict(submission.labels))
        uploads = await self._uploads(workflow, submission.uploads, scopes)
        artifacts = await self._stored_inputs(workflow, uploads, scopes)
        columns = {
            name: artifact.manifest.schema.names
            for name, (_, artifact) in artifacts.items()
            if artifact.manifest is not None
        }
        plan = await asyncio.to_thread(
            compile_workflow,
            workflow,
            self._catalog,
            self._limits,
            uploads=uploads,
            columns=columns,
        )
        check_engine_variants(workflow, plan, self._catalog, self._fixed_fleet())
        wanted = _references(plan)
        found = {r: a for r, a in artifacts.values() if r in wanted}
        return Compiled(document, plan, scopes, found, uploads)

    async def _uploads(
        self, workflow: FlowMeshWorkflow, given: Mapping[str, str], scopes: ScopePlan
    ) -> dict[str, str]:
        """Returns references for all local inputs, after storing rows given in the document."""
        uploads = dict(given)
        for name, source in workflow.spec.inputs.items():
            if source.rows is not None:
                stored = await self._content.put_rows(source.rows, scopes.private)
                uploads[name] = stored.reference
        return uploads

    async def _stored_inputs(
        self, workflow: FlowMeshWorkflow, uploads: Mapping[str, str], scopes: ScopePlan
    ) -> dict[str, tuple[str, Artifact]]:
        """Returns reference and artifact of every input that is stored already, by name."""
        found = {}
        problems = []
        for name, source in workflow.spec.inputs.items():
            kind, value = next(
                ((k, v) for k in ("model", "adapter", "dataset") if (v := getattr(source, k))),
                ("dataset", ""),
            )
            reference = uploads.get(name, value)
            if not reference.startswith(REFERENCE_PREFIX):
                continue
            try:
                found[name] = (reference, await self._content.load(kind, reference, scopes))
            except InvalidReferenceError as e:
                problems.append(Problem(f"spec.inputs.{name}", f"{e.message}; {e.remedy}"))
        if problems:
            raise SpecError(problems)
        return found

    async def _existing_run(self, submission: Submission, digest: Digest) -> str:
        """Returns the uid of the run of an earlier, equal submission; empty where it is new."""
        if submission.uid:
            key = spec_key(submission.uid)
            record = await self._records.read(key)
            return "" if record is None else decode_record(spec_decoder, key, record.data).uid
        uid = self._active_run(digest)
        return uid if submission.resume else ""

    def _active_run(self, digest: Digest) -> str:
        uid = self._by_digest.get(digest, "")
        if uid and self._unfinished(uid):
            return uid
        self._by_digest.pop(digest, None)
        return ""

    async def _write(
        self,
        uid: str,
        created_s: float,
        digest: Digest,
        compiled: Compiled,
        quarantine_salts: dict[Digest, int],
    ) -> None:
        plan = compiled.plan
        pins = PinsRecord(SCHEME, plan, compiled.scopes, compiled.artifacts, quarantine_salts)
        spec = AcceptedRecord(
            uid=uid,
            name=plan.name,
            namespace=plan.namespace,
            digest=digest,
            created_s=created_s,
            document=compiled.document,
            uploads=compiled.uploads,
            pins=pins,
        )
        await self._records.write(spec_key(uid), msgspec.json.encode(spec), if_match=None)


def check_engine_variants(
    workflow: FlowMeshWorkflow, plan: Plan, catalog: Catalog, shapes: Sequence[WorkerShape]
) -> None:
    """Refuses steps whose identity fields no worker serves.

    Args:
        workflow: as it was written, for the places of errors.
        plan: the same workflow, compiled.
        catalog: the engine contracts.
        shapes: the workers; empty to refuse nothing.

    Raises:
        SpecError: every such step.
    """
    places = {step.name: f"spec.steps[{i}].with" for i, step in enumerate(workflow.spec.steps)}
    problems = []
    for step in plan.steps:
        contract = catalog.pinned(step.engine, step.contract, step.implementation)
        if contract is None or not contract.identity_fields:
            continue
        found = problem(VariantRequest.of(step.engine, step.fields), shapes)
        if found:
            problems.append(Problem(places.get(step.name, step.path), found))
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))


def _parse(submission: Submission) -> tuple[FlowMeshWorkflow, dict[str, Any]]:
    document = dict(submission.document)
    metadata = document.get("metadata")
    if submission.namespace and isinstance(metadata, dict):
        document["metadata"] = {**metadata, "namespace": submission.namespace}
    workflow = parse_object(document)
    if not isinstance(workflow, FlowMeshWorkflow):
        raise SpecError(
            [Problem("kind", "expected a FlowMeshWorkflow; an administrator sets cache policies")]
        )
    return workflow, document


def _references(plan: Plan) -> set[str]:
    edges = (s for step in plan.steps for e in step.edges for s in e.sources)
    outputs = (s for sources in plan.outputs.values() for s in sources)
    return {s.reference for s in (*edges, *outputs) if isinstance(s, ArtifactSource)}


def _digest(namespace: str, document: Mapping[str, Any], uploads: Mapping[str, str]) -> Digest:
    identity = [namespace, document, uploads]
    try:
        return digest_bytes(orjson.dumps(identity, option=orjson.OPT_SORT_KEYS))
    except orjson.JSONEncodeError as e:
        raise _nesting_error() from e


def _nesting_error() -> ContentLimitError:
    return ContentLimitError(
        "the document is nested too deeply", where="document", remedy="flatten it"
    )
