"""Estimates this machine's price and power, and divides them among local workers.

The prices are typical on-demand prices per hour of such a machine, so that costs of local runs can
be compared with those elsewhere. They are marked as estimates wherever they are shown;
``--price-usd-per-hour`` replaces them.
"""

from dataclasses import dataclass
from decimal import Decimal

import psutil

_USD_PER_CPU_HOUR = Decimal("0.04")
_USD_PER_GIB_HOUR = Decimal("0.005")
_W_PER_CPU, _IDLE_W_PER_CPU = 8.0, 2.0
MEMORY_SHARE = 0.85
LEAST_MIB = 1024
"""What a worker is given on a machine with less."""
_OTHER_DEVICE = (Decimal("1.00"), 300.0, 50.0)
_DEVICES: tuple[tuple[str, tuple[Decimal, float, float]], ...] = (
    ("b200", (Decimal("5.50"), 1000.0, 140.0)),
    ("h200", (Decimal("3.80"), 700.0, 100.0)),
    ("h100", (Decimal("3.00"), 700.0, 100.0)),
    ("a100", (Decimal("1.80"), 400.0, 60.0)),
    ("l40", (Decimal("1.00"), 300.0, 40.0)),
    ("a10", (Decimal("0.80"), 150.0, 20.0)),
    ("l4", (Decimal("0.60"), 72.0, 15.0)),
    ("t4", (Decimal("0.35"), 70.0, 10.0)),
)
"""By a part of the device's name: dollars per hour, watts under load, watts idle."""


@dataclass(frozen=True, slots=True)
class MachineShare:
    """One local worker's part of the machine, with its price and power."""

    memory_mib: int
    cpus: int
    price_usd_per_hour: Decimal
    power_w: float
    idle_w: float
    uses_devices: bool


def shares(workers: int) -> list[MachineShare]:
    """Returns each worker's share of this machine; the first one gets all devices."""
    if not workers:
        return []
    cpus = max(1, psutil.cpu_count() or 1)
    memory_mib = available_mib()
    each_mib = max(LEAST_MIB, memory_mib // workers)
    price = _USD_PER_CPU_HOUR * cpus + _USD_PER_GIB_HOUR * (memory_mib // 1024)
    without_devices = MachineShare(
        memory_mib=each_mib,
        cpus=max(1, cpus // workers),
        price_usd_per_hour=(price / workers).quantize(Decimal("0.0001")),
        power_w=_W_PER_CPU * cpus / workers,
        idle_w=_IDLE_W_PER_CPU * cpus / workers,
        uses_devices=False,
    )
    return [_with_devices(without_devices), *[without_devices] * (workers - 1)]


def available_mib() -> int:
    """Returns the memory that local workers share, in MiB: most of what is free now."""
    return int(psutil.virtual_memory().available * MEMORY_SHARE) >> 20


def total_mib() -> int:
    """Returns the most memory that local workers could share on this machine, in MiB."""
    return int(psutil.virtual_memory().total * MEMORY_SHARE) >> 20


def _with_devices(share: MachineShare) -> MachineShare:
    # Imported here: it queries the driver, which takes a moment.
    from flowmesh_worker.shape import find_devices  # noqa: PLC0415

    devices = find_devices()
    if devices is None:
        return share
    usd, power_w, idle_w = next(
        (figures for name, figures in _DEVICES if name in devices.device_class), _OTHER_DEVICE
    )
    return MachineShare(
        memory_mib=share.memory_mib,
        cpus=share.cpus,
        price_usd_per_hour=share.price_usd_per_hour + usd * devices.count,
        power_w=share.power_w + power_w * devices.count,
        idle_w=share.idle_w + idle_w * devices.count,
        uses_devices=True,
    )
