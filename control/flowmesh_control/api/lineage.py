"""Where artifacts come from and go to: lineage, the rows behind rows, OpenLineage events."""

import contextlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import msgspec
from aiohttp import web

from flowmesh_api.v1.lineage import Derivation, Direction, LineageWalk, ProducedArtifact
from flowmesh_control.api.authorization import AuthorizedRequest, Route, of_known, of_run
from flowmesh_control.api.responses import answer
from flowmesh_control.auth.users import NamespaceLabels
from flowmesh_control.errors import NotFoundError
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.keys import spec_key
from flowmesh_control.records.lineage_index import DERIVATIONS_MAX, LineageIndex
from flowmesh_control.records.lineage_keys import PREFIX_MIN
from flowmesh_control.records.run_artifacts import made_as
from flowmesh_control.records.run_lineage import walk_run
from flowmesh_control.records.run_pins import accepted_pins, read_pins
from flowmesh_control.records.run_records import PinsRecord
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_core.accounting.ledger_lines import StepLine
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.dataset import decode_manifest
from flowmesh_core.dataset.manifest import Manifest
from flowmesh_core.errors import (
    FlowMeshError,
    IdentityError,
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


@dataclass(frozen=True, slots=True)
class _Asked:
    """An artifact that is asked about.

    Attributes:
        name: as the user wrote it, shortened; errors say no other.
        digest: its identity, as derivations name it.
        blob: of its bytes.
        is_theirs: whether the user holds a reference to it.
    """

    name: str
    digest: Digest
    blob: Digest
    is_theirs: bool = False


class LineageHandlers:
    """The handlers of lineage."""

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
        """Walks ``lineage`` among the runs of ``views``.

        Args:
            lineage: who made what from what.
            views: runs and their ledgers.
            uploads: knows references.
            store: holds manifests and pins.
            policies: say what a namespace may read.
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
        """Every route of this class."""
        return [
            of_known("GET", "/v1/lineage/{name}", self.lineage),
            of_known("GET", "/v1/lineage/{name}/rows", self.rows),
            of_run("GET", "/v1/runs/{uid}/made", self.made),
            of_run("GET", "/v1/runs/{uid}/lineage", self.lineage_of_run),
            of_run("GET", "/v1/runs/{uid}/lineage/rows", self.rows_of_run),
            of_run("GET", "/v1/runs/{uid}/openlineage", self.openlineage),
            of_run("GET", "/v1/runs/{uid}/trace", self.trace),
        ]

    async def lineage(self, visit: AuthorizedRequest) -> web.Response:
        """``GET /v1/lineage/{name}?direction=up|down&depth=&namespace=`` → :class:`LineageWalk`.

        A digest, the beginning of one, or a reference (which ``namespace`` may read, or another
        whose runs the user may list).
        """
        asked = await self._asked(visit)
        direction, depth = _direction(visit), _depth(visit)
        walk = await self._lineage.walk(asked.digest, direction, visit.seen, depth=depth)
        if not walk.derivations and not await self._is_known(visit, asked, direction):
            raise _unknown(asked.name)
        return answer(walk)

    async def lineage_of_run(self, visit: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/lineage?name=OUTPUT|STEP.PORT&depth=`` → :class:`LineageWalk`, up.

        What this run made it from: other runs that made equal bytes are not told.
        """
        return answer(await self._walk_of_run(visit))

    async def rows(self, visit: AuthorizedRequest) -> web.Response:
        """``GET /v1/lineage/{name}/rows`` → :class:`RowOrigins` of a data set."""
        asked = await self._asked(visit)
        walk = await self._lineage.walk(asked.digest, Direction.UP, visit.seen)
        if not walk.derivations:
            raise NotFoundError(f"no run that is known made {asked.name}", where="lineage")
        return await self._row_origins(walk)

    async def rows_of_run(self, visit: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/lineage/rows?name=`` → :class:`RowOrigins` of a data set."""
        return await self._row_origins(await self._walk_of_run(visit))

    async def _row_origins(self, walk: LineageWalk) -> web.Response:
        digest = Digest(walk.digest)
        about = {d: a for made in walk.derivations for d, a in made.about.items()}
        if digest in about and about[digest].kind != "dataset":
            raise FlowMeshError(
                f"{digest[:12]} is of kind {about[digest].kind}, which has no rows",
                where="lineage",
                remedy="ask without --rows: every row of its inputs made it",
            )
        return answer(
            row_origins(digest, walk.derivations, await self._manifests(walk.derivations))
        )

    async def made(self, visit: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/made`` → list of :class:`ProducedArtifact`, as far as made."""
        lines = await self._views.lines(visit.uid)
        ends = {la.step: la for la in lines if isinstance(la, StepLine)}
        found = [
            ProducedArtifact(path, port, a.kind, a.digest, a.rows, a.size_bytes)
            for path, end in ends.items()
            for port, a in end.outputs.items()
            if a is not None
        ]
        return answer(found)

    async def openlineage(self, visit: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/openlineage`` → a ``RunEvent`` a line (specification 2-0-2)."""
        views, uid = self._views, visit.uid
        pins = await self._pins(uid)
        run = ExportInput(
            status=await views.status(uid),
            plan=pins.plan,
            artifacts=pins.artifacts,
            lines=await views.lines(uid),
            version=_version(),
        )
        body = b"".join(msgspec.json.encode(e) + b"\n" for e in run_events(run))
        return web.Response(body=body, content_type="application/x-ndjson")

    async def trace(self, visit: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/trace`` → :class:`RecordedRun`: times, sizes, money; no content."""
        views, uid = self._views, visit.uid
        pins = await self._pins(uid)
        status, lines = await views.status(uid), await views.lines(uid)
        return answer(recorded(pins.plan, pins.scopes, lines, status, self._catalog))

    async def _pins(self, uid: str) -> PinsRecord:
        pins = await accepted_pins(self._store.records, uid)
        if pins is None:
            raise NotFoundError(f"the pins of run {uid!r} are gone", where=spec_key(uid))
        return pins

    async def _manifests(self, walked: tuple[Derivation, ...]) -> dict[Digest, Manifest]:
        """The manifests of data sets that row-wise steps took and gave, where they still are."""
        found: dict[Digest, Manifest] = {}
        ledgers: dict[str, dict[Digest, Manifest]] = {}
        for made in walked:
            for digest in map(
                Digest, (*made.outputs.values(), *made.inputs.get(made.row_port, ()))
            ):
                about = made.about.get(digest)
                if digest in found or about is None or about.kind != "dataset":
                    continue
                manifest = await self._stored(Digest(about.blob or digest))
                if manifest is None:  # what no output of a run is, only the ledger describes
                    if made.uid not in ledgers:
                        ledgers[made.uid] = await self._in_ledger(made.uid)
                    manifest = ledgers[made.uid].get(digest)
                if manifest is not None:
                    found[digest] = manifest
        return found

    async def _stored(self, blob: Digest) -> Manifest | None:
        with contextlib.suppress(LostBlobError, IdentityError):
            return decode_manifest(await self._store.blobs.get(blob))
        return None

    async def _in_ledger(self, uid: str) -> dict[Digest, Manifest]:
        lines = await self._views.lines(uid)
        ends = (la for la in lines if isinstance(la, StepLine))
        given = (a for end in ends for a in end.outputs.values() if a is not None)
        return {a.digest: a.manifest for a in given if a.manifest is not None}

    async def _is_known(self, visit: AuthorizedRequest, asked: _Asked, walked: Direction) -> bool:
        """Whether runs that the user sees know it; the store is asked where it may be told."""
        other = Direction.DOWN if walked is Direction.UP else Direction.UP
        lineage = self._lineage
        if (await lineage.walk(asked.digest, other, visit.seen, depth=1)).derivations:
            return True
        if not asked.is_theirs and not await visit.sees_all():
            return False
        return not await self._store.blobs.missing([asked.blob])

    async def _walk_of_run(self, visit: AuthorizedRequest) -> LineageWalk:
        uid, name = visit.uid, visit.request.query.get("name", "")
        lines = await self._views.lines(uid)
        pins = await read_pins(self._store.records, uid, lines)
        digest, step = made_as(name, uid, pins, lines)
        lineage, depth = self._lineage, _depth(visit)
        walk = await walk_run(lineage, digest, (uid, step), visit.seen, depth=depth)
        if step and all((d.uid, d.step) != (uid, step) for d in walk.derivations):
            raise _unknown(f"{uid}/{name}")
        return walk

    async def _asked(self, visit: AuthorizedRequest) -> _Asked:
        """What is named, in the words that it was named with.

        Raises:
            NotFoundError: it names nothing, or several things.
            InvalidReferenceError: it is a reference of an older release.
        """
        named = visit.request.match_info["name"]
        if named.startswith(REFERENCE_PREFIX):
            return await self._referred(visit, named)
        if is_digest(named):
            return _Asked(named[:12], Digest(named), Digest(named))
        if len(named) < PREFIX_MIN or not _HEX.issuperset(named):
            raise NotFoundError(
                f"{named[:24]!r} is no digest and no reference",
                where="lineage",
                remedy="take one from `fmesh outputs RUN`, or name RUN/OUTPUT or RUN/STEP.PORT",
            )
        return await self._beginning(visit, named)

    async def _referred(self, visit: AuthorizedRequest, text: str) -> _Asked:
        """What a reference names: one that the user may not read is told as if nothing had it."""
        named, name = read_reference(text), f"{text[:24]}…"
        if not await visit.sees_all():
            try:
                self._uploads.verified(text, *await self._scopes(visit))
            except InvalidReferenceError:
                return _Asked(name, named.digest, named.digest)
        identity = await self._uploads.identity_of(named)
        return _Asked(name, identity, named.digest, is_theirs=True)

    async def _scopes(self, visit: AuthorizedRequest) -> list[ScopePlan]:
        """Those of the namespaces whose runs the user may list."""
        namespaces = {run.namespace for run in self._views.summaries()}
        if visit.request.query.get("namespace"):
            namespaces.add(visit.request.query["namespace"])
        found = []
        for namespace in sorted(await visit.seen(namespaces)):
            with contextlib.suppress(SpecError):  # two policies contradict each other there
                labels = dict(self._labels(namespace))
                found.append(self._policies.scopes(namespace, labels))
        return found

    async def _beginning(self, visit: AuthorizedRequest, text: str) -> _Asked:
        found = await self._lineage.named(text, visit.seen)
        if len(found) == 1:
            return _Asked(found[0][:12], found[0], found[0])
        several = "; ".join(d[:24] for d in found[:4])
        raise NotFoundError(
            f"{len(found)} known digests begin with {text!r}" if found else f"no {text!r} is known",
            where="lineage",
            remedy=f"one of {several}" if found else "`fmesh outputs RUN --json` shows digests",
        )


def _direction(visit: AuthorizedRequest) -> Direction:
    text = visit.request.query.get("direction", "up")
    if text not in set(Direction):
        raise FlowMeshError(f"no direction {text!r}", where="?direction=", remedy="use up or down")
    return Direction(text)


def _depth(visit: AuthorizedRequest) -> int:
    depth = visit.request.query.get("depth", str(DERIVATIONS_MAX))
    if not depth.isdecimal() or not int(depth):
        raise FlowMeshError(f"no depth {depth!r}", where="?depth=", remedy="use 1 or more")
    return int(depth)


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(
        f"nothing is known of {name}",
        where="lineage",
        remedy="a run is known once it has ended; take a digest from `fmesh outputs RUN`",
    )


def _version() -> str:
    try:
        return version("flowmesh-fabric")
    except PackageNotFoundError:
        return "0"
