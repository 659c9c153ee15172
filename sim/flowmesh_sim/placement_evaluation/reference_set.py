"""The reference set: every simple policy that an operator could have chosen for a load.

A member is a baseline with a signal that scales its pools, a keep-alive and a subset of the classes
of devices. The shipped policy is judged against the best of them in hindsight.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from flowmesh_sim.paper.plan import Cell
from flowmesh_sim.placement_evaluation.loads import EvaluationLoad, Json
from flowmesh_sim.policies.baselines import ALWAYS_ON, BASELINES, KEEP_ALIVES_S, with_baseline

SHIPPED = "shipped"
SIGNALS = ("frozen", "hpa")
"""What scales the baselines' pools: the signal of the day when they were written, or an HPA."""
KEEP_ALIVE_S = 300.0
"""That baselines have by default, as an HPA's scale-down window."""
SHIPPED_KEEP_ALIVE_S = 30.0
"""That pools ship with."""
MACHINES = (1, 2, 4, 8)
"""Numbers of machines of one class that are always on; and as many as the load's fleet has."""
ORDERS = ("fifo-sharing", "random-placement", "helium")
CONTROL = {"syncIntervalS": 3.0, "tickS": 1.0}
"""As in the paper's evaluation: rarer heartbeats and idle decisions, for all policies alike."""


@dataclass(frozen=True, slots=True)
class Member:
    """A policy of the reference set.

    Attributes:
        baseline: a key of ``BASELINES``.
        devices: the classes that it may rent, dearest first.
        optimize: the weights of the workflows.
        machines: that are always on, where the baseline is not elastic.
    """

    baseline: str
    signal: str
    keep_alive_s: float
    devices: tuple[str, ...]
    optimize: str = "balanced"
    machines: int = 1

    @property
    def label(self) -> str:
        """The name in tables and results."""
        title = BASELINES[self.baseline].title
        devices = "+".join(self.devices)
        if not BASELINES[self.baseline].is_elastic:
            return f"{title}, {self.machines} {devices}"
        weights = "" if self.optimize == "balanced" else f", optimize: {self.optimize}"
        return f"{title}, {self.signal} signal, {self.keep_alive_s:.0f} s, {devices}{weights}"


def shipped_member(load: EvaluationLoad, optimize: str = "balanced") -> Member:
    """Returns the shipped policy with its defaults on the whole fleet."""
    return Member(SHIPPED, "shipped", SHIPPED_KEEP_ALIVE_S, load.devices, optimize)


def reference_set(load: EvaluationLoad) -> Iterator[Member]:
    """Yields all members for a load; classes that cannot run a step are never on their own."""
    subsets = load.subsets()
    for devices in subsets:
        for name, baseline in BASELINES.items():
            if name == SHIPPED or not baseline.is_elastic:
                continue
            for signal in SIGNALS:
                for keep_alive_s in KEEP_ALIVES_S:
                    yield Member(name, signal, keep_alive_s, devices)
    most = load.workers // len(load.devices)
    for devices in subsets:
        if len(devices) == 1:
            for machines in sorted({*(n for n in MACHINES if n < most), most}):
                yield Member(ALWAYS_ON, "shipped", KEEP_ALIVE_S, devices, machines=machines)


def other_orders(load: EvaluationLoad) -> Iterator[Member]:
    """Yields simple orders of actions with the shipped autoscaling, on the whole fleet.

    They are no members: they show what the shipped placement adds to that.
    """
    for name in ORDERS:
        yield Member(name, "shipped", SHIPPED_KEEP_ALIVE_S, load.devices)


def small_set(load: EvaluationLoad) -> Iterator[Member]:
    """Yields the members with default pools, and machines that are always on."""
    for member in reference_set(load):
        if has_defaults(load, member):
            yield member


def has_defaults(load: EvaluationLoad, member: Member) -> bool:
    """Whether a member rents what the shipped policy may, as pools ship, or is always on."""
    if not BASELINES[member.baseline].is_elastic:
        return True
    return member.keep_alive_s == KEEP_ALIVE_S and member.devices == load.devices


def cell_of(load: EvaluationLoad, member: Member, seeds: tuple[int, ...]) -> Cell:
    """Returns the simulations of a member under a load."""
    document = with_baseline(
        {
            "name": "placement",
            "pools": list(_pools(load, member)),
            "load": [{**part, "optimize": member.optimize} for part in load.load],
            "control": CONTROL,
        },
        member.baseline,
        signal=member.signal,
        keep_alive_s=member.keep_alive_s,
    )
    return Cell("reference", member.label, load.name, load.workers, "", document, seeds)


def _pools(load: EvaluationLoad, member: Member) -> Iterator[Json]:
    share = load.workers // len(load.devices)
    elastic = BASELINES[member.baseline].is_elastic
    for number, device in enumerate(member.devices):
        # The name's first letter keeps the order of devices: first fit goes by names.
        name = f"{chr(97 + number)}-{device}"
        pool = {"name": name, "device": device, "start": load.start, "disk": "reused"}
        yield {**pool, "maximum": share if elastic else member.machines}
