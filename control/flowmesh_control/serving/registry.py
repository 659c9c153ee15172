"""Applies and deletes services, and turns their inputs into releases.

The models of a service are imported by a run of its namespace, as the inputs of a workflow are; a
release pins their digests. Another content of a service is a new release: the old one serves until
the models of the new one are there.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping

import msgspec

from flowmesh_api.v1.enums import Phase
from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.services import ServiceApplication
from flowmesh_control.errors import ConflictError, NotFoundError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.public_errors import public_error
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.revocations import Revocations
from flowmesh_control.records.service_records import (
    PendingRelease,
    ServiceRecord,
    ServiceRecords,
)
from flowmesh_control.runs.admission import Admission, Compiled
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_control.serving.published_outputs import PublishedOutputs, named_outputs
from flowmesh_control.serving.service_content import (
    no_right_to_change,
    parse_service,
    stored_rows,
    uploads_beside_outputs,
    with_models,
)
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import FlowMeshError, InvalidReferenceError, SpecError
from flowmesh_core.graph.plan import ArtifactSource, Source
from flowmesh_core.graph.service_plan import ServicePlan, compile_service
from flowmesh_core.identity import digest_bytes
from flowmesh_core.openai.stage_check import stage_problems
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.serving.router_entry import router_entry
from flowmesh_core.sharing import ScopePlan
from flowmesh_core.sharing.scopes import namespace_scope

SERVICES_MAX = 100
"""Services of one namespace."""


class ServiceRegistry:
    """The services of all namespaces.

    Attributes:
        delays: service → why its models are not being imported now.
    """

    def __init__(
        self,
        *,
        records: ServiceRecords,
        catalog: Catalog,
        content: UploadStore,
        policies: CachePolicyStore,
        revocations: Revocations,
        admission: Admission,
        views: RunViews,
        clock: Clock,
        spend: Mapping[str, int],
    ) -> None:
        """Keeps what services are made with.

        Args:
            records: where services are written.
            catalog: the engines.
            content: loads models that are stored already.
            policies: give the scopes of a namespace.
            revocations: end releases of the content that they revoke.
            admission: accepts the runs that import models.
            views: show how these end.
            clock: Unix time in seconds.
            spend: ``namespace/name`` → what all services of that name have cost so far.
        """
        self._records = records
        self._catalog = catalog
        self._content = content
        self._policies = policies
        self._revocations = revocations
        self._admission = admission
        self._views = views
        self._outputs = PublishedOutputs(views)
        self._clock = clock
        self._spend = spend
        self._lock = asyncio.Lock()
        self.delays: dict[str, str] = {}

    def all(self) -> list[ServiceRecord]:
        """Returns the services, the oldest first."""
        return self._records.all()

    def models(self) -> Iterator[tuple[str, tuple[str, ...], Artifact]]:
        """Yields the models of all releases: namespace, scopes where they may lie, artifact."""
        for service in self._records.all():
            if service.pending is not None:
                for artifact in service.pending.artifacts.values():
                    yield service.namespace, service.pending.scopes.readable, artifact
            if service.release is not None:
                for component in service.release.components:
                    for artifact in component.models.values():
                        yield service.namespace, service.release.read_scopes, artifact

    def get(self, namespace: str, name: str) -> ServiceRecord:
        """Returns a service.

        Raises:
            NotFoundError: there is none of that name.
        """
        found = self._records.get(namespace, name)
        if found is None:
            raise NotFoundError(
                f"there is no service {name!r} in namespace {namespace}",
                where="services",
                remedy="GET /v1/services?namespace= lists those of another namespace",
            )
        return found

    async def apply(
        self,
        application: ServiceApplication,
        labels: Mapping[str, str],
        object_uid: str = "",
        *,
        may_change: bool = True,
    ) -> ServiceRecord:
        """Creates a service, or gives it another content; an equal one is left as it is.

        Args:
            application: the service.
            labels: of its namespace.
            object_uid: of its object in a cluster; a service of another object is replaced.
            may_change: whether an existing service may get another content.

        Raises:
            SpecError: everything that is wrong with it.
            ConflictError: its namespace has too many.
            ForbiddenError: it exists with another content, and may not be changed.
        """
        service = parse_service(application)
        metadata = service.metadata
        scopes = self._policies.scopes(metadata.namespace, dict(labels))
        outputs = await self._outputs.find(service)
        uploads = uploads_beside_outputs(service, application.uploads) | outputs.references
        uploads |= await stored_rows(service, self._content, scopes.private)
        plan = compile_service(service, self._catalog, uploads, stage_problems)
        artifacts = await self._stored(plan, scopes)
        document = service.model_dump(mode="json", by_alias=True, exclude_unset=True)
        async with self._lock:
            known = self._records.get(metadata.namespace, metadata.name)
            if known is not None and known.uid != object_uid:
                known = None
            is_same = known is not None and (known.document, known.runs) == (document, outputs.runs)
            if known is not None and is_same and not known.failure:
                return known
            if known is not None and not may_change:
                raise no_right_to_change(known.id)
            self._check_count(metadata.namespace, known)
            spent = self._spend.get(f"{metadata.namespace}/{metadata.name}", 0)
            uid = f"service-{metadata.name}-{secrets.token_hex(4)}" if plan.imports.steps else ""
            entry = router_entry(service, plan.graph)
            pending = PendingRelease(plan, uid, scopes, artifacts, entry)
            record = ServiceRecord(
                namespace=metadata.namespace,
                name=metadata.name,
                document=document,
                model=plan.model,
                created_s=self._clock() if known is None else known.created_s,
                generation=1 if known is None else known.generation + 1,
                pending=pending,
                release=None if known is None else known.release,
                tokens=() if known is None else known.tokens,
                uid=object_uid,
                runs=outputs.runs,
                uploads=dict(application.uploads),
                labels=dict(labels),
                paid_before_nanousd=spent if known is None else known.paid_before_nanousd,
            )
            await self._records.put(record)
        return record

    async def follow(self) -> None:
        """Applies services again whose followed outputs newer runs have published.

        One that cannot go on now is tried again the next time.
        """
        for record in self._records.all():
            if not record.runs:
                continue
            try:
                await self._follow(record)
            except FlowMeshError as error:
                self.delays[record.id] = str(public_error(error))

    async def _follow(self, record: ServiceRecord) -> None:
        application = ServiceApplication(record.document, "", record.uploads)
        followed = named_outputs(parse_service(application), followed=True)
        newest = self._outputs.newest_runs(record.namespace, followed) if followed else {}
        if any(record.runs.get(name) != uid for name, uid in newest.items()):
            await self.apply(application, record.labels, record.uid)

    async def remove(self, namespace: str, name: str) -> None:
        """Deletes a service; its replicas close when their calls have ended.

        Raises:
            NotFoundError: there is none of that name.
        """
        async with self._lock:
            await self._records.remove(self.get(namespace, name))

    async def change(
        self, namespace: str, name: str, changed: Callable[[ServiceRecord], ServiceRecord]
    ) -> None:
        """Replaces the record of a service with what ``changed`` makes of it.

        Raises:
            NotFoundError: there is none of that name.
        """
        async with self._lock:
            await self._records.put(changed(self.get(namespace, name)))

    async def resolve(self) -> None:
        """Imports the models of pending releases, and makes releases of those that are there.

        One that cannot go on now, such as one whose namespace has too many runs, is tried again.
        Releases of revoked models end.
        """
        for service in self._records.all():
            try:
                if service.pending is not None and not service.failure:
                    await self._resolve(service, service.pending)
                await self._end_if_revoked(service.namespace, service.name)
                self.delays.pop(service.id, None)
            except FlowMeshError as error:
                self.delays[service.id] = str(public_error(error))

    async def _end_if_revoked(self, namespace: str, name: str) -> None:
        """Ends the release of a service where a model of it was revoked."""
        service = self._records.get(namespace, name)
        if service is None or service.release is None:
            return
        components, scope = service.release.components, namespace_scope(namespace)
        try:
            for model in (m for c in components for m in c.models.values()):
                await self._revocations.check(model.digest, scope)
        except InvalidReferenceError as error:
            async with self._lock:
                if self._records.get(namespace, name) is service:  # else it has other content
                    failure = "" if service.pending else f"its model is served no longer: {error}"
                    ended = msgspec.structs.replace(service, release=None, failure=failure)
                    await self._records.put(ended)

    async def _resolve(self, service: ServiceRecord, pending: PendingRelease) -> None:
        models = await self._models(service, pending)
        async with self._lock:
            current = self._records.get(service.namespace, service.name)
            if models is not None and current is service:  # else it has another content since
                await self._records.put(with_models(service, pending, models))

    def _check_count(self, namespace: str, known: ServiceRecord | None) -> None:
        count = sum(s.namespace == namespace for s in self._records.all())
        if known is None and count >= SERVICES_MAX:
            raise ConflictError(
                f"namespace {namespace} has {count} services, of at most {SERVICES_MAX}",
                where="services",
                remedy="delete one",
            )

    async def _stored(self, plan: ServicePlan, scopes: ScopePlan) -> dict[str, Artifact]:
        """Returns the models that are stored already, by reference."""
        found, problems = {}, []
        for name, (source,) in plan.imports.outputs.items():
            if isinstance(source, ArtifactSource):
                try:
                    artifact = await self._content.load(source.kind, source.reference, scopes)
                    found[source.reference] = artifact
                except InvalidReferenceError as e:
                    problems.append(Problem(f"spec.inputs.{name}", f"{e.message}; {e.remedy}"))
        if problems:
            raise SpecError(problems)
        return found

    async def _models(
        self, service: ServiceRecord, pending: PendingRelease
    ) -> dict[Source, Artifact] | str | None:
        """Returns the models by source; why they cannot be had; or None while they come."""
        outputs = pending.plan.imports.outputs
        made: Mapping[str, tuple[Artifact, ...]] = {}
        if pending.uid:
            try:
                status = await self._views.status(pending.uid)
            except NotFoundError:
                await self._submit(service, pending)
                return None
            if not self._views.has_ended(pending.uid):
                return None
            if status.phase != Phase.SUCCEEDED:
                return f"run {pending.uid} that imports its models ended: {status.message}"
            made = await self._views.outputs(pending.uid)
        found: dict[Source, Artifact] = {}
        for name, (source,) in outputs.items():
            stored = isinstance(source, ArtifactSource)
            found[source] = pending.artifacts[source.reference] if stored else made[name][0]  # type: ignore[union-attr]
        return found

    async def _submit(self, service: ServiceRecord, pending: PendingRelease) -> None:
        plan = pending.plan.imports
        compiled = Compiled(service.document, plan, pending.scopes, pending.artifacts, {})
        digest = digest_bytes(f"service {service.id} {pending.uid}".encode())
        await self._admission.accept_plan(compiled, digest, uid=pending.uid)
