"""HTTP handlers of lineage: derivations of artifacts and rows, OpenLineage events, traces."""

import contextlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import msgspec
from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_api.v1.lineage import Derivation, Direction, LineageWalk, ProducedArtifact
from flowmesh_control.api.authorization import AuthorizedRequest, Route, for_any_user, run_route
from flowmesh_control.api.responses import json_response
from flowmesh_control.auth.users import NamespaceLabels
from flowmesh_control.errors import NotFoundError
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.lineage_index import DERIVATIONS_MAX, LineageIndex
from flowmesh_control.records.lineage_keys import PREFIX_MIN
from flowmesh_control.records.run_artifacts import made_as, made_by_steps
from flowmesh_control.records.run_lineage import walk_run
from flowmesh_control.records.run_pins import read_pins, require_pins
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_core.accounting.ledger_lines import StepLine
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.dataset import decode_manifest_of
from flowmesh_core.dataset.manifest import Manifest
from flowmesh_core.errors import (
    FlowMeshError,
    InvalidReferenceError,
    LostBlobError,
    SpecError,
)
from flowmesh_core.identity import is_digest
from flowmesh_core.lineage import ExportInput, run_events
from flowmesh_core.lineage.rows import row_origins
from flowmesh_core.recording import recorded
from flowmesh_core.sharing import REFERENCE_PREFIX, ScopePlan, read_reference
from flowmesh_core.units import Digest
from flowmesh_store.store import Store

_HEX = frozenset("0123456789abcdef")
_DEPTH_DIGITS = 9
_DIGEST_REMEDY = (
    "take the digest that `fmesh outputs RUN --json` shows as `digest` (the one after `cas:` in a"
    " reference is that of the bytes), or name the whole reference or RUN/OUTPUT"
)


@dataclass(frozen=True, slots=True)
class _Query:
    """The artifact that a request asks about.

    Attributes:
        name: as the user wrote it, shortened; the only name that errors show.
        digest: its identity, as derivations name it.
        blob: the digest of its bytes.
        has_reference: whether the user has a reference to it.
    """

    name: str
    digest: Digest
    blob: Digest
    has_reference: bool = False


class LineageHandlers:
    """Handlers of ``/v1/lineage`` and of a run's lineage."""

    def __init__(
        self,
        *,
        lineage: LineageIndex,
        views: RunViews,
        uploads: UploadStore,
        store: Store,
        policies: CachePolicyStore,
        catalog: Catalog,
        labels: NamespaceLabels,
    ) -> None:
        """Keeps the services that the handlers use.

        Args:
            lineage: the index of derivations.
            views: runs and their ledgers.
            uploads: verifies references.
            store: has manifests and pins.
            policies: give the scopes that a namespace may read.
            catalog: the engine contracts, for recorded runs.
            labels: of namespaces.
        """
        self._lineage = lineage
        self._views = views
        self._uploads = uploads
        self._store = store
        self._policies = policies
        self._catalog = catalog
        self._labels = labels

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        return [
            for_any_user(operations.GET_LINEAGE, self.lineage),
            for_any_user(operations.GET_ROW_ORIGINS, self.rows),
            run_route(operations.LIST_PRODUCED, self.made),
            run_route(operations.GET_RUN_LINEAGE, self.lineage_of_run),
            run_route(operations.GET_RUN_ROW_ORIGINS, self.rows_of_run),
            run_route(operations.EXPORT_OPENLINEAGE, self.openlineage),
            run_route(operations.GET_TRACE, self.trace),
        ]

    async def lineage(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/lineage/{name}?direction=up|down&depth=&namespace=`` → :class:`LineageWalk`.

        ``name`` is a digest, the beginning of one, or a reference that is valid in ``namespace`` or
        in another namespace whose runs the user may list.
        """
        query = await self._query(call)
        direction, depth = _direction(call), _depth(call)
        walk = await self._lineage.walk(query.digest, direction, call.listable, depth=depth)
        if not walk.derivations and not await self._is_known(call, query, direction):
            raise _unknown(query.name)
        return json_response(walk)

    async def lineage_of_run(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/lineage?name=OUTPUT|STEP.PORT&depth=`` → :class:`LineageWalk`, up.

        Shows what this run made it from, without other runs that made equal bytes.
        """
        return json_response(await self._walk_of_run(call))

    async def rows(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/lineage/{name}/rows`` → :class:`RowOrigins` of a data set."""
        query = await self._query(call)
        walk = await self._lineage.walk(query.digest, Direction.UP, call.listable)
        if not walk.derivations:
            raise NotFoundError(f"no known run produced {query.name}", where="lineage")
        return await self._row_origins(walk)

    async def rows_of_run(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/lineage/rows?name=`` → :class:`RowOrigins` of a data set."""
        return await self._row_origins(await self._walk_of_run(call))

    async def _row_origins(self, walk: LineageWalk) -> web.Response:
        digest = Digest(walk.digest)
        about = {d: a for made in walk.derivations for d, a in made.about.items()}
        if digest in about and about[digest].kind != "dataset":
            raise FlowMeshError(
                f"{digest[:12]} is of kind {about[digest].kind}, which has no rows",
                where="lineage",
                remedy="leave out --rows: it was made from every row of its inputs",
            )
        return json_response(
            row_origins(digest, walk.derivations, await self._manifests(walk.derivations))
        )

    async def made(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/made`` → a list of :class:`ProducedArtifact`, those made so far."""
        found = [
            ProducedArtifact(path, port, a.kind, a.digest, a.rows, a.size_bytes)
            for path, ports in made_by_steps(await self._views.lines(call.uid)).items()
            for port, a in ports.items()
        ]
        return json_response(found)

    async def openlineage(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/openlineage`` → a ``RunEvent`` a line (specification 2-0-2)."""
        views, uid = self._views, call.uid
        pins = await require_pins(self._store.records, uid)
        run = ExportInput(
            status=await views.status(uid),
            plan=pins.plan,
            artifacts=pins.artifacts,
            lines=await views.lines(uid),
            version=_version(),
        )
        body = b"".join(msgspec.json.encode(e) + b"\n" for e in run_events(run))
        return web.Response(body=body, content_type="application/x-ndjson")

    async def trace(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/trace`` → :class:`RecordedRun`: times, sizes, money; no content."""
        views, uid = self._views, call.uid
        pins = await require_pins(self._store.records, uid)
        status, lines = await views.status(uid), await views.lines(uid)
        return json_response(recorded(pins.plan, pins.scopes, lines, status, self._catalog))

    async def _manifests(self, walked: tuple[Derivation, ...]) -> dict[Digest, Manifest]:
        """Returns the stored manifests of the data sets that row-wise steps read and wrote."""
        found: dict[Digest, Manifest] = {}
        ledgers: dict[str, dict[Digest, Manifest]] = {}
        for made in walked:
            for digest in map(
                Digest, (*made.outputs.values(), *made.inputs.get(made.row_port, ()))
            ):
                about = made.about.get(digest)
                if digest in found or about is None or about.kind != "dataset":
                    continue
                blob = Digest(about.blob or digest)
                manifest = await self._stored(digest, blob, made.namespace)
                if manifest is None:  # only the ledger describes what is not a run's output
                    if made.uid not in ledgers:
                        ledgers[made.uid] = await self._in_ledger(made.uid)
                    manifest = ledgers[made.uid].get(digest)
                if manifest is not None:
                    found[digest] = manifest
        return found

    async def _stored(self, digest: Digest, blob: Digest, namespace: str) -> Manifest | None:
        """Returns a manifest that a namespace may read, or None."""
        with contextlib.suppress(LostBlobError, SpecError):
            scopes = self._policies.scopes(namespace, dict(self._labels(namespace)))
            blobs = self._store.view(write=scopes.private, read=scopes.readable)
            return decode_manifest_of(await blobs.get(blob), digest, blob)
        return None

    async def _in_ledger(self, uid: str) -> dict[Digest, Manifest]:
        lines = await self._views.lines(uid)
        ends = (la for la in lines if isinstance(la, StepLine))
        given = (a for end in ends for a in end.outputs.values() if a is not None)
        return {a.digest: a.manifest for a in given if a.manifest is not None}

    async def _is_known(self, call: AuthorizedRequest, query: _Query, walked: Direction) -> bool:
        """Whether a run that the user may list has it, or a scope that the user may read.

        The store is asked only for a user with a reference or all rights: for others the answer
        would reveal what other tenants have stored.
        """
        other = Direction.DOWN if walked is Direction.UP else Direction.UP
        lineage = self._lineage
        if (await lineage.walk(query.digest, other, call.listable, depth=1)).derivations:
            return True
        if not query.has_reference and not await call.sees_all():
            return False
        plans = await self._scopes(call)
        read = tuple(dict.fromkeys(scope for plan in plans for scope in plan.readable))
        return bool(read) and not await self._store.view(write=read[0], read=read).missing(
            [query.blob]
        )

    async def _walk_of_run(self, call: AuthorizedRequest) -> LineageWalk:
        uid, name = call.uid, call.request.query.get("name", "")
        lines = await self._views.lines(uid)
        pins = await read_pins(self._store.records, uid, lines)
        digest, step = made_as(name, uid, pins, lines)
        lineage, depth = self._lineage, _depth(call)
        walk = await walk_run(lineage, digest, (uid, step), call.listable, depth=depth)
        if step and all((d.uid, d.step) != (uid, step) for d in walk.derivations):
            raise _unknown(f"{uid}/{name}")
        return walk

    async def _query(self, call: AuthorizedRequest) -> _Query:
        """Resolves the name in the path to an artifact.

        Raises:
            NotFoundError: it matches no artifact, or several.
            InvalidReferenceError: it is malformed.
        """
        named = call.request.match_info["name"]
        if named.startswith(REFERENCE_PREFIX):
            return await self._query_of_reference(call, named)
        if is_digest(named):
            return _Query(named[:12], Digest(named), Digest(named))
        if len(named) < PREFIX_MIN or not _HEX.issuperset(named):
            raise NotFoundError(
                f"{named[:24]!r} is neither a digest nor a reference",
                where="lineage",
                remedy="take one from `fmesh outputs RUN`, or name RUN/OUTPUT or RUN/STEP.PORT",
            )
        return await self._query_of_prefix(call, named)

    async def _query_of_reference(self, call: AuthorizedRequest, text: str) -> _Query:
        """Resolves a reference; one that the user may not read is answered as unknown."""
        named, name = read_reference(text), f"{text[:24]}…"
        plans = await self._scopes(call)
        if not await call.sees_all():
            try:
                self._uploads.verified(text, *plans)
            except InvalidReferenceError:
                return _Query(name, named.blob, named.blob)
        identity = await self._uploads.identity_of(named, *plans)
        return _Query(name, identity, named.blob, has_reference=True)

    async def _scopes(self, call: AuthorizedRequest) -> list[ScopePlan]:
        """Returns the scopes of each namespace whose runs the user may list."""
        namespaces = {run.namespace for run in self._views.summaries()}
        if call.request.query.get("namespace"):
            namespaces.add(call.request.query["namespace"])
        found = []
        for namespace in sorted(await call.listable(namespaces)):
            with contextlib.suppress(SpecError):  # two policies contradict each other there
                labels = dict(self._labels(namespace))
                found.append(self._policies.scopes(namespace, labels))
        return found

    async def _query_of_prefix(self, call: AuthorizedRequest, text: str) -> _Query:
        found = await self._lineage.named(text, call.listable)
        if len(found) == 1:
            return _Query(found[0][:12], found[0], found[0])
        several = "; ".join(d[:24] for d in found[:4])
        raise NotFoundError(
            f"{len(found) or 'no'} known digests begin with {text!r}",
            where="lineage",
            remedy=f"give one of {several}" if found else _DIGEST_REMEDY,
        )


def _direction(call: AuthorizedRequest) -> Direction:
    text = call.request.query.get("direction", "up")
    if text not in set(Direction):
        raise FlowMeshError(
            f"{text!r} is not a direction: expected up or down", where="?direction="
        )
    return Direction(text)


def _depth(call: AuthorizedRequest) -> int:
    depth = call.request.query.get("depth", str(DERIVATIONS_MAX))
    if not depth.isdecimal() or len(depth) > _DEPTH_DIGITS or not int(depth):
        raise FlowMeshError(
            f"{depth!r} is not a depth: expected a whole number of 1 or more", where="?depth="
        )
    return int(depth)


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(
        f"no known run produced or used {name}",
        where="lineage",
        remedy=f"lineage is recorded when a run ends; {_DIGEST_REMEDY}",
    )


def _version() -> str:
    try:
        return version("flowmesh-fabric")
    except PackageNotFoundError:
        return "0"
