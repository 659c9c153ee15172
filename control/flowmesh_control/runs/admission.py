"""Admission: checks, compiles, pins and writes a workflow, then submits it to the machine.

Called by the API and the operator. Every error before the write names a field that the user can
correct. Once ``spec`` is written the run exists, even if this process dies. The run's digest stays
reserved until the machine has the run: a submission of the same document waits for that and then
joins the run. Submissions of other documents are written concurrently.
"""

import asyncio
import contextlib
import secrets
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Iterable,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.runs import RunAccepted
from flowmesh_control.errors import NotFoundError
from flowmesh_control.evaluators.compilation import CheckedWorkflow, CompileRequest, WorkflowInput
from flowmesh_control.evaluators.compilers import WorkflowCompiler, nesting_error
from flowmesh_control.loop.clock import Clock
from flowmesh_control.quotas.doubling import Doubling
from flowmesh_control.quotas.run_quota import RunQuota
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.keys import spec_key
from flowmesh_control.records.run_records import (
    AcceptedRecord,
    PinsRecord,
    SpecRecord,
    decode_record,
    spec_decoder,
)
from flowmesh_control.runs.submitters import Submitters
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_core.errors import InvalidReferenceError, SpecError
from flowmesh_core.graph.plan import ArtifactSource, Plan
from flowmesh_core.identity import SCHEME, digest_bytes
from flowmesh_core.machine.events import Submitted
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing import REFERENCE_PREFIX, ScopePlan, read_reference
from flowmesh_core.spec.inputs import as_row
from flowmesh_core.units import Digest
from flowmesh_store.ports import RecordStore

OutputLookup = Callable[[Iterable[str], str], Awaitable[dict[str, str | NotFoundError]]]
"""Returns the reference of each ``RUN/OUTPUT`` in a namespace, or why there is none."""
_DELETED = "the run of this object was deleted: delete the object too, or create another one"


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
        submitter: the client's name of this submission; empty for none.
        check_terms: whether to refuse it where more is expected than its budget or deadline allows,
            or no worker can ever run a step.
    """

    document: Mapping[str, Any]
    namespace: str = ""
    uploads: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    uid: str = ""
    resume: bool = True
    submitter: str = ""
    check_terms: bool = False


@dataclass(frozen=True, slots=True)
class Compiled:
    """A checked and compiled workflow with everything that it refers to."""

    document: dict[str, Any]
    plan: Plan
    scopes: ScopePlan
    artifacts: dict[str, Artifact]
    uploads: dict[str, str]


class Admission:
    """Accepts workflows as runs.

    Attributes:
        submitters: which submissions want each run.
    """

    def __init__(
        self,
        *,
        records: RecordStore,
        content: UploadStore,
        outputs: OutputLookup,
        policies: CachePolicyStore,
        quota: RunQuota,
        compiler: WorkflowCompiler,
        clock: Clock,
        quarantine_salts: Callable[[], Mapping[Digest, int]],
        unfinished: Callable[[str], bool],
        deleted: Container[str],
        submitted: Callable[[Submitted], Awaitable[None]],
        fixed_fleet: Callable[[], Sequence[WorkerShape]],
        check_terms: Callable[[Compiled], Awaitable[None]],
    ) -> None:
        """Starts without runs.

        Args:
            records: where specs are written.
            content: stores inline rows and loads references.
            outputs: looks up outputs of runs.
            policies: give the scopes of a namespace.
            quota: bounds what a namespace has under way.
            compiler: checks and compiles workflows.
            clock: gives the time of creation.
            quarantine_salts: the signature classes in quarantine, which a new run is pinned to.
            unfinished: whether the run of a uid has not ended.
            deleted: runs that users deleted: an object that is left of one is refused.
            submitted: posts an accepted run to the machine.
            fixed_fleet: the shapes of all workers, where no others can join: a step that none of
                them serves is refused. Empty while none is connected, and where pools may grow.
            check_terms: refuses a workflow of which more is expected than its terms allow, or that
                no worker can ever run.
        """
        self._records = records
        self._content = content
        self._outputs = outputs
        self._policies = policies
        self._quota = quota
        self._compiler = compiler
        self._clock = clock
        self._quarantine_salts = quarantine_salts
        self.submitters = Submitters(unfinished)
        self._unfinished = unfinished
        self._deleted = deleted
        self._submitted = submitted
        self._fixed_fleet = fixed_fleet
        self._check_terms = check_terms
        self._by_digest: dict[Digest, str] = {}
        self._doubling = Doubling()
        self._reserved: dict[str, asyncio.Event] = {}

    def remember(self, spec: SpecRecord) -> None:
        """Registers an unfinished run of an earlier control plane, so that submissions join it."""
        self._note(spec.digest, spec.uid)
        self._quota.remember(spec.namespace, spec.uid)

    def forget(self, uid: str) -> None:
        """Prevents later submissions from joining a run, because it is about to be cancelled."""
        for digest in [d for d, run in self._by_digest.items() if run == uid]:
            del self._by_digest[digest]

    async def submit(self, submission: Submission) -> RunAccepted:
        """Accepts a workflow, or returns the unfinished run of the same workflow.

        Raises:
            SpecError: everything that is wrong with it.
            InvalidReferenceError: it names content that the namespace may not read.
            PlanRefusedError: it is to be checked, and more is expected than its terms allow or no
                worker can run it.
            QuotaExceededError: its namespace has too much under way, or it is too large.
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
                if submission.check_terms:
                    await self._check_terms(compiled)
                uid = uid or f"{plan.name}-{secrets.token_hex(4)}"
                await self._accept(compiled, digest, uid)
            if not submission.uid:  # the run of an object is wanted as long as the object exists
                self.submitters.add(existing or uid, submission.submitter)
        return RunAccepted(existing or uid, plan.name, plan.namespace, resumed=bool(existing))

    async def accept_plan(self, compiled: Compiled, digest: Digest, *, uid: str) -> RunAccepted:
        """Accepts a plan that the control plane compiled itself, or returns its unfinished run.

        Raises:
            QuotaExceededError: its namespace has too much under way.
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
        plan = compiled.plan
        if plan.paid_by_fabric:  # the namespace did not ask for it, so its quota does not count it
            await self._write_and_submit(compiled, digest, uid)
            return
        await self._quota.count_stored(plan.namespace)
        with self._quota.entering(plan.namespace, uid, len(plan.steps)):
            await self._write_and_submit(compiled, digest, uid)

    async def _write_and_submit(self, compiled: Compiled, digest: Digest, uid: str) -> None:
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
        self._note(digest, uid)

    def _note(self, digest: Digest, uid: str) -> None:
        """Lets later submissions join a run; forgets runs that have ended, once there are many."""
        if self._doubling.is_due(len(self._by_digest)):
            known = self._by_digest.items()
            self._by_digest = {of: run for of, run in known if self._unfinished(run)}
            self._doubling.left(len(self._by_digest))
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
            raise nesting_error() from e

    async def _compile(self, submission: Submission) -> Compiled:
        document = _document(submission)
        workflow = await self._compiler.check(document)
        scopes = self._policies.scopes(workflow.namespace, dict(submission.labels))
        uploads = await self._uploads(document, workflow, submission.uploads, scopes)
        artifacts = await self._stored_inputs(workflow, uploads, scopes)
        columns = {
            name: {column: str(kind) for column, kind in artifact.manifest.schema.types().items()}
            for name, (_, artifact) in artifacts.items()
            if artifact.manifest is not None
        }
        shapes = tuple(self._fixed_fleet())
        plan = await self._compiler.compile(
            CompileRequest(document, uploads, columns, shapes), workflow
        )
        wanted = _references(plan)
        found = {r: a for r, a in artifacts.values() if r in wanted}
        return Compiled(document, plan, scopes, found, uploads)

    async def _uploads(
        self,
        document: Mapping[str, Any],
        workflow: CheckedWorkflow,
        given: Mapping[str, str],
        scopes: ScopePlan,
    ) -> dict[str, str]:
        """Returns references for all local inputs, rows in the document and outputs of runs."""
        uploads = dict(given)
        for name, source in workflow.inputs.items():
            if source.has_rows:
                rows = source.filled_rows
                if rows is None:
                    rows = [as_row(row) for row in document["spec"]["inputs"][name]["rows"]]
                stored = await self._content.put_rows(rows, scopes.private)
                uploads[name] = stored.reference
        return uploads | await self._published(workflow, uploads)

    async def _published(
        self, workflow: CheckedWorkflow, known: Mapping[str, str]
    ) -> dict[str, str]:
        """Returns references for outputs of runs; those of a run that is re-pinned are known."""
        wanted = {n: s for n, s in workflow.inputs.items() if s.output and n not in known}
        texts = {source.output for source in wanted.values()}
        references = await self._outputs(sorted(texts), workflow.namespace)
        found = {}
        problems = []
        for name, source in wanted.items():
            reference = references[source.output]
            if isinstance(reference, NotFoundError):
                text = f"{reference.message}; {reference.remedy}"
                problems.append(Problem(_place(name, source), text))
            else:
                found[name] = reference
        if problems:
            raise SpecError(problems)
        return found

    async def _stored_inputs(
        self, workflow: CheckedWorkflow, uploads: Mapping[str, str], scopes: ScopePlan
    ) -> dict[str, tuple[str, Artifact]]:
        """Returns reference and artifact of every input that is stored already, by name."""
        found = {}
        problems = []
        for name, source in workflow.inputs.items():
            reference = uploads.get(name, source.value)
            if not reference.startswith(REFERENCE_PREFIX):
                continue
            try:
                kind = source.kind or read_reference(reference).kind
                found[name] = (reference, await self._content.load(kind, reference, scopes))
            except InvalidReferenceError as e:
                problems.append(Problem(_place(name, source), f"{e.message}; {e.remedy}"))
        if problems:
            raise SpecError(problems)
        return found

    async def _existing_run(self, submission: Submission, digest: Digest) -> str:
        """Returns the uid of the run of an earlier, equal submission; empty where it is new."""
        if submission.uid:
            if submission.uid in self._deleted:
                raise SpecError([Problem("metadata.uid", _DELETED)])
            key = spec_key(submission.uid)
            record = await self._records.read(key)
            return "" if record is None else decode_record(spec_decoder, key, record).uid
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
        pins = PinsRecord(
            SCHEME, plan, compiled.scopes, compiled.artifacts, quarantine_salts, level=plan.level
        )
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


def _document(submission: Submission) -> dict[str, Any]:
    document = dict(submission.document)
    metadata = document.get("metadata")
    if submission.namespace and isinstance(metadata, dict):
        document["metadata"] = {**metadata, "namespace": submission.namespace}
    return document


def _place(name: str, source: WorkflowInput) -> str:
    return f"spec.inputs.{name}.output" if source.output else f"spec.inputs.{name}"


def _references(plan: Plan) -> set[str]:
    edges = (s for step in plan.steps for e in step.edges for s in e.sources)
    outputs = (s for sources in plan.outputs.values() for s in sources)
    return {s.reference for s in (*edges, *outputs) if isinstance(s, ArtifactSource)}


def _digest(namespace: str, document: Mapping[str, Any], uploads: Mapping[str, str]) -> Digest:
    identity = [namespace, document, uploads]
    try:
        return digest_bytes(orjson.dumps(identity, option=orjson.OPT_SORT_KEYS))
    except orjson.JSONEncodeError as e:
        raise nesting_error() from e
