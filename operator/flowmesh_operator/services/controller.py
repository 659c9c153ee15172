"""Reconciles FlowMeshService objects with the control plane's services.

Level-triggered: an object whose generation was not applied is applied, a service without an object
is deleted, and once a second each status is written where it has changed.
"""

import asyncio
import logging

from flowmesh_api.v1.services import ServiceApplication
from flowmesh_control.errors import ConflictError, NotFoundError
from flowmesh_control.records.epochs import SupersededError
from flowmesh_control.records.service_records import ServiceRecord
from flowmesh_core.errors import FlowMeshError, InvariantError, SpecError, StoreError
from flowmesh_core.spec.fields import API_VERSION
from flowmesh_core.spec.service import FlowMeshService
from flowmesh_operator.kube.client import ApiError, KubeClient
from flowmesh_operator.kube.conditions import ConditionUpdate, StatusContext
from flowmesh_operator.kube.informer_cache import InformerCache, Object
from flowmesh_operator.kube.kinds import SERVICES
from flowmesh_operator.kube.lease import LeadershipLostError
from flowmesh_operator.kube.object_status import ObjectStatusWriter, shown
from flowmesh_operator.kube.work_queue import WorkQueue
from flowmesh_operator.ports import Epoch, ServiceStatuses, ServiceStore
from flowmesh_operator.services.conditions import ServiceCondition, ServiceReason
from flowmesh_operator.services.status import status_of
from flowmesh_operator.tasks import first
from flowmesh_operator.workflows.submission import words

log = logging.getLogger("flowmesh.operator")

EVERY_S = 1.0
RELIST_S = 60.0
"""A watch that restarts does not deliver deletions that it missed; a full list finds them."""


class ServiceController:
    """Applies and deletes services, and writes the statuses of their objects."""

    def __init__(
        self,
        api: KubeClient,
        mirror: InformerCache,
        *,
        services: ServiceStore,
        statuses: ServiceStatuses,
        epoch: Epoch,
        router_url: str,
    ) -> None:
        """Starts with nothing applied.

        Args:
            api: the leader's client.
            mirror: the informer cache, with all services.
            services: the control plane's.
            statuses: show them.
            epoch: the leader's epoch.
            router_url: the base URL of the routers for clients.
        """
        self._api = api
        self._mirror = mirror
        self._services = services
        self._statuses = statuses
        self._epoch = epoch
        self._router_url = router_url
        self._queue = WorkQueue()
        self._writer = ObjectStatusWriter(api, mirror, "services")
        self._applied: dict[str, int] = {}
        self._problems: dict[str, ConditionUpdate] = {}

    async def run(self) -> None:
        """Reconciles until cancelled.

        Raises:
            LeadershipLostError: the fence stopped a write.
        """
        await first(
            self._queue.feed(self._mirror.changes("services")),
            self._queue.serve(self.reconcile),
            self._repeat(),
            self._relist(),
        )

    async def reconcile(self, uid: str) -> None:
        """Does what one object needs; what fails is tried again a second later."""
        obj = self._mirror.services.get(uid)
        try:
            if obj is None or obj["metadata"].get("deletionTimestamp"):
                self._applied.pop(uid, None)
                self._problems.pop(uid, None)
                await self._remove_absent()
                return
            await self._apply(uid, obj)
            await self._writer.write(obj, self._status(uid, obj))
        except (LeadershipLostError, SupersededError, InvariantError):
            raise
        except FlowMeshError as e:
            log.warning("service %s is reconciled again: %s", uid, e)
        except Exception:  # a bug that one service triggers must not stop the others
            log.exception("service %s", uid)

    async def _apply(self, uid: str, obj: Object) -> None:
        meta = obj["metadata"]
        if self._applied.get(uid) == meta["generation"]:
            return
        labels = self._mirror.namespaces.get(meta["namespace"], {})
        try:
            await self._services.apply(_application(obj), labels, uid)
        except SpecError as e:
            self._problems[uid] = _problem(ServiceReason.INVALID, words(e))
        except ConflictError as e:  # such as too many; there may be room later
            self._problems[uid] = _problem(ServiceReason.REFUSED, str(e))
            return
        except StoreError as e:
            self._problems[uid] = _problem(ServiceReason.UNAVAILABLE, str(e))
            return
        else:
            self._problems.pop(uid, None)
        self._applied[uid] = meta["generation"]

    async def _remove_absent(self) -> None:
        """Deletes the services whose objects are gone."""
        objects = self._mirror.services.values()
        present = {
            (o["metadata"]["namespace"], o["metadata"]["name"])
            for o in objects
            if not o["metadata"].get("deletionTimestamp")
        }
        for service in self._services.all():
            if (service.namespace, service.name) not in present:
                try:
                    await self._services.remove(service.namespace, service.name)
                except NotFoundError:
                    continue

    def _status(self, uid: str, obj: Object) -> dict[str, object]:
        meta = obj["metadata"]
        record = self._record(meta["namespace"], meta["name"])
        context = StatusContext(
            meta["generation"], self._epoch.number, self._epoch.now_s(), shown(obj)
        )
        found = None if record is None else self._statuses.status(record)
        return status_of(found, self._problems.get(uid), self._router_url, context)

    def _record(self, namespace: str, name: str) -> ServiceRecord | None:
        try:
            return self._services.get(namespace, name)
        except NotFoundError:
            return None

    async def _repeat(self) -> None:
        while True:
            try:
                await self._remove_absent()
            except FlowMeshError as e:
                log.warning("deleted services are removed later: %s", e)
            for uid in self._mirror.services:
                self._queue.add(uid)
            await asyncio.sleep(EVERY_S)

    async def _relist(self) -> None:
        while True:
            await asyncio.sleep(RELIST_S)
            before = self._mirror.begin("services")
            try:
                found = await self._api.list(*SERVICES, metadata_only=True)
            except ApiError as e:
                log.warning("services are listed later: %s", e)
                continue
            self._mirror.listed("services", before, found)


def _application(obj: Object) -> ServiceApplication:
    """Returns what an object asks for."""
    meta = obj["metadata"]
    document = {
        "apiVersion": API_VERSION,
        "kind": FlowMeshService.__name__,
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "spec": obj["spec"],
    }
    return ServiceApplication(document, namespace=meta["namespace"])


def _problem(reason: ServiceReason, message: str) -> ConditionUpdate:
    return ConditionUpdate(ServiceCondition.ACCEPTED, holds=False, reason=reason, message=message)
