"""The connection of a virtual worker: sends what there is at the end of an instant."""

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.golden.agent.format import EffectKind, Message, seconds
from tests.golden.agent.virtual.world import World

from flowmesh_core.protocol.messages import (
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    Component,
    Desired,
    EngineInstanceState,
)
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent.machine import WorkerAgent

if TYPE_CHECKING:
    from tests.golden.agent.virtual.timeline import Call

_SYNC_S = 1.0


class Connection:
    """A connection to a control plane that acknowledges ends."""

    def __init__(
        self,
        world: World,
        agent: WorkerAgent,
        post: Callable[[e.Event], None],
        components: Callable[[], tuple[Component, ...]],
    ) -> None:
        self._world = world
        self._agent = agent
        self._post = post
        self._components = components
        self._connected = False
        self._due = False
        self._timer: Call | None = None
        self._beat: Call | None = None
        self._on_goodbye: Callable[[], None] | None = None
        self._seq = 0
        self._last = Message()

    def connect(self) -> None:
        """Sends a Hello and is welcomed."""
        full = self._agent.full_report(self._world.time.now_s)
        message = Message(
            progress=_progress(full.attempts),
            ended=_ids(full.ended),
            checkpoints=_checkpoints(full.checkpoints),
            instances=_instances(full.instances),
            components=_tiers(self._components()),
            draining=full.draining,
        )
        self._last = message
        self._report(EffectKind.HELLO, message)
        self._connected = True
        self._beat_later()
        self._post(e.Connected())

    def disconnect(self) -> None:
        """The connection breaks."""
        self._connected = False
        if self._beat is not None:
            self._beat.cancel()
        self._post(e.Disconnected())

    def follow(self, desired: Desired) -> None:
        """The control plane sends something; it is lost without a connection."""
        if self._connected:
            self._post(e.DesiredReceived(desired))

    def report_at(self, at_s: float) -> None:
        """Sends the next report no later than this."""
        if self._timer is not None:
            self._timer.cancel()
        if at_s <= self._world.time.now_s:
            self._is_due()
        else:
            self._timer = self._world.time.at(at_s, self._is_due)

    def close(self, within_s: float, then: Callable[[], None]) -> None:
        """Says goodbye, and calls back once it has, or after so long."""
        self._on_goodbye = then
        self._due = True
        self._world.time.after(within_s, then)

    def end_instant(self) -> bool:
        """Sends what there is; returns whether there was anything."""
        if not (self._connected and self._due):
            return False
        self._due = False
        self._seq += 1
        sync = self._agent.next_sync(self._seq, self._world.time.now_s, self._components)
        closing = self._on_goodbye is not None
        last = self._last
        instances = last.instances if sync.instances is None else _instances(sync.instances)
        components = last.components if sync.components is None else _tiers(sync.components)
        self._last = Message(instances=instances, components=components, draining=sync.draining)
        message = Message(
            progress=_progress(sync.progress),
            ended=_ids(sync.ended),
            checkpoints=_checkpoints(sync.checkpoints),
            instances_changed=sync.instances is not None,
            instances=None if instances == last.instances else instances,
            components_changed=sync.components is not None,
            components=None if components == last.components else components,
            logs=tuple((line.attempt_id, line.text) for line in sync.logs),
            draining=sync.draining,
            goodbye=closing,
        )
        if message != Message(draining=last.draining):
            self._report(EffectKind.SYNC, message)
        if self._on_goodbye is not None:
            self.disconnect()
            self._world.time.soon(self._on_goodbye)
        return True

    def _report(self, kind: EffectKind, message: Message) -> None:
        self._world.add(kind, message)
        after_s = self._world.scenario.acknowledge_after_s
        if message.ended and after_s is not None:
            desired = Desired(epoch=1, seq=1, acknowledged=message.ended)
            self._world.time.after(after_s, partial(self.follow, desired))

    def _is_due(self) -> None:
        self._due = True

    def _beat_later(self) -> None:
        self._beat = self._world.time.after(_SYNC_S, self._beats)

    def _beats(self) -> None:
        self._due = True
        self._beat_later()


def _ids(ends: Collection[AttemptEnd]) -> tuple[str, ...]:
    return tuple(sorted(end.attempt_id for end in ends))


def _progress(reports: Collection[AttemptProgress]) -> dict[str, tuple[str, float]]:
    return {p.attempt_id: (p.phase, p.done) for p in _by_attempt(reports)}


def _checkpoints(reports: Collection[Checkpoint]) -> dict[str, float]:
    return {c.attempt_id: -1.0 if c.spoiled else c.done for c in _by_attempt(reports)}


def _by_attempt(reports: Collection[Any]) -> list[Any]:
    return sorted(reports, key=lambda report: report.attempt_id)


def _tiers(states: Collection[Component]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((c.digest, c.tier) for c in states))


def _instances(
    states: Collection[EngineInstanceState],
) -> tuple[tuple[str, str, int, int, float], ...]:
    return tuple(
        sorted((s.signature, s.state, s.capacity, s.memory_mib, seconds(s.load_s)) for s in states)
    )
