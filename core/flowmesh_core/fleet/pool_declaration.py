"""The limits that a pool's object declares for its workers; they override a worker's own report.

The operator reads them from the pool's spec, and the worker gateway applies them when a worker
joins. On a laptop nothing is declared, and the worker's report is used as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from flowmesh_core.protocol.messages import WorkerShape

CPU = "cpu"
UNKNOWN_CLASS = "nvidia-unknown"
"""The device class of a pool that does not name its product, until a worker reports it."""


@dataclass(frozen=True, slots=True)
class PoolDeclaration:
    """The limits of one pool's workers.

    Attributes:
        price_nanousd_per_hour: price of one worker.
        price_estimated: whether the pool states no price, so that this one is an estimate.
        spot: whether the provider may take workers away at any time.
        power_w: power of a worker under load.
        idle_w: power of a worker without work.
        zone: the zone that the pool's pods are bound to; empty if they may be anywhere.
        sandbox_minimum: the lowest sandbox level for user code.
        engines: names of the engines in the image.
        devices: accelerators of one worker; 0 for workers on the CPU.
        device_memory_mib: memory of one device; 0 if unknown.
    """

    price_nanousd_per_hour: int
    price_estimated: bool
    power_w: float
    idle_w: float
    labels: Mapping[str, str]
    zone: str
    allows_user_code: bool
    sandbox_minimum: str
    engines: frozenset[str]
    devices: int
    device_memory_mib: int
    host_memory_mib: int
    cpus: int
    spot: bool = False

    def bound(self, said: WorkerShape) -> WorkerShape:
        """Returns a worker's reported shape, limited to what the pool declares.

        The pool decides price, power, labels, spot, the right to run user code and its sandbox
        level, and the zone if it is bound to one. Engines, devices, CPUs and memory are as the
        worker reports, cut to what the pool has.
        """
        engines = {name: v for name, v in said.engines.items() if name in self.engines}
        host_mib = min(said.host_memory_mib, self.host_memory_mib)
        on_cpu = not self.devices
        device_mib = host_mib if on_cpu else self.device_memory_mib or said.device_memory_mib
        return msgspec.structs.replace(
            said,
            device_class=CPU if on_cpu else said.device_class,
            devices=1 if on_cpu else min(said.devices, self.devices),
            device_memory_mib=min(said.device_memory_mib, device_mib),
            host_memory_mib=host_mib,
            cpus=min(said.cpus, self.cpus),
            price_nanousd_per_hour=self.price_nanousd_per_hour,
            price_estimated=self.price_estimated,
            power_w=self.power_w,
            idle_w=self.idle_w,
            zone=self.zone or said.zone,
            labels=dict(self.labels),
            allows_user_code=self.allows_user_code,
            sandbox_minimum=self.sandbox_minimum,
            engines=engines,
            spot=self.spot or msgspec.UNSET,
            variants=tuple(v for v in said.variants if v.engine in engines),
        )
