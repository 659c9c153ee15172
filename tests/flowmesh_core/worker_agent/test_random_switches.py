"""Engines that take turns in random worlds: memory as hosts really use it never exceeds the worker.

The oracle is the shell's side: what each host occupies by the instructions that it was given and
what it has answered. The agent's own invariants are checked at every event too.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from tests.flowmesh_core.worker_agent.worker import Worker, assignment, prewarm, replica

from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i

NAMES = ("a.on-device", "b.on-device", "c.on-device", "d", "e")
DEVICE_MIB, HOST_MIB, LEFT_MIB = 1000, 1500, 50
BROKEN = FailureReport("host-crashed", "as drawn")
STEPS = 400


@dataclass
class Host:
    """One host as its process is; ``weights_mib`` are of the host beside the devices' memory."""

    devices: tuple[int, ...]
    memory_mib: int
    asleep_mib: int = 0
    weights_mib: int = 0
    state: str = "starting"
    told: list[str] = field(default_factory=list)

    def occupied(self) -> tuple[int, int]:
        """Memory on each of its devices, and of the host."""
        asleep = self.state == "asleep"
        if not self.devices:
            return 0, self.asleep_mib if asleep else self.memory_mib
        return LEFT_MIB if asleep else self.memory_mib, self.weights_mib


class World:
    """A worker and the hosts that it has started."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.devices = self.rng.choice([0, 1, 2])
        self.limit_mib = self.rng.choice([0, 150, 400, 900])
        self.worker = Worker(
            memory_mib=HOST_MIB,
            devices=self.devices,
            device_mib=DEVICE_MIB if self.devices else 0,
            sleep_mib=self.limit_mib,
            asleep_device_mib=LEFT_MIB,
            serves=True,
        )
        self.hosts: dict[int, Host] = {}
        self.inputs: list[str] = []
        self.fetches: list[i.FetchComponent] = []
        self.count = 0
        self.seen: Counter[str] = Counter()

    def post(self, event: e.Event) -> None:
        self.obey(self.worker.post(event))

    def obey(self, found: list[i.Instruction]) -> None:  # noqa: C901 - one case an instruction
        for x in found:
            self.seen[type(x).__name__] += 1
            match x:
                case i.StartHost(instance_id=n, reservation=r):
                    self.hosts[n] = Host(r.devices if self.devices else (), r.memory_mib)
                case i.SleepHost(instance_id=n):
                    host = self.hosts[n]
                    assert host.state == "ready"
                    host.state, host.weights_mib = "falling", host.asleep_mib
                case i.WakeHost(instance_id=n):
                    assert self.hosts[n].state == "asleep"
                    self.hosts[n].state = "waking"
                case i.RunAttempt(instance_id=n):
                    assert self.hosts[n].state == "ready"
                case i.CloseHost(instance_id=n) | i.KillHost(instance_id=n):
                    if n in self.hosts:
                        self.hosts[n].told.append("exit")
                case i.FetchInputs(assignment=a):
                    self.inputs.append(a.attempt_id)
                case i.FetchComponent():
                    self.fetches.append(x)
                case i.StartHub(hub_id=n):
                    self.obey(self.worker.post(e.HubReady(n)))
        self.check()

    def check(self) -> None:
        on = Counter[int]()
        host_mib = asleep_mib = 0
        for one in self.hosts.values():
            device_mib, of_host = one.occupied()
            on.update(dict.fromkeys(one.devices, device_mib))
            host_mib += of_host
            asleep_mib += of_host if one.devices or one.state == "asleep" else 0
        assert all(mib <= DEVICE_MIB for mib in on.values()), on
        assert host_mib <= HOST_MIB
        assert asleep_mib <= self.limit_mib

    # -- what may happen -------------------------------------------------------------------------

    def step(self) -> None:
        draw = self.rng.random()
        if draw < 0.2:
            self.assign()
        elif draw < 0.9:
            self.answer()
        elif draw < 0.94:
            self.list_something()
        else:
            self.obey(self.worker.advance(self.rng.choice([0.5, 20.0, 130.0])))

    def assign(self) -> None:
        name = self.rng.choice(NAMES)
        if not self.devices:
            name = name.partition(".")[0]
        self.count += 1
        # One size for each name mostly, so that those that sleep are woken.
        mib = 700 if self.rng.random() < 0.9 else self.rng.choice([200, 900])
        given = assignment(str(self.count), name, memory_mib=mib, isolate=self.rng.random() < 0.03)
        self.obey(self.worker.desire(assign=(given,)))

    def list_something(self) -> None:
        names = [n if self.devices else n.partition(".")[0] for n in NAMES]
        chosen = self.rng.sample(names, self.rng.choice([0, 0, 1, 2]))
        if self.rng.random() < 0.5:
            specs = tuple(prewarm(x, memory_mib=700) for x in chosen)
            self.obey(self.worker.desire(prewarm=specs))
        else:
            replicas = tuple(replica(x, memory_mib=700) for x in chosen[:1])
            self.obey(self.worker.desire(replicas=replicas))

    def answer(self) -> None:
        ready = [("inputs", None)] * bool(self.inputs) + [("fetch", None)] * bool(self.fetches)
        for n, host in self.hosts.items():
            busy = self.worker.agent.state.by_id[n].running
            ready += [("end", (n, a)) for a in busy]
            ready += [("move", n)] * (host.state in ("starting", "falling", "waking"))
            ready += [("exit", n)] * ("exit" in host.told)
        if not ready:
            return
        kind, what = self.rng.choice(ready)
        if kind == "inputs":
            self.post(e.InputsReady(self.inputs.pop(0)))
        elif kind == "fetch":
            fetch = self.fetches.pop(0)
            self.post(e.ComponentFetched(fetch.signature, fetch.port))
        elif kind == "end":
            self.post(e.AttemptFinished(*what, outputs={}))
        elif kind == "exit" or self.rng.random() < 0.02:
            del self.hosts[what]
            self.post(e.HostExited(what, BROKEN))
        else:
            self.move(what, self.hosts[what])

    def move(self, number: int, host: Host) -> None:
        if "exit" in host.told:
            return
        if host.state != "starting" and self.rng.random() < 0.05:
            self.post(e.HostSleepFailed(number, BROKEN))
        elif host.state == "starting":
            host.state = "ready"
            host.asleep_mib = self.rng.choice([0, 120, 120, 300])
            self.post(e.HostLoaded(number, 2, 1.0, {}, host.asleep_mib))
        elif host.state == "falling":
            host.state = "asleep"
            self.post(e.HostAsleep(number))
        else:
            host.state = "ready"
            self.post(e.HostAwake(number, 0.5))

    def settle(self) -> None:
        """Everything is answered: each attempt ends."""
        self.obey(self.worker.desire(prewarm=(), replicas=()))
        for _ in range(5000):
            if not self.worker.agent.state.attempts:
                return
            self.answer()
            self.obey(self.worker.advance(0.1))
        raise AssertionError(f"attempts stay: {self.worker.agent.state.attempts.keys()}")


@pytest.mark.parametrize("number", range(60))
def test_hosts_never_use_more_memory_than_there_is_and_every_attempt_ends(number: int) -> None:
    seed = number if number < 30 else random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()


def test_the_worlds_have_sleeps_and_wakes_in_plenty() -> None:
    seen: Counter[str] = Counter()
    for seed in range(20):
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        seen += world.seen
    assert min(seen["SleepHost"], seen["WakeHost"], seen["CloseHost"]) > 40, seen
