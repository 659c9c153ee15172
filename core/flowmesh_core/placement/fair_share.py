"""Weighted fair share: what every tenant paid of late, over its weight.

Held by the run machine, which charges a tenant when an attempt is settled; ``decide`` serves the
tenant with the least virtual time first and adds what it places within the tick. The accounts carry
it across restarts.
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
    """Decayed dollars by tenant."""

    def __init__(
        self,
        weights: Mapping[str, float] | None = None,
        paid: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        """Starts with what an earlier epoch's shares were.

        Args:
            weights: by tenant, where not 1.
            paid: as :meth:`paid` said it.
        """
        self._accounts = {tenant: _Account(*said) for tenant, said in (paid or {}).items()}
        self._weights: dict[str, float] = {}
        for tenant, weight in (weights or {}).items():
            self.set_weight(tenant, weight)

    @property
    def weights(self) -> Mapping[str, float]:
        """Weights by tenant, where set."""
        return self._weights

    def set_weight(self, tenant: str, weight: float) -> None:
        """Changes a tenant's weight, from now on and for what it has paid.

        Raises:
            ValueError: the weight is not a positive number.
        """
        if not 0.0 < weight < float("inf"):
            raise ValueError(f"weight of tenant {tenant!r} is {weight}; give a positive number")
        self._weights[tenant] = weight

    def charge(self, tenant: str, nanousd: int, now_s: float) -> None:
        """Adds dollars; a negative amount gives back what was charged too much.

        A clock that goes back does not bring old dollars to life: they count as of the later time.
        """
        account = self._accounts.get(tenant)
        if account is None:
            account = self._accounts[tenant] = _Account(0.0, now_s)
        now_s = max(now_s, account.at_s)
        account.nanousd = max(0.0, _decayed(account, now_s) + nanousd)
        account.at_s = now_s

    def virtual_time(self, tenant: str, now_s: float) -> float:
        """Decayed nano-dollars over weight."""
        account = self._accounts.get(tenant)
        paid = _decayed(account, max(now_s, account.at_s)) if account else 0.0
        return paid / self._weights.get(tenant, 1.0)

    def paid(self, now_s: float) -> dict[str, tuple[float, float]]:
        """Nano-dollars of every tenant that has paid something of late, and when it last did."""
        for tenant, account in list(self._accounts.items()):
            if _decayed(account, max(now_s, account.at_s)) < FAIR_SHARE_FORGOTTEN_NANOUSD:
                del self._accounts[tenant]
        return {tenant: (a.nanousd, a.at_s) for tenant, a in self._accounts.items()}


def _decayed(account: _Account, now_s: float) -> float:
    if now_s == account.at_s:
        return account.nanousd
    return account.nanousd * exp2(-(now_s - account.at_s) / FAIR_SHARE_HALF_LIFE_S)
