"""The quotas in force, and which one applies to a namespace.

The operator sets them from its informer cache, before any workflow is admitted and whenever a quota
or a namespace changes. They are not stored: the objects are in the API server.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from flowmesh_api.v1.quotas import Quota
from flowmesh_core.machine.events import NamespaceLimits, NamespaceLimitsChanged, WeightsChanged
from flowmesh_core.sharing.namespace_selection import most_specific

Labels = Mapping[str, Mapping[str, str]]
"""Namespace → its labels."""


class Quotas:
    """The quota of each namespace.

    Attributes:
        refusals: limit → how often it has refused something.
    """

    def __init__(
        self, post_and_wait: Callable[[WeightsChanged | NamespaceLimitsChanged], Awaitable[None]]
    ) -> None:
        """Starts without quotas.

        Args:
            post_and_wait: posts an event to the machine and waits until it was applied.
        """
        self.refusals: Counter[str] = Counter()
        self._post_and_wait = post_and_wait
        self._quotas: tuple[Quota, ...] = ()
        self._labels: Labels = {}
        self._found: dict[str, Quota | None] = {}
        self._weights: dict[str, float] = {}
        self._limits: dict[str, NamespaceLimits] = {}
        self._full: Mapping[str, str] = {}
        self._listeners: list[Callable[[], None]] = []

    def of(self, namespace: str) -> Quota | None:
        """Returns the quota that applies to a namespace; None where nothing is bounded."""
        if not self._quotas:
            return None
        if namespace not in self._found:
            labels = self._labels.get(namespace, {})
            self._found[namespace] = most_specific(self._quotas, namespace, labels)
        return self._found[namespace]

    async def replace_all(self, quotas: Sequence[Quota], labels: Labels) -> None:
        """Makes these the only quotas.

        Args:
            quotas: in any order.
            labels: of every namespace that exists.
        """
        self._quotas, self._labels, self._found = tuple(quotas), dict(labels), {}
        found = {namespace: self.of(namespace) for namespace in labels}
        weights = {n: q.weight for n, q in found.items() if q is not None and q.weight != 1.0}
        if weights != self._weights:
            await self._post_and_wait(WeightsChanged(weights))
            self._weights = weights
        await self._post_limits()
        for changed in self._listeners:
            changed()

    def listen(self, changed: Callable[[], None]) -> None:
        """Has a function called whenever the quotas have been replaced."""
        self._listeners.append(changed)

    async def set_full(self, texts: Mapping[str, str]) -> None:
        """Makes these the namespaces that store too much for new attempts, with the reasons."""
        self._full = texts
        await self._post_limits()

    @property
    def namespaces(self) -> list[str]:
        """The namespaces that exist and have a quota."""
        return [n for n in self._labels if self.of(n) is not None]

    async def _post_limits(self) -> None:
        limits = {
            n: NamespaceLimits(
                q.user_code_calls, q.nanousd_per_day, self._full.get(n, ""), q.workers
            )
            for n in self._labels
            if (q := self.of(n)) is not None
        }
        if limits != self._limits:
            await self._post_and_wait(NamespaceLimitsChanged(limits))
            self._limits = limits
