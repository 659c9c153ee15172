"""A new leader in the middle of a golden, recovered as by ``flowmesh_control.runs.recovery``.

What is durable then is what the golden has published and appended to ledgers so far. The former
attempts are gone; whatever runs from then on ends at once and well.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from tests.flowmesh_core.machine.world import CONTRACTS, World, dataset, metrics, outputs_of
from tests.golden.kinds import START, Start
from tests.golden.recording import Line
from tests.golden.replaying import Replay, machine_of, start_of

from flowmesh_core.accounting import ledger_lines
from flowmesh_core.catalog.contract import PortKind
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine import commands as c
from flowmesh_core.machine import events as e
from flowmesh_core.protocol.messages import Assignment, WorkerShape
from flowmesh_core.protocol.results import ActionResult, Artifact
from flowmesh_core.sharing.scopes import AUDIT_SCOPE

WINDOW_S = 3.0
ROUNDS = 2000
_OF_WORLDS = frozenset(contract.name for contract in CONTRACTS)


@dataclass
class Durable:
    """The durable state after a crash, and the workers that reconnect.

    Attributes:
        runs: without a verdict, as they are pinned; ``lines`` of their ledgers.
        published: by scope and action.
    """

    start: Start | None = None
    now_s: float = 0.0
    runs: dict[str, e.Submitted] = field(default_factory=dict)
    lines: dict[str, list[ledger_lines.Line]] = field(default_factory=dict)
    published: dict[tuple[str, str], ActionResult] = field(default_factory=dict)
    workers: dict[str, WorkerShape] = field(default_factory=dict)

    def apply(self, event: e.Event, commands: list[c.Command]) -> None:
        """Records the durable effects of an event and its commands."""
        match event:
            case e.Submitted():
                self._submitted(event)
            case e.Repinned():
                self._submitted(event.run)
            case e.Published():
                self.published[event.key.scope, event.key.action_id] = event.result
            case e.WorkerConnected():
                self.workers[event.hello.shape.name] = event.hello.shape
        for command in commands:
            if isinstance(command, c.AppendLedgerLine):
                self.lines[command.uid].append(command.line)
            elif isinstance(command, c.FinalizeRun):
                del self.runs[command.uid]

    def _submitted(self, event: e.Submitted) -> None:
        self.runs[event.uid] = event
        self.lines[event.uid] = list(event.restored)


def middle_of(lines: list[Line]) -> Durable:
    """Returns the durable state when half of all ledger lines are appended."""
    appended = sum(_appends(line) for line in lines)
    replay, found, left = Replay(lines), Durable(), appended / 2
    for line in lines:
        applied = replay.step()
        if applied is None:
            assert line.kind == START
            found.start, found.runs, found.workers = start_of(line), {}, {}
            continue
        found.now_s = line.t
        found.apply(*applied)
        left -= _appends(line)
        if left <= 0 and found.runs:
            break
    return found


def verdicts_of(lines: list[Line]) -> dict[str, str]:
    """Returns the final phases by run."""
    found = {}
    for line in lines:
        for kind, command in msgspec.json.decode(line.commands):
            if kind == "append" and command["line"]["type"] == "verdict":
                found[command["uid"]] = command["line"]["phase"]
    return found


def _appends(line: Line) -> int:
    return sum(kind == "append" for kind, _ in msgspec.json.decode(line.commands))


class Successor(World):
    """The world of the next leader, with engines of every catalog."""

    @classmethod
    def of(cls, found: Durable) -> "Successor":
        """Recovers the unfinished runs; the workers have lost their attempts."""
        assert found.start is not None
        start = replace(
            found.start,
            epoch=found.start.epoch + 1,
            recovering_until_s=found.now_s + WINDOW_S,
            billed={},
            unsettled={},
        )
        world = cls(
            settings=start.settings,
            now=found.now_s,
            epoch=start.epoch,
            cache=dict(found.published),
        )
        world.machine = machine_of(start)
        for uid, run in found.runs.items():
            restored = tuple(found.lines[uid])
            marks = [la for la in restored if isinstance(la, ledger_lines.CheckpointLine)]
            world.left.update({la.digest: la.action_id for la in marks})
            world.apply(msgspec.structs.replace(run, restored=restored))
            world.apply(e.Amended(uid, {"suspend": False}))
        for name, shape in found.workers.items():
            changes = msgspec.structs.asdict(shape)
            del changes["name"]
            world.join(name, **changes)
        world.tick(WINDOW_S + 0.1)
        return world

    def finish(self, attempt_id: str, **changes: Any) -> None:
        """Ends an attempt with outputs for every port of its engine."""
        assignment = self.held[self.worker_of(attempt_id)][attempt_id]
        super().finish(attempt_id, **{"outputs": self._outputs(assignment), **changes})

    def check(self) -> None:
        """Not after every event: a golden has thousands, and its world was checked."""

    def executed_again(self, found: Durable) -> list[str]:
        """Attempts at what was published before; an audit makes its actions again on purpose."""
        keys = {key for key in found.published if not key[0].startswith(AUDIT_SCOPE)}
        return [a for a in self.executed if tuple(a.split("/")[:2]) in keys]

    def _outputs(self, assignment: Assignment) -> dict[str, Artifact]:
        if assignment.engine in _OF_WORLDS:
            return outputs_of(assignment)
        contract = self.machine.state.catalog.pinned(
            assignment.engine, assignment.contract, assignment.implementation
        )
        assert contract is not None
        rows = assignment.inputs.get(contract.row_wise) if contract.row_wise else None
        manifest = rows.artifact.manifest if rows is not None else None
        chunks = len(manifest.chunks) if manifest is not None else 1
        found = {}
        for port in contract.outputs:
            name = f"{assignment.action_id} {port.name}"
            if port.kind is PortKind.DATASET:
                found[port.name] = dataset(*(f"{name} {n}" for n in range(chunks)))
            elif port.kind is PortKind.METRICS:
                found[port.name] = metrics(count=1)
            else:
                digest = digest_bytes(name.encode())
                found[port.name] = Artifact(port.kind, digest, digest, 10)
        return found
