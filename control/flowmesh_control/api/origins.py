"""Where artifacts come from and go to: lineage, the rows behind rows, OpenLineage events."""

import contextlib
from importlib.metadata import PackageNotFoundError, version

import msgspec
from aiohttp import web

from flowmesh_control.api.answers import answer
from flowmesh_control.api.doors import Route, Visit, of_known, of_run
from flowmesh_control.assembly import Parts
from flowmesh_control.failures import NotFoundError
from flowmesh_control.lineage import DERIVATIONS_MAX, Direction, Made
from flowmesh_control.lineage_keys import PREFIX_MIN
from flowmesh_control.run_keys import spec_key
from flowmesh_control.run_pins import accepted_pins
from flowmesh_control.run_records import PinsRecord
from flowmesh_core.dataset import decode_manifest
from flowmesh_core.dataset.manifest import Manifest
from flowmesh_core.errors import FlowMeshError, IdentityError, LostBlobError
from flowmesh_core.identity import is_digest
from flowmesh_core.lineage import Derivation, Exported, run_events
from flowmesh_core.lineage.rows import row_origins
from flowmesh_core.run.ledger import StepLine
from flowmesh_core.sharing import REFERENCE_PREFIX
from flowmesh_core.trace import recorded
from flowmesh_core.units import Digest

_HEX = frozenset("0123456789abcdef")


class Origins:
    """The handlers of lineage."""

    def __init__(self, parts: Parts) -> None:
        """Takes the parts that know what was made."""
        self._parts = parts

    def routes(self) -> list[Route]:
        """Every route of this class."""
        return [
            of_known("GET", "/v1/lineage/{name}", self.lineage),
            of_known("GET", "/v1/lineage/{name}/rows", self.rows),
            of_run("GET", "/v1/runs/{uid}/made", self.made),
            of_run("GET", "/v1/runs/{uid}/openlineage", self.openlineage),
            of_run("GET", "/v1/runs/{uid}/trace", self.trace),
        ]

    async def lineage(self, visit: Visit) -> web.Response:
        """``GET /v1/lineage/{name}?direction=up|down&depth=`` → :class:`Walk`.

        A digest, the beginning of one, or a reference.
        """
        digest = await self._identity(visit)
        query = visit.request.query
        text = query.get("direction", "up")
        if text not in set(Direction):
            raise FlowMeshError(
                f"no direction {text!r}", where="?direction=", remedy="use up or down"
            )
        depth = query.get("depth", str(DERIVATIONS_MAX))
        if not depth.isdecimal() or not int(depth):
            raise FlowMeshError(f"no depth {depth!r}", where="?depth=", remedy="use 1 or more")
        direction = Direction(text)
        walk = await self._parts.lineage.walk(digest, direction, visit.seen, depth=int(depth))
        if not walk.derivations and not await self._is_known(visit, digest, direction):
            raise NotFoundError(
                f"nothing is known of {digest[:12]}",
                where="lineage",
                remedy="a run is known once it has ended; take a digest from `fmesh outputs RUN`",
            )
        return answer(walk)

    async def rows(self, visit: Visit) -> web.Response:
        """``GET /v1/lineage/{name}/rows`` → :class:`RowOrigins` of a data set."""
        digest = await self._identity(visit)
        walk = await self._parts.lineage.walk(digest, Direction.UP, visit.seen)
        about = {d: a for made in walk.derivations for d, a in made.about.items()}
        if not walk.derivations:
            raise NotFoundError(f"no run that is known made {digest[:12]}", where="lineage")
        if digest in about and about[digest].kind != "dataset":
            raise FlowMeshError(
                f"{digest[:12]} is of kind {about[digest].kind}, which has no rows",
                where="lineage",
                remedy="ask without --rows: every row of its inputs made it",
            )
        return answer(
            row_origins(digest, walk.derivations, await self._manifests(walk.derivations))
        )

    async def made(self, visit: Visit) -> web.Response:
        """``GET /v1/runs/{uid}/made`` → a list of :class:`Made`: what its steps gave so far."""
        lines = await self._parts.views.lines(visit.uid)
        ends = {la.step: la for la in lines if isinstance(la, StepLine)}
        found = [
            Made(path, port, a.kind, a.digest, a.rows, a.size_bytes)
            for path, end in ends.items()
            for port, a in end.outputs.items()
            if a is not None
        ]
        return answer(found)

    async def openlineage(self, visit: Visit) -> web.Response:
        """``GET /v1/runs/{uid}/openlineage`` → a ``RunEvent`` a line (specification 2-0-2)."""
        views, uid = self._parts.views, visit.uid
        pins = await self._pins(uid)
        run = Exported(
            status=await views.status(uid),
            plan=pins.plan,
            artifacts=pins.artifacts,
            lines=await views.lines(uid),
            version=_version(),
        )
        body = b"".join(msgspec.json.encode(e) + b"\n" for e in run_events(run))
        return web.Response(body=body, content_type="application/x-ndjson")

    async def trace(self, visit: Visit) -> web.Response:
        """``GET /v1/runs/{uid}/trace`` → :class:`RecordedRun`: times, sizes, money; no content."""
        views, uid = self._parts.views, visit.uid
        pins = await self._pins(uid)
        status, lines = await views.status(uid), await views.lines(uid)
        catalog = self._parts.given.catalog
        return answer(recorded(pins.plan, pins.scopes, lines, status, catalog))

    async def _pins(self, uid: str) -> PinsRecord:
        pins = await accepted_pins(self._parts.given.store.records, uid)
        if pins is None:
            raise NotFoundError(f"the pins of run {uid!r} are gone", where=spec_key(uid))
        return pins

    async def _manifests(self, walked: tuple[Derivation, ...]) -> dict[Digest, Manifest]:
        """The manifests of data sets that row-wise steps took and gave, where they still are."""
        found: dict[Digest, Manifest] = {}
        ledgers: dict[str, dict[Digest, Manifest]] = {}
        for made in walked:
            for digest in (*made.outputs.values(), *made.inputs.get(made.row_port, ())):
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
            return decode_manifest(await self._parts.given.store.blobs.get(blob))
        return None

    async def _in_ledger(self, uid: str) -> dict[Digest, Manifest]:
        lines = await self._parts.views.lines(uid)
        ends = (la for la in lines if isinstance(la, StepLine))
        given = (a for end in ends for a in end.outputs.values() if a is not None)
        return {a.digest: a.manifest for a in given if a.manifest is not None}

    async def _is_known(self, visit: Visit, digest: Digest, walked: Direction) -> bool:
        """Whether it is known by runs that the user sees; who sees all may ask the store."""
        other = Direction.DOWN if walked is Direction.UP else Direction.UP
        if (await self._parts.lineage.walk(digest, other, visit.seen, depth=1)).derivations:
            return True
        if not await visit.sees_all():
            return False
        return not await self._parts.given.store.blobs.missing([digest])

    async def _identity(self, visit: Visit) -> Digest:
        """The identity digest of what is named: of a dataset's rows, not of its manifest.

        Raises:
            NotFoundError: it names nothing, or several things.
        """
        named = visit.request.match_info["name"]
        text = named.removeprefix(REFERENCE_PREFIX).partition(".")[0]
        if is_digest(text):
            return await self._parts.content.identity_of(Digest(text))
        if len(text) < PREFIX_MIN or not _HEX.issuperset(text):
            raise NotFoundError(
                f"{named[:24]!r} is no digest and no reference",
                where="lineage",
                remedy="take one from `fmesh outputs RUN`, or name RUN/OUTPUT or RUN/STEP.PORT",
            )
        found = await self._parts.lineage.named(text, visit.seen)
        if len(found) == 1:
            return found[0]
        several = "; ".join(d[:24] for d in found[:4])
        raise NotFoundError(
            f"{len(found)} known digests begin with {text!r}" if found else f"no {text!r} is known",
            where="lineage",
            remedy=f"one of {several}" if found else "`fmesh outputs RUN --json` shows digests",
        )


def _version() -> str:
    try:
        return version("flowmesh-fabric")
    except PackageNotFoundError:
        return "0"
