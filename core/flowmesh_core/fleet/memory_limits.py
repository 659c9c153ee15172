"""Limits learned from running out of memory, by signature and device class.

First the admitted load is halved, or what ran at once where that was less. When an action fails
alone, its host's reservation is doubled, up to the whole device; when it had that, the requirement
is raised above the worker that it failed on, so that the next action of that signature goes to one
that fits. Each success restores a quarter of the load, and the reservation little by little: one
action's data may have needed it (ADR 4).
"""

from dataclasses import dataclass, field
from math import ceil

from flowmesh_core.units import Digest

LEAST_FACTOR = 1 / 64
RECOVERY = 1.25
RESERVE_RECOVERY = 1.02


@dataclass(slots=True)
class MemoryLimits:
    """Learned by (signature, device class); a snapshot that may be lost."""

    _factor: dict[tuple[Digest, str], float] = field(default_factory=dict)
    _more_than: dict[tuple[Digest, str], int] = field(default_factory=dict)
    _reserve: dict[Digest, int] = field(default_factory=dict)

    def out_of_memory(
        self,
        signature: Digest,
        device_class: str,
        *,
        reserved_mib: int,
        device_mib: int,
        alone: bool,
        share: float = 1.0,
    ) -> None:
        """Learns from an attempt that ran out of memory.

        Args:
            signature: of the attempt.
            device_class: of the worker.
            reserved_mib: what its host reserved of the device.
            device_mib: what the device has.
            alone: whether nothing else was in the host.
            share: what was in the host, as a part of what an instance takes at once, in (0, 1].
        """
        key = (signature, device_class)
        if not alone:
            admitted = min(share, self._factor.get(key, 1.0))
            self._factor[key] = max(LEAST_FACTOR, admitted / 2)
        elif reserved_mib < device_mib:
            self._reserve[signature] = min(device_mib, max(1, reserved_mib) * 2)
        else:
            self._more_than[key] = max(self._more_than.get(key, 0), device_mib)

    def reserve_mib(self, signature: Digest) -> int:
        """Returns what a host must reserve at least; 0 where nothing was learned."""
        return self._reserve.get(signature, 0)

    def succeeded(self, signature: Digest, device_class: str, peak_mib: int = 0) -> None:
        """Learns from a success: the admitted load recovers by a quarter.

        Args:
            signature: of the attempt.
            device_class: of the worker.
            peak_mib: the most that its host used; the reservation stays a step above it, or an
                engine that always needs more than its contract says would fail again and again.
        """
        raised = self._reserve.get(signature)
        if raised is not None:
            least = min(raised, ceil(peak_mib * RESERVE_RECOVERY))
            self._reserve[signature] = max(int(raised / RESERVE_RECOVERY), least)
        key = (signature, device_class)
        factor = self._factor.get(key)
        if factor is None:
            return
        if factor * RECOVERY >= 1.0:
            del self._factor[key]
        else:
            self._factor[key] = factor * RECOVERY

    def capacity_factors(self, signature: Digest) -> dict[str, float]:
        """Returns device class → share of an instance's capacity that may be admitted."""
        return {c: f for (s, c), f in self._factor.items() if s == signature}

    def more_than_mib(self, signature: Digest) -> dict[str, int]:
        """Returns device class → MiB that a device must exceed."""
        return {c: m for (s, c), m in self._more_than.items() if s == signature}
