"""Whatever happens in whatever order, the invariants hold and every attempt ends once."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from tests.flowmesh_core.worker_agent.worker import (
    Worker,
    assignment,
    blob,
    digest,
    prewarm,
    replica,
)

from flowmesh_core.protocol.messages import FailureReport, InputRef
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i
from flowmesh_core.worker_agent.ports import Preload
from flowmesh_core.worker_agent.transitions import TRANSITIONS

NAMES = ("a", "vllm.b", "c.on-device", "trl.d")
FAILURES = st.sampled_from(["engine", "bad-input", "out-of-memory", "store", "drained"])
PRELOADS = {"vllm": Preload("vLLM", 200), "trl": Preload("TRL", 300)}


class RandomEvents(RuleBasedStateMachine):
    """A worker whose hosts, fetches and timers do anything that they may do."""

    def __init__(self) -> None:
        super().__init__()
        self.worker: Worker | None = None
        self.count = 0
        self.open: dict[str, list[Any]] = {}
        self.ended: set[str] = set()

    # -- answers that are owed ---------------------------------------------------------------------

    def owe(self, found: list[i.Instruction]) -> None:  # noqa: C901, PLR0912 - a case each
        """Remembers what the instructions are to be answered with."""
        for x in found:
            match x:
                case i.FetchInputs(assignment=a):
                    self.open.setdefault("inputs", []).append(a.attempt_id)
                case i.FetchCheckpoint(attempt_id=a):
                    self.open.setdefault("checkpoint", []).append(a)
                case i.StoreOutputs(attempt_id=a):
                    self.open.setdefault("outputs", []).append(a)
                case i.FlushCheckpoints(attempt_id=a):
                    self.open.setdefault("flush", []).append(a)
                case i.FetchComponent():
                    self.open.setdefault("component", []).append(x)
                case i.StartHost(instance_id=n):
                    self.open.setdefault("start", []).append(n)
                case i.CloseHost(instance_id=n) | i.KillHost(instance_id=n):
                    self.open.setdefault("exit", []).append(n)
                case i.SleepHost(instance_id=n):
                    self.open.setdefault("sleep", []).append(n)
                case i.WakeHost(instance_id=n):
                    self.open.setdefault("wake", []).append(n)
                case i.StartHub(hub_id=n):
                    self.open.setdefault("hub", []).append(n)
                case i.StartStandby(host_id=n):
                    self.open.setdefault("standby", []).append(n)
                case i.DropAttempt(assignment=a):
                    assert a.attempt_id not in self.ended, "an attempt ended twice"
                    self.ended.add(a.attempt_id)

    def post(self, event: e.Event) -> None:
        assert self.worker is not None
        self.owe(self.worker.post(event))

    def take(self, kind: str, data: st.DataObject) -> Any:
        owed = self.open.get(kind, [])
        return owed.pop(data.draw(st.integers(0, len(owed) - 1))) if owed else None

    # -- rules -------------------------------------------------------------------------------------

    @precondition(lambda self: self.worker is None)
    @rule(devices=st.integers(0, 2), sleep_mib=st.sampled_from([0, 120, 250, 600]))
    def begin(self, devices: int, sleep_mib: int) -> None:
        self.worker = Worker(
            preloads=PRELOADS,
            devices=devices,
            device_mib=1000 if devices else 0,
            serves=True,
            sleep_mib=sleep_mib,
            asleep_device_mib=50,
        )

    @precondition(lambda self: self.worker)
    @rule(data=st.data())
    def assigned(self, data: st.DataObject) -> None:
        assert self.worker is not None
        self.count += 1
        far = data.draw(st.booleans())
        resume = InputRef(Artifact("checkpoint", digest("p"), digest("p")))
        made = assignment(
            str(self.count),
            data.draw(st.sampled_from(NAMES)),
            memory_mib=data.draw(st.sampled_from([100, 400, 700, 2000])),
            priority=data.draw(st.integers(0, 2)),
            isolate=data.draw(st.booleans()),
            timeout_s=data.draw(st.sampled_from([0.0, 5.0])),
            inputs={"rows": blob("r")} if far else {},
            resume=resume if data.draw(st.booleans()) else None,
        )
        self.owe(self.worker.desire(assign=(made,)))

    @precondition(lambda self: self.worker)
    @rule(name=st.sampled_from(NAMES), mib=st.sampled_from([400, 700]), mostly=st.booleans())
    def worked(self, name: str, mib: int, mostly: bool) -> None:
        """An attempt comes as far as it can at once, so that idle instances are left behind."""
        assert self.worker is not None
        self.count += 1
        attempt = str(self.count)
        self.owe(self.worker.desire(assign=(assignment(attempt, name, memory_mib=mib),)))
        if attempt not in self.worker.agent.state.attempts:
            return
        self.open["inputs"].remove(attempt)
        self.post(e.InputsReady(attempt))
        for kind, done in (("sleep", e.HostAsleep), ("wake", lambda n: e.HostAwake(n, 0.5))):
            for number in self.open.pop(kind, []) if mostly else ():
                self.post(done(number))
        for number in self.open.pop("start", []):
            self.post(e.HostStarted(number))
            instance = self.worker.agent.state.by_id.get(number)
            if instance is not None and instance.state == "loading":
                self.post(e.HostLoaded(number, 2, 1.0, {}, 120))
        for instance in self.worker.instances:
            if mostly and attempt in instance.running:
                self.post(e.AttemptFinished(instance.id, attempt, outputs={}))

    @precondition(lambda self: self.worker)
    @rule(data=st.data())
    def answered(self, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(["inputs", "checkpoint", "outputs", "flush", "component"]))
        owed = self.take(kind, data)
        if owed is None:
            return
        failure = FailureReport(data.draw(FAILURES), "as drawn")
        fails = data.draw(st.booleans())
        match kind:
            case "inputs":
                self.post(e.InputsFailed(owed, failure) if fails else e.InputsReady(owed))
            case "checkpoint":
                self.post(e.CheckpointFetched(owed))
            case "outputs":
                self.post(e.OutputsFailed(owed, failure) if fails else e.OutputsStored(owed, {}))
            case "flush":
                self.post(e.CheckpointsFlushed(owed))
            case _ if fails:
                self.post(e.ComponentFailed(owed.signature, failure))
            case _:
                self.post(e.ComponentFetched(owed.signature, owed.port))

    @precondition(lambda self: self.worker)
    @rule(data=st.data())
    def host_moved(self, data: st.DataObject) -> None:  # noqa: C901, PLR0912 - a case a move
        assert self.worker is not None
        failure = FailureReport("host-crashed", "as drawn")
        moves = ["load", "fail", "exit", "crash", "silent", "memory", "asleep", "awake", "cannot"]
        match data.draw(st.sampled_from(moves)):
            case "load" if (number := self.take("start", data)) is not None:
                self.post(e.HostStarted(number))
                instance = self.worker.agent.state.by_id.get(number)
                if instance is not None and instance.state == "loading":
                    asleep_mib = data.draw(st.sampled_from([0, 100, 120, 300]))
                    capacity = data.draw(st.integers(1, 3))
                    self.post(e.HostLoaded(number, capacity, 1.0, {}, asleep_mib))
            case "fail" if (number := self.take("start", data)) is not None:
                self.post(e.HostLoadFailed(number, failure))
                self.post(e.HostExited(number, failure))
            case "exit" if (number := self.take("exit", data)) is not None:
                self.post(e.HostExited(number, failure))
            case "asleep" if (number := self.take("sleep", data)) is not None:
                self.post(e.HostAsleep(number))
            case "awake" if (number := self.take("wake", data)) is not None:
                self.post(e.HostAwake(number, 0.5))
            case "cannot":
                for kind in ("sleep", "wake"):
                    if (number := self.take(kind, data)) is not None:
                        self.post(e.HostSleepFailed(number, failure))
            case kind if self.worker.instances:
                number = data.draw(st.sampled_from([x.id for x in self.worker.instances]))
                if kind == "crash":
                    self.post(e.HostExited(number, failure))
                elif kind == "silent":
                    self.post(e.HostSilent(number, data.draw(st.sampled_from([20.0, 200.0]))))
                elif kind == "memory":
                    self.post(e.MemoryMeasured(number, data.draw(st.integers(0, 900))))

    @precondition(lambda self: self.worker)
    @rule(data=st.data(), ends=st.booleans())
    def attempt_moved(self, data: st.DataObject, ends: bool) -> None:
        assert self.worker is not None
        running = [(x.id, a) for x in self.worker.instances for a in x.running]
        if not running:
            return
        number, attempt = data.draw(st.sampled_from(running))
        if not ends:
            self.post(e.AttemptProgressed(number, attempt, 1, 1.0, 2.0, "steps"))
            return
        fails = data.draw(st.booleans())
        inline = data.draw(st.booleans())
        self.post(
            e.AttemptFinished(
                number,
                attempt,
                failure=FailureReport(data.draw(FAILURES), "as drawn") if fails else None,
                keeps_files=data.draw(st.booleans()),
                outputs={} if inline else None,
            )
        )

    @precondition(lambda self: self.worker)
    @rule(data=st.data())
    def standby_moved(self, data: st.DataObject) -> None:
        number = self.take("standby", data)
        if number is not None:
            gone = data.draw(st.booleans())
            self.post(e.StandbyExited(number) if gone else e.StandbyReady(number))

    @precondition(lambda self: self.worker)
    @rule(data=st.data())
    def hub_moved(self, data: st.DataObject) -> None:
        assert self.worker is not None
        replicas = sorted(self.worker.agent.replicas.entries)
        match data.draw(st.sampled_from(["ready", "exit", "calls", "calls"])):
            case "ready" if (number := self.take("hub", data)) is not None:
                self.post(e.HubReady(number))
            case "exit":
                self.post(e.HubExited(self.worker.agent.replicas.hub.number, "as drawn"))
            case "calls" if replicas:
                calls = data.draw(st.integers(0, 2))
                self.post(e.CallsBusy(data.draw(st.sampled_from(replicas)), calls))

    @precondition(lambda self: self.worker)
    @rule(data=st.data())
    def desired(self, data: st.DataObject) -> None:
        assert self.worker is not None
        known = sorted(self.worker.agent.reports.progress)
        match data.draw(
            st.sampled_from(["cancel", "acknowledge", "everything", "prewarm", "replicas"])
        ):
            case "cancel" if known:
                self.owe(self.worker.desire(cancel=(data.draw(st.sampled_from(known)),)))
            case "acknowledge":
                self.owe(self.worker.desire(acknowledged=tuple(self.worker.agent.reports.ended)))
            case "everything":
                keep = tuple(x for x in known if data.draw(st.booleans()))
                self.owe(self.worker.desire(full_state=True, keep=keep))
            case "prewarm":
                names = data.draw(st.lists(st.sampled_from(NAMES), unique=True))
                entries = [
                    prewarm(x, *data.draw(st.lists(st.sampled_from("mn"), unique=True)))
                    for x in names
                ]
                self.owe(self.worker.desire(prewarm=tuple(entries)))
            case "replicas":
                listed = data.draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
                mib = st.sampled_from([100, 400, 700, 2000])
                wanted = [
                    replica(
                        x,
                        n,
                        *data.draw(st.lists(st.sampled_from("mn"), unique=True)),
                        memory_mib=data.draw(mib),
                    )
                    for x in listed
                    for n in range(data.draw(st.integers(1, 2)))
                ]
                self.owe(self.worker.desire(replicas=tuple(wanted)))

    @precondition(lambda self: self.worker)
    @rule(seconds=st.sampled_from([0.5, 6.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        assert self.worker is not None
        self.owe(self.worker.advance(seconds))

    @precondition(lambda self: self.worker)
    @rule(connected=st.booleans())
    def connection_changes(self, connected: bool) -> None:
        self.post(e.Connected() if connected else e.Disconnected())

    @precondition(lambda self: self.worker)
    @rule()
    def stops(self) -> None:
        self.post(e.StopRequested())

    def teardown(self) -> None:
        """Once everything has been answered, every attempt has ended."""
        worker = self.worker
        if worker is None:
            return
        for _ in range(200):
            if not worker.agent.state.attempts:
                break
            self._answer_all(worker)
        assert worker.agent.state.attempts == {}
        assert self.ended == {str(n + 1) for n in range(self.count)}

    def _answer_all(self, worker: Worker) -> None:  # noqa: C901 - one loop an answer
        owed, self.open = self.open, {}
        for a in owed.get("inputs", ()):
            self.post(e.InputsReady(a))
        for a in owed.get("checkpoint", ()):
            self.post(e.CheckpointFetched(a))
        for a in owed.get("outputs", ()):
            self.post(e.OutputsStored(a, {}))
        for a in owed.get("flush", ()):
            self.post(e.CheckpointsFlushed(a))
        for number in owed.get("exit", ()):
            self.post(e.HostExited(number, FailureReport("host-crashed", "it closed")))
        for number in owed.get("sleep", ()):
            self.post(e.HostAsleep(number))
        for number in owed.get("wake", ()):
            self.post(e.HostAwake(number, 0.5))
        for instance in worker.instances:
            if instance.state in ("starting", "loading"):
                self.post(e.HostLoaded(instance.id, 2, 1.0))
            for a in list(instance.running):
                self.post(e.AttemptFinished(instance.id, a, outputs={}))
        self.owe(worker.advance(1.0))


RandomEvents.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestRandomEvents = RandomEvents.TestCase


def test_every_state_except_the_final_one_has_a_transition() -> None:
    last = {"ended", "gone", "taken", "delisted"}
    before = {state for state, _ in TRANSITIONS}
    after = {state for _, state in TRANSITIONS}
    assert {state for state in after if state not in before} <= last
