"""Prewarms engines: fetches and loads what the control plane lists, in order, before work comes.

The list is a level, not an event: a new one replaces it as a whole. An entry that failed because of
the store is retried after a minute. One that failed for another reason is not, until the list
changes it or an attempt loads its engine.

Attempts go first: no fetch from the store begins while an attempt fetches, and no engine is started
while an attempt waits for memory. An entry that waits for memory does not delay the others. A
prewarmed instance is like any other; once off the list it stays loaded until its memory is needed.

Replicas of services (``replicas``) are loaded by the same means, and with the same entry where both
want one signature. Such an entry is pinned: it comes before the others and before attempts that
wait for memory, is loaded without a connection too, and after each failure again, after 1, 2, 4 and
at most 60 s.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import FailureReport, PrewarmSpec
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.instances import Instances
from flowmesh_core.worker_agent.instructions import (
    ClearTimer,
    FetchComponent,
    PrewarmFailed,
    ReleaseComponents,
    SetTimer,
)
from flowmesh_core.worker_agent.outbox import Outbox
from flowmesh_core.worker_agent.ports import EngineFacts
from flowmesh_core.worker_agent.standby import StandbyHosts
from flowmesh_core.worker_agent.state import AgentState, Instance
from flowmesh_core.worker_agent.transitions import (
    AttemptPhase,
    InstanceState,
    PrewarmState,
    check_transition,
)

RETRY_PINNED_MAX_S = 60.0
RETRY_STORE_S = 60.0
"""Delay before an entry that failed because of the store is retried."""
TIMER = "prewarm"
_OF_THE_USER = frozenset({FailureKind.USER_CODE.value, FailureKind.BAD_INPUT.value})
"""Failures that will be the same the next time."""


@dataclass(slots=True, eq=False)
class PrewarmEntry:
    """One entry of the list.

    Attributes:
        missing: ports whose components have not been fetched, in order.
        pending: the port whose ``FetchComponent`` is unanswered; empty if there is none.
        remote: whether that component comes from the store.
        retried: whether a retry timer is set.
        failure: why it has failed; None before.
        failures: how often it has since it was last loaded; ``code_failures`` how often in a row
            because the user's code, model or adapter cannot be used.
    """

    spec: PrewarmSpec
    state: PrewarmState = PrewarmState.LISTED
    missing: list[str] = field(default_factory=list)
    pending: str = ""
    remote: bool = False
    retried: bool = False
    failure: FailureReport | None = None
    failures: int = 0
    code_failures: int = 0

    @property
    def fetches(self) -> bool:
        """Whether components of it are being fetched or stay on the disk for it."""
        return self.state in (PrewarmState.FETCHING, PrewarmState.FETCHED)

    def move(self, state: PrewarmState) -> None:
        """Changes the state.

        Raises:
            InvariantError: the table does not allow it.
        """
        check_transition(self.state, state, f"prewarm of {self.spec.engine}")
        self.state = state


class Prewarmer:
    """Follows the prewarm list as far as attempts and memory allow.

    Attributes:
        entries: by signature, pinned ones first, in the order of the list.
        pinned: what replicas of services load, by signature.
    """

    def __init__(
        self,
        state: AgentState,
        out: Outbox,
        facts: EngineFacts,
        instances: Instances,
        standby: StandbyHosts,
    ) -> None:
        self._state = state
        self._out = out
        self._facts = facts
        self._instances = instances
        self._standby = standby
        self._local: frozenset[Digest] = frozenset()
        self._listed: dict[Digest, PrewarmSpec] = {}
        self.pinned: dict[Digest, PrewarmSpec] = {}
        self.entries: dict[Digest, PrewarmEntry] = {}

    def replace(self, specs: Iterable[PrewarmSpec]) -> None:
        """Replaces the list; entries that are equal to the old ones continue.

        Of two entries of one signature the later one counts. Each list has new tokens.
        """
        self._listed = {spec.signature: spec for spec in specs}
        self._relist()

    def pin(self, specs: Iterable[PrewarmSpec]) -> None:
        """Replaces the entries of replicas of services."""
        self.pinned = {spec.signature: spec for spec in specs}
        memory = self._instances.pinned
        memory.pin(frozenset(self.pinned))
        for signature in filter(self._state.has_instance, self.pinned):
            memory.started(signature)
        self._relist()

    def _relist(self) -> None:
        before, self.entries = self.entries, {}
        # Pinned entries come first; where both lists have a signature, the replica's entry counts.
        for spec in {**self.pinned, **self._listed, **self.pinned}.values():
            known = before.get(spec.signature)
            if known is not None and _same_apart_from_token(known.spec, spec):
                known.spec = spec
                self.entries[spec.signature] = before.pop(spec.signature)
            else:
                self.entries[spec.signature] = PrewarmEntry(spec)
        for entry in before.values():
            self._release(entry, PrewarmState.DELISTED)
        for entry in map(self.entries.__getitem__, self.pinned):
            if entry.state is PrewarmState.FAILED and not entry.retried:
                entry.move(PrewarmState.LISTED)  # given up ahead of work, and pinned now
        self._instances.prewarmed = frozenset(self.entries)

    def components_changed(self, local: frozenset[Digest]) -> None:
        """Records the components that are on the local disk."""
        self._local = local

    def component_fetched(self, signature: Digest, port: str) -> None:
        """Records a component that is on the disk and stays there."""
        entry = self.entries.get(signature)
        if entry is not None and entry.pending == port:
            entry.pending = ""
            entry.missing.remove(port)
            if not entry.missing:
                entry.move(PrewarmState.FETCHED)

    def component_failed(self, signature: Digest, failure: FailureReport) -> None:
        """Fails the entry of a component that cannot be fetched."""
        entry = self.entries.get(signature)
        if entry is not None and entry.pending:
            self._fail(entry, failure)

    def retry(self, signature: str) -> None:
        """Lists an entry anew that failed because of the store."""
        entry = self.entries.get(Digest(signature))
        if entry is not None and entry.retried:
            entry.retried = False
            entry.move(PrewarmState.LISTED)

    def instance_ended(self, instance: Instance) -> None:
        """Fails the entry of an engine that failed before any attempt ran in it, or is pinned."""
        entry = self.entries.get(instance.signature)
        if entry is None or instance.isolated_for:
            return
        if instance.has_loaded:
            entry.failures = entry.code_failures = 0
        pinned = instance.signature in self.pinned
        if instance.failure is not None and (pinned or not instance.has_run):
            self._fail(entry, instance.failure)

    def advance_pinned(self) -> None:
        """Starts instances for replicas; while one lacks memory, no attempt gets any."""
        waits = False
        for signature in self.pinned:
            entry = self.entries[signature]
            self._see(entry)
            if entry.state is PrewarmState.FETCHED:
                if self._instances.open_pinned(entry.spec):
                    self._release(entry, PrewarmState.OPEN)
                elif failure := self._instances.too_large_beside_pinned(entry.spec):
                    self._fail(entry, failure)
                else:
                    waits = True
        self._instances.pinned.waits = waits

    def advance(self, *, may_start: bool) -> None:
        """Fetches and starts what can be now.

        Args:
            may_start: whether anything new may begin: the worker is connected and does not drain.
                Pinned entries may always.
        """
        for entry in self.entries.values():
            self._see(entry)
        for signature, entry in self.entries.items():
            if may_start or signature in self.pinned:
                self._advance_fetch(entry)
        if self.pinned:
            self.advance_pinned()
        if not may_start:
            return
        for entry in self.entries.values():
            if entry.state is PrewarmState.FETCHED and entry.spec.signature not in self.pinned:
                fetching = self._state.in_phase(AttemptPhase.FETCHING)
                needed = {attempt.assignment.signature for attempt in fetching}
                if self._instances.prewarm(entry.spec, needed):
                    self._release(entry, PrewarmState.OPEN)

    def _advance_fetch(self, entry: PrewarmEntry) -> None:
        if entry.state is PrewarmState.LISTED:
            self._begin(entry)
        if entry.state is PrewarmState.FETCHING and not entry.pending:
            self._fetch(entry)

    def _see(self, entry: PrewarmEntry) -> None:
        """Adjusts an entry to an instance that an attempt has started, or that is gone."""
        signature = entry.spec.signature
        if entry.state is PrewarmState.FAILED:
            instance = self._state.instances.get(signature)
            if instance is not None and instance.state is InstanceState.READY:
                self._release(entry, PrewarmState.OPEN)
        elif entry.state is PrewarmState.OPEN:
            if not self._state.has_instance(signature):
                entry.move(PrewarmState.LISTED)
        elif self._state.has_instance(signature):
            self._release(entry, PrewarmState.OPEN)

    def _begin(self, entry: PrewarmEntry) -> None:
        spec = entry.spec
        failure = self._facts.refusal(spec) or self._instances.too_large(spec)
        if failure is not None:
            self._fail(entry, failure)
            return
        self._standby.request(spec)
        entry.missing = list(spec.components)
        entry.move(PrewarmState.FETCHING if entry.missing else PrewarmState.FETCHED)

    def _fetch(self, entry: PrewarmEntry) -> None:
        """Fetches the next component: at once if it is on the disk, else when it is its turn."""
        port = entry.missing[0]
        artifact = entry.spec.components[port]
        remote = artifact.digest not in self._local
        if remote and not self._is_next(entry):
            return
        entry.pending, entry.remote = port, remote
        spec = entry.spec
        self._out.add(FetchComponent(spec.signature, port, artifact, spec.read_scopes, spec.token))

    def _is_next(self, entry: PrewarmEntry) -> bool:
        if any(e.pending and e.remote for e in self.entries.values()):
            return False
        if self._state.in_phase(AttemptPhase.FETCHING):
            return False
        wanted = (PrewarmState.LISTED, PrewarmState.FETCHING)
        return next(e for e in self.entries.values() if e.state in wanted) is entry

    def _fail(self, entry: PrewarmEntry, failure: FailureReport) -> None:
        if entry.state is PrewarmState.FAILED:
            return
        self._release(entry, PrewarmState.FAILED)
        entry.failure = failure
        if entry.spec.signature in self.pinned:
            self._retry_after(entry, min(RETRY_PINNED_MAX_S, 2.0 ** min(entry.failures, 10)))
            entry.failures += 1
            is_users = failure.kind in _OF_THE_USER
            entry.code_failures = entry.code_failures + 1 if is_users else 0
            return
        self._out.add(PrewarmFailed(entry.spec, failure))
        if failure.kind == FailureKind.STORE.value:
            self._retry_after(entry, RETRY_STORE_S)

    def _retry_after(self, entry: PrewarmEntry, delay_s: float) -> None:
        entry.retried = True
        self._out.add(SetTimer((TIMER, entry.spec.signature), self._out.now_s + delay_s))

    def _release(self, entry: PrewarmEntry, state: PrewarmState) -> None:
        if entry.fetches and entry.spec.components:
            self._out.add(ReleaseComponents(entry.spec.signature))
        if entry.retried:
            entry.retried = False
            self._out.add(ClearTimer((TIMER, entry.spec.signature)))
        entry.pending, entry.missing = "", []
        entry.move(state)


def _same_apart_from_token(one: PrewarmSpec, other: PrewarmSpec) -> bool:
    return msgspec.structs.replace(one, token=other.token) == other
