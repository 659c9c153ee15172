"""HTTP handler of revocation: resolves what is named, and answers with a signed report."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_api.v1.lineage import Direction
from flowmesh_api.v1.revocation import RevokeBody
from flowmesh_control.api.authorization import AuthorizedRequest, Route, namespace_route
from flowmesh_control.api.request_body import read_body
from flowmesh_control.api.request_recorder import Logging
from flowmesh_control.api.responses import flag, json_response
from flowmesh_control.auth.users import NamespaceLabels, Resource, Verb
from flowmesh_control.errors import ForbiddenError, NotFoundError
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.run_artifacts import made_as
from flowmesh_control.records.run_pins import read_pins
from flowmesh_control.revocation.derivations import Content
from flowmesh_control.revocation.service import RevocationService
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_core.accounting.ledger_lines import StepLine
from flowmesh_core.identity import is_digest
from flowmesh_core.sharing import REFERENCE_PREFIX, ScopePlan
from flowmesh_core.units import Digest
from flowmesh_store.ports import RecordStore

_decoder = msgspec.json.Decoder(RevokeBody)


@dataclass(frozen=True, slots=True)
class _Named:
    """What the user named."""

    identity: Digest
    kind: str
    blob: Digest


class RevocationHandlers:
    """The handler of ``/v1/revoke``."""

    def __init__(
        self,
        *,
        revocation: RevocationService,
        uploads: UploadStore,
        views: RunViews,
        lineage: LineageIndex,
        records: RecordStore,
        policies: CachePolicyStore,
        labels: NamespaceLabels,
    ) -> None:
        """Keeps the services that the handler uses.

        Args:
            revocation: revokes.
            uploads: verifies references.
            views: runs and their ledgers.
            lineage: knows artifacts by their identity.
            records: has the pins of runs.
            policies: give the scopes of a namespace.
            labels: of namespaces.
        """
        self._revocation = revocation
        self._uploads = uploads
        self._views = views
        self._lineage = lineage
        self._records = records
        self._policies = policies
        self._labels = labels

    def routes(self) -> list[Route]:
        """Returns the route of this class."""
        return [
            namespace_route(
                operations.REVOKE_CONTENT, self.revoke, Verb.DELETE, logging=Logging.BEFORE
            )
        ]

    async def revoke(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/revoke?namespace=&dry_run=1`` :class:`RevokeBody` → :class:`RevocationAnswer`.

        With ``?all_namespaces=1`` an administrator revokes in all namespaces.
        """
        body, dry_run = await read_body(call.request, _decoder), flag(call.request, "dry_run")
        namespace = "" if flag(call.request, "all_namespaces") else call.namespace
        if not namespace and not await call.may_purge():
            raise _not_in_all(call)
        plan = self._policies.scopes(call.namespace, dict(self._labels(call.namespace)))
        named = await self._named(body.target, namespace, plan)
        call.note(named.identity, dry_run=str(dry_run).lower(), reach=namespace or "all namespaces")
        scopes = tuple(dict.fromkeys((plan.private, *plan.readable)))
        if not namespace:
            scopes = tuple(dict.fromkeys((*scopes, *await self._revocation.every_scope())))
        content = Content(named.identity, named.kind, named.blob, scopes)
        carry_out = self._revocation.preview if dry_run else self._revocation.revoke
        return json_response(await carry_out(content, namespace))

    async def _named(self, target: str, namespace: str, plan: ScopePlan) -> _Named:
        """Resolves a target; an empty namespace stands for all.

        Raises:
            NotFoundError: there is none, or not in this namespace.
            InvalidReferenceError: the reference is not valid.
        """
        if target.startswith(REFERENCE_PREFIX):
            named = self._uploads.verified(target, plan)
            identity = await self._uploads.identity_of(named, plan)
            return _Named(identity, named.kind, named.blob)
        if is_digest(target):
            return await self._known(Digest(target), namespace)
        run, sign, name = target.rpartition("/")
        if sign:
            return await self._made(run, name, namespace)
        raise _unknown(target, namespace)

    async def _known(self, identity: Digest, namespace: str) -> _Named:
        async def seen(namespaces: Iterable[str]) -> frozenset[str]:
            return frozenset(n for n in namespaces if namespace in ("", n))

        for direction in Direction:
            walk = await self._lineage.walk(identity, direction, seen, depth=1)
            for made in walk.derivations:
                about = made.about.get(identity)
                if about is not None:
                    return _Named(identity, about.kind, Digest(about.blob or identity))
        raise _unknown(identity, namespace)

    async def _made(self, run: str, name: str, namespace: str) -> _Named:
        for uid, of_namespace in await self._views.runs_named(run):
            if namespace not in ("", of_namespace):
                continue
            lines = await self._views.lines(uid)
            pins = await read_pins(self._records, uid, lines)
            identity, _ = made_as(name, uid, pins, lines)
            ends = (line for line in lines if isinstance(line, StepLine))
            made = [a for end in ends for a in end.outputs.values() if a is not None]
            for artifact in (*made, *pins.artifacts.values()):
                if artifact.digest == identity:
                    return _Named(identity, artifact.kind, artifact.blob)
        raise _unknown(f"{run}/{name}", namespace)


def _unknown(target: str, namespace: str) -> NotFoundError:
    reach = f"in namespace {namespace}" if namespace else "in any namespace"
    return NotFoundError(
        f"no known run {reach} used or made {target[:80]!r}",
        where="target",
        remedy="search another namespace with -n NAMESPACE (an administrator all of them with "
        "--all-namespaces); name a digest, a reference, or RUN/OUTPUT: `fmesh outputs RUN` shows "
        "references",
    )


def _not_in_all(call: AuthorizedRequest) -> ForbiddenError:
    return ForbiddenError(
        f"user {call.user.name!r} may not delete {Resource.POLICIES}, which a revocation in all "
        "namespaces needs",
        where="?all_namespaces=",
        remedy="name one namespace with ?namespace=, or ask an administrator",
    )
