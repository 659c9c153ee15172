"""HTTP handler that shows a namespace's quota and what is used of it."""

from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_api.v1.quotas import Quota, QuotaLimit, QuotaUnit, QuotaUsage
from flowmesh_control.api.authorization import AuthorizedRequest, Route, namespace_route
from flowmesh_control.api.responses import json_response
from flowmesh_control.auth.users import Verb
from flowmesh_control.loop.clock import Clock
from flowmesh_control.quotas.namespace_usage import NamespaceUsage
from flowmesh_control.quotas.quotas import Quotas
from flowmesh_control.quotas.run_quota import RunQuota
from flowmesh_control.quotas.stored_bytes import StoredBytes
from flowmesh_control.quotas.uploaded_bytes import UploadedBytes
from flowmesh_core.units import NANO_PER_USD


class QuotaHandlers:
    """Handler of ``/v1/quota``."""

    def __init__(
        self,
        *,
        quotas: Quotas,
        run_quota: RunQuota,
        stored: StoredBytes,
        uploaded: UploadedBytes,
        usage: NamespaceUsage,
        clock: Clock,
    ) -> None:
        """Keeps what counts the uses.

        Args:
            quotas: those in force.
            run_quota: counts what is under way.
            stored: counts stored bytes.
            uploaded: counts uploaded bytes.
            usage: counts calls of user code, workers and dollars.
            clock: Unix time in seconds.
        """
        self._quotas = quotas
        self._run_quota = run_quota
        self._stored = stored
        self._uploaded = uploaded
        self._usage = usage
        self._clock = clock

    def routes(self) -> list[Route]:
        """Returns the route of this class."""
        return [namespace_route(operations.GET_QUOTA, self.usage, Verb.LIST)]

    async def usage(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/quota?namespace=`` → :class:`QuotaUsage`."""
        namespace = call.namespace
        quota = self._quotas.of(namespace)
        if quota is None:
            return json_response(QuotaUsage(namespace))
        used = self._run_quota
        limits = (
            _limit("unfinished runs", quota.unfinished_runs, used.unfinished(namespace)),
            _limit("steps of a run", quota.steps_per_run),
            _limit("actions in flight", quota.actions_in_flight, used.in_flight(namespace)),
            _limit("requests a second of a user", quota.requests_per_second),
            _limit("requests at once of a user", quota.request_burst),
            _limit("submissions a minute of a user", quota.submissions_per_minute),
            _limit("plans a minute of a user", quota.plans_per_minute),
            _limit("open watches of a user", quota.open_watches),
            _limit("open uploads of a user", quota.open_uploads),
            *self._of_content(namespace, quota),
            *self._of_attempts(namespace, quota),
        )
        return json_response(QuotaUsage(namespace, quota.name, quota.weight, limits))

    def _of_content(self, namespace: str, quota: Quota) -> tuple[QuotaLimit, ...]:
        stored, uploaded = self._stored.used(namespace), self._uploaded.used(namespace)
        daily = quota.uploaded_bytes_per_day
        return (
            QuotaLimit("stored", float(quota.stored_bytes), float(stored), QuotaUnit.BYTES),
            QuotaLimit("uploaded in 24 h", float(daily), float(uploaded), QuotaUnit.BYTES),
        )

    def _of_attempts(self, namespace: str, quota: Quota) -> tuple[QuotaLimit, ...]:
        calls = self._usage.user_code_calls(namespace)
        found = [_limit("calls of user code at once", quota.user_code_calls, calls)]
        if quota.workers is not None:
            found.append(_limit("workers at once", quota.workers, self._usage.workers(namespace)))
        if quota.nanousd_per_day is not None:
            spent = self._usage.nanousd_today(namespace, self._clock()) / NANO_PER_USD
            most = quota.nanousd_per_day / NANO_PER_USD
            found.append(QuotaLimit("dollars in 24 h", most, spent, QuotaUnit.USD))
        return tuple(found)


def _limit(name: str, most: float, used: int | None = None) -> QuotaLimit:
    return QuotaLimit(name, float(most), None if used is None else float(used))
