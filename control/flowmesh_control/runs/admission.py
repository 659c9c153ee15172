"""From a workflow document to an accepted run: checked, compiled, pinned, written, submitted.

Every error so far is the user's to mend, and names the field. Once ``spec`` is written the run
exists, whatever happens to this process. Until the machine has it too, its digest stays reserved:
who hands in the same meanwhile waits and then joins it; everybody else is written side by side.
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
    """What a user hands in.

    Attributes:
        document: the workflow as JSON-like values.
        namespace: goes before the document's; empty leaves it.
        uploads: references to what was stored for local inputs, by the input's name.
        labels: the namespace's labels, for policies that select by label.
        uid: the run's uid where the caller has one (a custom resource); handed in again it is the
            same run.
        resume: whether an unfinished run of the same document and namespace is meant.
    """

    document: Mapping[str, Any]
    namespace: str = ""
    uploads: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    uid: str = ""
    resume: bool = True


@dataclass(frozen=True, slots=True)
class Compiled:
    """A workflow that could be run now, with everything it refers to."""

    document: dict[str, Any]
    plan: Plan
    scopes: ScopePlan
    artifacts: dict[str, Artifact]
    uploads: dict[str, str]


class Admission:
    """Accepts workflows."""

    def __init__(
        self,
        *,
        records: RecordStore,
        content: UploadStore,
        policies: CachePolicyStore,
        catalog: Catalog,
        limits: Limits,
        clock: Clock,
        bumps: Callable[[], Mapping[Digest, int]],
        unfinished: Callable[[str], bool],
        submitted: Callable[[Submitted], Awaitable[None]],
        fixed_fleet: Callable[[], Sequence[WorkerShape]],
    ) -> None:
        """Takes what workflows are checked against, and who runs them.

        Args:
            records: where specs are written.
            content: stores inline rows and loads references.
            policies: decide the scopes.
            catalog: the engines.
            limits: bounds on one workflow.
            clock: gives the time of creation.
            bumps: the signature classes in quarantine, which a new run is pinned to.
            unfinished: whether a run of this uid still goes on.
            submitted: hands an accepted run to the machine.
            fixed_fleet: the workers, where no others can come: what none of them serves is refused
                at once. Empty while none is connected, and where pools may grow.
        """
        self._records = records
        self._content = content
        self._policies = policies
        self._catalog = catalog
        self._limits = limits
        self._clock = clock
        self._bumps = bumps
        self._unfinished = unfinished
        self._submitted = submitted
        self._fixed_fleet = fixed_fleet
        self._by_digest: dict[Digest, str] = {}
        self._reserved: dict[str, asyncio.Event] = {}

    def remember(self, spec: SpecRecord) -> None:
        """An unfinished run that was there before this control plane."""
        self._by_digest[spec.digest] = spec.uid
        renewed = self.renewed(spec)
        if renewed is not spec:  # the same files uploaded again have other references than then
            found = _digest(spec.namespace, renewed.document, renewed.uploads)
            self._by_digest[found] = spec.uid

    def forget(self, uid: str) -> None:
        """Lets no later submission join a run, which is about to be cancelled."""
        for digest in [d for d, run in self._by_digest.items() if run == uid]:
            del self._by_digest[digest]

    def renewed(self, spec: SpecRecord) -> SpecRecord:
        """What was submitted, with references that can be admitted again."""
        return renewed_spec(spec, self._content.issued)

    async def submit(self, submission: Submission) -> RunAccepted:
        """Accepts a workflow, or finds the run that it already is.

        Raises:
            SpecError: everything that is wrong with it.
            InvalidReferenceError: it names content that the namespace may not read.
            StoreError: it could not be written; nothing was accepted.
        """
        compiled = await self.compile(submission)
        plan, uid = compiled.plan, submission.uid
        digest = _digest(plan.namespace, compiled.document, compiled.uploads)
        # Not to be resumed, it waits for nobody; but those that may join it wait for it.
        waits_for = uid or (digest if submission.resume else "")
        async with self._reservation({digest, uid or digest}, waits_for):
            standing = await self._standing(submission, digest)
            if not standing:
                uid = uid or f"{plan.name}-{secrets.token_hex(4)}"
                await self._accept(compiled, digest, uid)
        return RunAccepted(standing or uid, plan.name, plan.namespace, resumed=bool(standing))

    async def take(self, compiled: Compiled, digest: Digest, *, uid: str) -> RunAccepted:
        """Accepts what the control plane compiled itself, or finds the run that it already is.

        Raises:
            StoreError: it could not be written; nothing was accepted.
        """
        plan = compiled.plan
        async with self._reservation({digest}, digest):
            standing = self._unended(digest)
            if not standing:
                await self._accept(compiled, digest, uid)
        return RunAccepted(standing or uid, plan.name, plan.namespace, resumed=bool(standing))

    async def standing(self, digest: Digest) -> str:
        """The unfinished run of this digest, once it is written; empty where there is none."""
        await self._released(digest)
        return self._unended(digest)

    @contextlib.asynccontextmanager
    async def _reservation(self, names: Set[str], waits_for: str) -> AsyncIterator[None]:
        """Holds names until the machine has the run, or it is known that there will be none.

        Args:
            names: the run's digest, and its uid where the caller gave one.
            waits_for: the name that nobody else may hold meanwhile; empty for none.
        """
        await self._released(waits_for)
        released = asyncio.Event()
        self._reserved.update(dict.fromkeys(names, released))
        try:
            yield
        finally:
            released.set()
            for name in names:
                if self._reserved.get(name) is released:
                    del self._reserved[name]

    async def _released(self, name: str) -> None:
        while (held := self._reserved.get(name)) is not None:
            await held.wait()

    async def _accept(self, compiled: Compiled, digest: Digest, uid: str) -> None:
        created_s, bumps = self._clock(), dict(self._bumps())
        await self._write(uid, created_s, digest, compiled, bumps)
        await self._submitted(
            Submitted(
                uid, compiled.plan, created_s, compiled.scopes, compiled.artifacts, bumps=bumps
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
            raise _too_deep() from e

    async def _compile(self, submission: Submission) -> Compiled:
        workflow, document = _parse(submission)
        namespace = workflow.metadata.namespace
        scopes = self._policies.scopes(namespace, dict(submission.labels))
        uploads = await self._uploads(workflow, submission.uploads, scopes)
        artifacts = await self._named(workflow, uploads, scopes)
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
        check_honoured(workflow, plan, self._catalog, self._fixed_fleet())
        wanted = _references(plan)
        found = {r: a for r, a in artifacts.values() if r in wanted}
        return Compiled(document, plan, scopes, found, uploads)

    async def _uploads(
        self, workflow: FlowMeshWorkflow, given: Mapping[str, str], scopes: ScopePlan
    ) -> dict[str, str]:
        """References for all local inputs; rows written in the document are stored here."""
        uploads = dict(given)
        for name, source in workflow.spec.inputs.items():
            if source.rows is not None:
                stored = await self._content.put_rows(source.rows, scopes.private)
                uploads[name] = stored.reference
        return uploads

    async def _named(
        self, workflow: FlowMeshWorkflow, uploads: Mapping[str, str], scopes: ScopePlan
    ) -> dict[str, tuple[str, Artifact]]:
        """Reference and content of every input that is in the store already, by name."""
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

    async def _standing(self, submission: Submission, digest: Digest) -> str:
        """The run that this submission already is; empty where it is new."""
        if submission.uid:
            key = spec_key(submission.uid)
            record = await self._records.read(key)
            return "" if record is None else decode_record(spec_decoder, key, record.data).uid
        uid = self._unended(digest)
        return uid if submission.resume else ""

    def _unended(self, digest: Digest) -> str:
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
        bumps: dict[Digest, int],
    ) -> None:
        plan = compiled.plan
        pins = PinsRecord(SCHEME, plan, compiled.scopes, compiled.artifacts, bumps)
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


def check_honoured(
    workflow: FlowMeshWorkflow, plan: Plan, catalog: Catalog, shapes: Sequence[WorkerShape]
) -> None:
    """Refuses steps whose identity fields no worker serves.

    Args:
        workflow: as it was written, for the places.
        plan: what became of it.
        catalog: the engines.
        shapes: the workers; none: nothing is refused.

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
            [Problem("kind", "expected a FlowMeshWorkflow; policies are put by administrators")]
        )
    return workflow, document


def _references(plan: Plan) -> set[str]:
    edges = (s for step in plan.steps for e in step.edges for s in e.sources)
    outputs = (s for sources in plan.outputs.values() for s in sources)
    return {s.reference for s in (*edges, *outputs) if isinstance(s, ArtifactSource)}


def _digest(namespace: str, document: Mapping[str, Any], uploads: Mapping[str, str]) -> Digest:
    said = [namespace, document, uploads]
    try:
        return digest_bytes(orjson.dumps(said, option=orjson.OPT_SORT_KEYS))
    except orjson.JSONEncodeError as e:
        raise _too_deep() from e


def _too_deep() -> ContentLimitError:
    return ContentLimitError(
        "the document is nested too deeply", where="document", remedy="flatten it"
    )
