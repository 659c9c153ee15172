"""Weighted fair share: the recent payments of each tenant, over its weight.

The state machine owns it and charges a tenant when an attempt is settled. ``decide`` serves the
tenant with the least virtual time first, and adds the cost of its placements within the cycle. The
fabric account stores it across restarts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp2

from flowmesh_core.placement.settings import FAIR_SHARE_FORGOTTEN_NANOUSD, FAIR_SHARE_HALF_LIFE_S


@dataclass(slots=True)
class _Account:
    nanousd: float
    at_s: float


class FairShare:
    """Nano-dollars paid by each tenant, halved every ``FAIR_SHARE_HALF_LIFE_S``."""

    def __init__(
        self,
        weights: Mapping[str, float] | None = None,
        paid: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        """Starts from the shares of an earlier epoch.

        Args:
            weights: the weights of tenants whose weight is not 1.
            paid: the shares, as :meth:`paid` returned them.
        """
        self._accounts = {tenant: _Account(*share) for tenant, share in (paid or {}).items()}
        self._weights: dict[str, float] = {}
        self.set_weights(weights or {})

    @property
    def weights(self) -> Mapping[str, float]:
        """The weights that were set, by tenant."""
        return self._weights

    def set_weight(self, tenant: str, weight: float) -> None:
        """Changes a tenant's weight, also for its earlier payments.

        Raises:
            ValueError: the weight is not a positive number.
        """
        if not 0.0 < weight < float("inf"):
            raise ValueError(f"weight of tenant {tenant!r} is {weight}: expected a positive number")
        self._weights[tenant] = weight

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Replaces the weights of all tenants. A tenant that is not named has weight 1.

        Raises:
            ValueError: a weight is not a positive number.
        """
        self._weights = {}
        for tenant, weight in weights.items():
            self.set_weight(tenant, weight)

    def charge(self, tenant: str, nanousd: int, now_s: float) -> None:
        """Adds nano-dollars to a tenant's share; a negative amount is a refund.

        If the clock goes back, the share does not grow again: the later time counts.
        """
        account = self._accounts.get(tenant)
        if account is None:
            account = self._accounts[tenant] = _Account(0.0, now_s)
        now_s = max(now_s, account.at_s)
        account.nanousd = max(0.0, _decayed(account, now_s) + nanousd)
        account.at_s = now_s

    def virtual_time(self, tenant: str, now_s: float) -> float:
        """Returns a tenant's decayed nano-dollars over its weight."""
        account = self._accounts.get(tenant)
        paid = _decayed(account, max(now_s, account.at_s)) if account else 0.0
        return paid / self._weights.get(tenant, 1.0)

    def paid(self, now_s: float) -> dict[str, tuple[float, float]]:
        """Returns each tenant's nano-dollars and the time of that amount; drops negligible ones."""
        for tenant, account in list(self._accounts.items()):
            if _decayed(account, max(now_s, account.at_s)) < FAIR_SHARE_FORGOTTEN_NANOUSD:
                del self._accounts[tenant]
        return {tenant: (a.nanousd, a.at_s) for tenant, a in self._accounts.items()}


def _decayed(account: _Account, now_s: float) -> float:
    if now_s == account.at_s:
        return account.nanousd
    return account.nanousd * exp2(-(now_s - account.at_s) / FAIR_SHARE_HALF_LIFE_S)
