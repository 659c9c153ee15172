"""A hub's connection to one engine host, with the calls that run or wait there."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from flowmesh_core.errors import ProtocolError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import (
    DEADLINE,
    FAILED,
    FULL,
    LOST,
    Abort,
    CallEnded,
    CallHostHello,
    CallRefused,
    CallsWithinTargets,
    CallTimes,
    ComponentCall,
    ComponentProfile,
    ComponentProfiles,
    Credit,
    ForgetValues,
    FromCallHost,
    Piece,
    ServiceCall,
    TokenTargets,
)
from flowmesh_core.serving.queue.call_queue import CallAdmission, CallQueue
from flowmesh_core.serving.queue.step_profile import TOKEN_MARGIN
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket, connect_with_descriptors
from flowmesh_worker.ipc.passed_values import NO_VALUES, StageBytes, receive_value, send_value
from flowmesh_worker.serving.replica_times import ReplicaTimes

_CONNECT_WITHIN_S = 30.0
_CONNECT_EVERY_S = 0.02
_MS = 1000.0
_SERVER_ERROR = 500

ToCaller = Piece | CallEnded | CallRefused
HostCall = ServiceCall | ComponentCall


class ComponentEnded(CallEnded, frozen=True):
    """The end of a call of a component that made a value for one in another host.

    Attributes:
        received: that value.
    """

    received: StageBytes = b""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A call.

    Attributes:
        passed: values that it names; none once it runs, so that the host frees their memory.
        times: of the calls of its replica; None where the host counts them.
        began_s: when it began to run.
        running: calls that ran then, this one too.
    """

    call: HostCall
    passed: Mapping[str, StageBytes]
    reply: Callable[[ToCaller], None]
    deadline_s: float
    arrived_s: float
    times: ReplicaTimes | None
    began_s: float = 0.0
    running: int = 0

    def count(self, ended: CallEnded, now_s: float) -> None:
        """Counts a call that has ended among those of its replica."""
        if self.times is not None:
            self.times.count(ended, self.running, self.arrived_s, self.began_s, now_s)


class InstanceLink:
    """The calls of one engine instance.

    Attributes:
        is_lost: whether its host has ended.
        paths: those of OpenAI's API that its engine answers.
        adapters: names of the adapters that it has loaded.
        profiles: what its host has measured, by component.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        """Connects in :meth:`connect`.

        Args:
            changed: called when a call begins, waits or ends, and when the host is gone.
        """
        self._loop = asyncio.get_running_loop()
        self.is_lost = False
        self.paths: tuple[str, ...] = ()
        self.adapters: tuple[str, ...] = ()
        self.profiles: dict[str, ComponentProfile] = {}
        self._engine_max = 0
        self._wanted = 1
        self._within_targets = 0
        self._targets = TokenTargets()
        self._has_sent_targets = False
        self._queue = CallQueue(1)
        self._changed = changed
        self._calls: dict[str, _Waiting] = {}
        self._channel: Channel[FromCallHost] | None = None
        self._descriptors: DescriptorSocket | None = None
        self._ready = asyncio.Event()
        self._times: dict[str, CallTimes] = {}
        self._expiry: asyncio.TimerHandle | None = None

    async def connect(self, path: str) -> bool:
        """Connects to the host, which may not listen yet; returns whether it could."""
        channel = Channel[FromCallHost](FromCallHost, self._receive, self._lost)
        try:
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                while True:
                    with contextlib.suppress(OSError):
                        connection, self._descriptors = await connect_with_descriptors(path)
                        break
                    await asyncio.sleep(_CONNECT_EVERY_S)
                await self._loop.create_unix_connection(lambda: channel, sock=connection)
                self._channel = channel
                await self._ready.wait()
        except TimeoutError:
            channel.close()
            return False
        return not self.is_lost

    @property
    def calls_max(self) -> int:
        """Calls that run at once."""
        return self._queue.calls_max

    @property
    def running(self) -> int:
        """Calls that run."""
        return len(self._queue.running)

    @property
    def queued(self) -> int:
        """Calls that wait."""
        return self._queue.queued

    def is_running(self, call_id: str) -> bool:
        """Returns whether a call runs: one that waits, or has ended, does not."""
        return call_id in self._queue.running

    def raise_calls_max(self, wanted: int, halvings: int = 0) -> None:
        """Raises the number of calls that run at once, up to what the engine can.

        Args:
            wanted: of a replica; 0 for all that the engine can.
            halvings: how often the host ran out of memory.
        """
        wanted = min(wanted or self._engine_max, self._engine_max) >> halvings
        self._wanted = max(self._wanted, wanted)
        self._limit_calls()

    def use_targets(self, targets: TokenTargets) -> None:
        """Has the host keep the token targets of the replicas whose calls it answers."""
        if targets != self._targets or not self._has_sent_targets:
            self._targets, self._has_sent_targets = targets, True
            self._send(targets)

    def add(
        self,
        call: HostCall,
        reply: Callable[[ToCaller], None],
        passed: Mapping[str, StageBytes] = NO_VALUES,
        times: ReplicaTimes | None = None,
        *,
        service: str = "",
        priority: int = 0,
    ) -> None:
        """Runs a call, lets it wait, or refuses it.

        Args:
            call: with salt and priority set.
            reply: sends a frame to the call's router.
            passed: values that the call names.
            times: what the call takes is added to them; None where the host counts it.
            service: that the call is for.
            priority: among the calls of its tenant at this service; higher first.
        """
        now_s = self._loop.time()
        deadline_s = now_s + call.budget_ms / _MS
        ordered_by = call.tenant, service, priority
        admission = self._queue.add(call.call_id, deadline_s, *ordered_by)
        if admission is CallAdmission.FULL:
            displaced = self._queue.displaced_by(*ordered_by)
            if displaced is None:
                reply(CallRefused(call.call_id, FULL))
                return
            self._queue.replace(displaced, call.call_id, deadline_s, *ordered_by)
            self._calls.pop(displaced).reply(CallRefused(displaced, FULL))
        waiting = _Waiting(call, passed, reply, deadline_s, now_s, times)
        self._calls[call.call_id] = waiting
        self._expire_at(deadline_s)
        if admission is CallAdmission.RUNS:
            self._run(waiting, call)
        elif self._targets.ttft_s:
            within_s = TOKEN_MARGIN * self._targets.ttft_s
            self._loop.call_later(within_s, self._refuse_waiting, call.call_id)
        self._changed()

    def add_credit(self, credit: Credit) -> None:
        """Lets a stream go on."""
        if credit.call_id in self._calls:
            self._send(credit)

    def take_times(self, component: str) -> CallTimes | None:
        """Returns what the host has counted of a component's calls since the last time."""
        return self._times.pop(component, None)

    def forget(self, keys: tuple[str, ...]) -> None:
        """Drops results that the host keeps."""
        if self._channel is not None:
            self._channel.defer(ForgetValues(keys))

    def abort(self, call_id: str) -> None:
        """Drops a call whose result is not wanted; its end is not reported."""
        if call_id in self._calls:
            self._remove(call_id, aborts=True)

    def close(self) -> None:
        """Disconnects."""
        if self._channel is not None:
            self._channel.close()
        if self._descriptors is not None:
            self._descriptors.close()

    def _run(self, waiting: _Waiting, call: HostCall) -> None:
        """Sends a call with its values; refuses it where these cannot pass now."""
        passed, waiting.passed = waiting.passed, NO_VALUES
        waiting.began_s, waiting.running = self._loop.time(), self.running
        if passed and isinstance(call, ComponentCall) and self._descriptors is not None:
            sent = dict(call.passed)
            try:
                for name, value in passed.items():
                    sent[name] = send_value(value, self._descriptors, call.passed[name].path)
            except ProtocolError:
                self._loop.call_soon(self._refuse, call.call_id)
                return
            call = msgspec.structs.replace(call, passed=sent)
        self._send(call)

    def _refuse(self, call_id: str) -> None:
        waiting = self._calls.get(call_id)
        if waiting is not None:
            self._remove(call_id, aborts=True)
            waiting.reply(CallRefused(call_id, FULL))

    def _refuse_waiting(self, call_id: str) -> None:
        """Refuses a call that would have its first token too late, if it still waits."""
        if call_id not in self._queue.running:
            self._refuse(call_id)

    def _limit_calls(self) -> None:
        """Has as many calls run as replicas want and the token targets allow."""
        self._queue.calls_max = max(1, min(self._wanted, self._within_targets or self._wanted))
        self._run_waiting()

    def _send(self, message: HostCall | Credit | Abort | TokenTargets) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _receive(self, message: FromCallHost) -> None:
        match message:
            case CallEnded() | CallRefused():
                self._end(message)
            case CallsWithinTargets(calls=calls):
                self._within_targets = calls
                self._limit_calls()
            case Piece():
                if (waiting := self._calls.get(message.call_id)) is not None:
                    waiting.reply(message)
            case ComponentProfiles():
                self._add_times(message.profiles)
                self.profiles = {one.component: one for one in message.profiles}
                self._changed()
            case CallHostHello():
                self.paths, self._engine_max = message.paths, message.calls_max
                self.adapters = message.adapters
                self._ready.set()

    def _end(self, message: CallEnded | CallRefused) -> None:
        """Passes on how a call ended in the host."""
        reply: CallEnded | CallRefused = message
        if isinstance(message, CallEnded) and message.value is not None:
            reply = self._with_value(message)  # also where the call is not wanted any more
        if (waiting := self._calls.get(message.call_id)) is not None:
            if isinstance(message, CallEnded):
                now_s = self._loop.time()
                waiting.count(message, now_s)
                if waiting.times is not None:  # else the host says it, where it was asked
                    took_s = waiting.began_s - waiting.arrived_s, now_s - waiting.began_s
                    reply = msgspec.structs.replace(message, times=(took_s,))
            self._remove(message.call_id)
            waiting.reply(reply)

    def _add_times(self, profiles: Iterable[ComponentProfile]) -> None:
        """Adds what calls of components have taken since the host's last report."""
        for one in profiles:
            before = self.profiles.get(one.component)
            since = one.times if before is None else one.times.since(before.times)
            self._times.setdefault(one.component, CallTimes()).add(since)

    def _with_value(self, ended: CallEnded) -> CallEnded:
        """Returns the end of a call with the value that was passed; a wrong one fails the call."""
        assert ended.value is not None
        assert self._descriptors is not None
        try:
            value = receive_value(ended.value, self._descriptors)
        except ProtocolError as error:
            body = msgspec.json.encode(OpenAiError(error.message, code="value_refused").body())
            return CallEnded(ended.call_id, FAILED, _SERVER_ERROR, body)
        return ComponentEnded(
            ended.call_id, ended.outcome, body=ended.body, times=ended.times, received=value
        )

    def _expire_at(self, deadline_s: float) -> None:
        """Has the calls expire that are late at this time; one timer is set for all calls."""
        if self._expiry is not None:
            if self._expiry.when() <= deadline_s:
                return
            self._expiry.cancel()
        self._expiry = self._loop.call_at(deadline_s, self._expire, deadline_s)

    def _expire(self, until_s: float) -> None:
        self._expiry = None
        due_s = max(until_s, self._loop.time())
        late = [call_id for call_id, one in self._calls.items() if one.deadline_s <= due_s]
        for call_id in sorted(late, key=lambda one: self._calls[one].deadline_s):
            if (waiting := self._calls.get(call_id)) is not None:
                self._remove(call_id, aborts=True)
                waiting.reply(CallEnded(call_id, DEADLINE))
        if self._calls:
            self._expire_at(min(one.deadline_s for one in self._calls.values()))

    def _remove(self, call_id: str, *, aborts: bool = False) -> None:
        del self._calls[call_id]
        if self._queue.remove(call_id) and aborts:
            self._send(Abort(call_id))
        self._run_waiting()

    def _run_waiting(self) -> None:
        while (following := self._queue.take()) is not None:
            waiting = self._calls[following]
            self._run(waiting, self._with_budget(waiting))
        self._changed()

    def _with_budget(self, waiting: _Waiting) -> HostCall:
        left_s = waiting.deadline_s - self._loop.time()
        return msgspec.structs.replace(waiting.call, budget_ms=max(0, int(left_s * _MS)))

    def _lost(self) -> None:
        self.is_lost, self._channel = True, None
        if self._descriptors is not None:
            self._descriptors.close()
        self._ready.set()
        calls, self._calls = self._calls, {}
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        for call_id, waiting in calls.items():
            self._queue.remove(call_id)
            waiting.reply(CallEnded(call_id, LOST))
        self._changed()
