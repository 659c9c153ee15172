"""HTTP handler that shows a namespace's quota and what is used of it."""

from aiohttp import web

from flowmesh_api.v1.quotas import QuotaLimit, QuotaUsage
from flowmesh_control.api.authorization import AuthorizedRequest, Route, namespace_route
from flowmesh_control.api.responses import json_response
from flowmesh_control.auth.users import Verb
from flowmesh_control.quotas.quotas import Quotas
from flowmesh_control.quotas.run_quota import RunQuota


class QuotaHandlers:
    """Handler of ``/v1/quota``."""

    def __init__(self, quotas: Quotas, run_quota: RunQuota) -> None:
        self._quotas = quotas
        self._run_quota = run_quota

    def routes(self) -> list[Route]:
        """Returns the route of this class."""
        return [namespace_route("GET", "/v1/quota", self.usage, Verb.LIST)]

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
        )
        return json_response(QuotaUsage(namespace, quota.name, quota.weight, limits))


def _limit(name: str, most: float, used: int | None = None) -> QuotaLimit:
    return QuotaLimit(name, float(most), None if used is None else float(used))
