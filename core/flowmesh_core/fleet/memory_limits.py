"""Limits learned from running out of memory, by signature and device class.

When actions that share an instance run out of memory, the admitted load is halved; the half is
taken of what ran at once if that was less. When an action fails alone, its host's reservation is
doubled, up to the whole device. If it already had the whole device, the requirement is raised above
that device's memory, so the signature's next action goes to a larger one. Each success raises the
admitted load by a quarter and lowers the reservation a little, because the data of a single action
may have been the cause (ADR 4).
"""

from dataclasses import dataclass, field
from math import ceil

from flowmesh_core.units import Digest

LEAST_FACTOR = 1 / 64
RECOVERY = 1.25
RESERVE_RECOVERY = 1.02


@dataclass(slots=True)
class MemoryLimits:
    """Limits by signature and device class; they may be lost without harm."""

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
            signature: the attempt's signature.
            device_class: the worker's device class.
            reserved_mib: device memory that the host reserved.
            device_mib: memory of the device.
            alone: whether the host ran no other attempt.
            share: load of the host as a share of an instance's capacity, in (0, 1].
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
        """Returns the least MiB that a host must reserve; 0 if nothing was learned."""
        return self._reserve.get(signature, 0)

    def succeeded(self, signature: Digest, device_class: str, peak_mib: int = 0) -> None:
        """Learns from a success: raises the admitted load by a quarter and lowers the reservation.

        Args:
            signature: the attempt's signature.
            device_class: the worker's device class.
            peak_mib: the most memory that its host used. The reservation stays one step above it:
                otherwise an engine that always needs more than its contract says would fail again
                and again.
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
