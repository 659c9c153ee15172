"""HTTP handlers of the fabric: workers, engines, accounts, policies and the cache."""

import msgspec
from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_api.v1.fabric import CachePolicy, DrainAccepted, PurgeBody, PurgeReport
from flowmesh_control.api.authorization import AuthorizedRequest, Route, fabric_route, for_any_user
from flowmesh_control.api.ports import WorkerDrain
from flowmesh_control.api.request_body import read_body
from flowmesh_control.api.request_recorder import Logging
from flowmesh_control.api.responses import flag, json_response
from flowmesh_control.auth.users import Resource, Verb
from flowmesh_control.cache.admin import CacheAdmin
from flowmesh_control.cache.collection import StoreCollection
from flowmesh_control.errors import ConflictError, NotFoundError
from flowmesh_control.queries.fleet import FleetQueries
from flowmesh_control.records.cache_policies import CachePolicyStore

_purge_decoder = msgspec.json.Decoder(PurgeBody)
_policies_decoder = msgspec.json.Decoder(list[CachePolicy])


class FabricHandlers:
    """Handlers of everything that belongs to no single run."""

    def __init__(
        self,
        *,
        queries: FleetQueries,
        drain: WorkerDrain,
        policies: CachePolicyStore,
        cache: CacheAdmin,
        collection: StoreCollection,
        objects: bool,
    ) -> None:
        """Keeps the services that the handlers use.

        Args:
            queries: answers about workers, engines and accounts.
            drain: drains workers.
            policies: the cache policies in force.
            cache: counts and purges.
            collection: deletes what nothing needs.
            objects: whether policies are objects of the cluster; the API then changes none.
        """
        self._queries = queries
        self._drain = drain
        self._policies = policies
        self._cache = cache
        self._collection = collection
        self._objects = objects

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        pools, policies = Resource.POOLS, Resource.POLICIES
        return [
            fabric_route(operations.LIST_WORKERS, self.workers, Verb.LIST, pools),
            fabric_route(operations.DRAIN_WORKER, self.drain, Verb.UPDATE, pools),
            for_any_user(operations.LIST_ENGINES, self.engines),
            fabric_route(operations.GET_FABRIC, self.fabric, Verb.LIST, pools),
            fabric_route(operations.LIST_POLICIES, self.policies, Verb.LIST, policies),
            fabric_route(
                operations.SET_POLICIES,
                self.put_policies,
                Verb.UPDATE,
                policies,
                logging=Logging.BEFORE,
            ),
            fabric_route(operations.GET_CACHE_STATS, self.cache_stats, Verb.LIST, policies),
            fabric_route(
                operations.COLLECT_CACHE,
                self.collect,
                Verb.UPDATE,
                policies,
                logging=Logging.FREES_SPACE,
            ),
            fabric_route(
                operations.PURGE_CACHE,
                self.purge,
                Verb.DELETE,
                policies,
                logging=Logging.BEFORE,
            ),
        ]

    async def workers(self, _: AuthorizedRequest) -> web.Response:
        """``GET /v1/workers`` → a list of :class:`WorkerStatus`."""
        return json_response(self._queries.worker_statuses())

    async def drain(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/workers/{name}/drain`` → :class:`DrainAccepted`."""
        name = call.request.match_info["name"]
        if not self._drain.drain(name):
            raise NotFoundError(f"no worker {name!r} is connected", where="workers")
        return json_response(DrainAccepted())

    async def engines(self, _: AuthorizedRequest) -> web.Response:
        """``GET /v1/engines`` → a list of :class:`OfferedEngine`."""
        return json_response(self._queries.offered_engines())

    async def fabric(self, _: AuthorizedRequest) -> web.Response:
        """``GET /v1/fabric`` → :class:`FabricStatus`."""
        return json_response(self._queries.fabric_status())

    async def policies(self, _: AuthorizedRequest) -> web.Response:
        """``GET /v1/policies`` → a list of :class:`CachePolicy`."""
        return json_response(self._policies.all())

    async def put_policies(self, call: AuthorizedRequest) -> web.Response:
        """``PUT /v1/policies?only=1`` a list of :class:`CachePolicy` → all policies.

        With ``only`` all others are removed. Runs keep the scopes that they were pinned to. If two
        policies contradict each other, none is set.
        """
        request = call.request
        if self._objects:
            raise ConflictError(
                "the policies of this control plane are FlowMeshCachePolicy objects",
                where="policies",
                remedy="`kubectl apply -f FILE` sets one, `kubectl delete fmcp NAME` removes one",
            )
        wanted = await read_body(request, _policies_decoder)
        policies, only = self._policies, flag(request, "only")
        call.note(only=str(only).lower(), policies=",".join(p.name for p in wanted))
        policies.check(wanted, only=only)
        if only:
            await policies.replace_all(wanted)
        else:
            for policy in wanted:
                await policies.put(policy)
        return json_response(policies.all())

    async def cache_stats(self, _: AuthorizedRequest) -> web.Response:
        """``GET /v1/cache/stats`` → :class:`CacheStats`."""
        return json_response(await self._cache.stats())

    async def collect(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/cache/gc?dry_run=1`` → :class:`CollectionReport`."""
        dry_run = flag(call.request, "dry_run")
        call.note(dry_run=str(dry_run).lower())
        return json_response(await self._collection.collect(dry_run=dry_run))

    async def purge(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/cache/purge`` :class:`PurgeBody` → :class:`PurgeReport`."""
        body = await read_body(call.request, _purge_decoder)
        call.note(body.scope, engine=body.engine)
        deleted = await self._cache.purge(body.scope, engine=body.engine)
        return json_response(PurgeReport(deleted))
