"""Runs, steps and attempts as OpenTelemetry spans, each sent when it ends.

There is one trace per run; an attempt that several runs share is in the trace of each. A span's ids
are hashes of the run, step and attempt, so no state is needed: children may be sent before their
parent, and by another leader.

The control plane knows when an attempt was assigned and when it ended; its worker reports how long
loading and executing took. Their spans are placed back to back before the end (and the storing of
outputs): their lengths are measured, their positions are not.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from blake3 import blake3

from flowmesh_api.v1.enums import Phase, StepState
from flowmesh_control.observability import gen_ai
from flowmesh_core.accounting.ledger_lines import EXECUTED_OUTCOMES, Line, StepLine, VerdictLine
from flowmesh_core.machine.commands import AttemptSettled
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.state import State
from flowmesh_core.openai.gen_ai import SpanAttribute

_SUCCESSFUL = EXECUTED_OUTCOMES | {"replica", "cancelled", "drained"}


@dataclass(frozen=True, slots=True)
class Span:
    """One span.

    Attributes:
        trace: id of its trace, 128 bits.
        number: id of the span, 64 bits.
        parent: id of its parent; 0 for none.
        error: what went wrong; empty for a success.
    """

    trace: int
    number: int
    parent: int
    name: str
    start_s: float
    end_s: float
    error: str = ""
    attributes: dict[str, gen_ai.Value] = field(default_factory=dict)


class SpanListener:
    """Makes spans of ended runs, steps and attempts."""

    def __init__(self, state: State, send: Callable[[Span], None]) -> None:
        """Starts without spans.

        Args:
            state: the machine's.
            send: sends a span; must not block.
        """
        self._state = state
        self._send = send
        self._sent_steps: dict[str, set[str]] = {}

    def appended(self, uid: str, line: Line) -> None:
        """As :meth:`RunListener.appended`."""
        run = self._state.runs.get(uid)
        if run is None:
            return
        if isinstance(line, StepLine):
            self._step(run, line)
        elif isinstance(line, VerdictLine):
            self._sent_steps.pop(uid, None)
            self._send(_run_span(run, line))

    def settled(self, attempt: AttemptSettled) -> None:
        """As :meth:`RunListener.settled`."""
        for uid, path in dict.fromkeys(attempt.subscribers):
            run = self._state.runs.get(uid)
            if run is not None:
                for span in _attempt_spans(run, path, attempt):
                    self._send(span)

    def _step(self, run: Run, line: StepLine) -> None:
        sent = self._sent_steps.get(run.uid)
        if sent is None:
            # Steps that ended under an earlier leader: that leader has sent their spans.
            before = [x.step for x in run.lines if isinstance(x, StepLine) and x is not line]
            sent = self._sent_steps[run.uid] = set(before)
        if line.step not in sent:
            sent.add(line.step)
            self._send(_step_span(run, line))


def _run_span(run: Run, line: VerdictLine) -> Span:
    return Span(
        trace=trace_of(run.uid),
        number=_number(run.uid),
        parent=0,
        name=f"run {run.plan.name}",
        start_s=run.created_s,
        end_s=line.time_s,
        error=(line.message or line.reason) if line.phase == Phase.FAILED else "",
        attributes={
            **_of(run.uid),
            "flowmesh.workflow": f"{run.plan.namespace}/{run.plan.name}",
            "flowmesh.tenant": run.plan.namespace,
            "flowmesh.phase": line.phase,
            "flowmesh.paid_nanousd": run.paid_nanousd,
            "flowmesh.saved_nanousd": run.saved_nanousd,
        },
    )


def _step_span(run: Run, line: StepLine) -> Span:
    step = run.steps[line.step]
    return Span(
        trace=trace_of(run.uid),
        number=_number(run.uid, line.step),
        parent=_number(run.uid),
        name=f"step {line.step}",
        start_s=step.started_s or line.time_s,
        end_s=line.time_s,
        error=(line.message or line.reason) if line.state == StepState.FAILED else "",
        attributes={
            **_of(run.uid),
            "flowmesh.step": line.step,
            "flowmesh.engine": step.plan.engine,
            "flowmesh.state": line.state,
            "flowmesh.executed": step.executed,
            "flowmesh.hits": step.hits,
        },
    )


def _attempt_spans(run: Run, path: str, attempt: AttemptSettled) -> Iterator[Span]:
    uid = run.uid
    trace, number = trace_of(uid), _number(uid, path, attempt.attempt_id)
    begun_s, ended_s = attempt.assigned_s, attempt.ended_s
    attributes: dict[str, gen_ai.Value] = {
        **_of(uid),
        "flowmesh.step": path,
        "flowmesh.action": attempt.action_id,
        "flowmesh.attempt": attempt.attempt_id,
        "flowmesh.engine": attempt.engine,
        "flowmesh.worker": attempt.worker,
        "flowmesh.pool": attempt.pool,
        "flowmesh.outcome": attempt.outcome,
        **gen_ai.attributes(run, run.steps[path].plan, attempt),
    }
    error = "" if attempt.outcome in _SUCCESSFUL else attempt.message or attempt.outcome
    if error:
        attributes[SpanAttribute.ERROR_TYPE] = attempt.outcome
    yield Span(
        trace,
        number,
        _number(uid, path),
        f"attempt {attempt.engine}",
        begun_s,
        ended_s,
        error,
        attributes,
    )
    usage = attempt.usage
    if usage is None:
        return
    run_end_s = max(begun_s, ended_s - usage.put_s)
    run_s = max(begun_s, run_end_s - usage.run_s)
    parts = [("execute", run_s, run_end_s)] if usage.run_s else []
    if usage.load_s:
        parts.insert(0, ("load", max(begun_s, run_s - usage.load_s), run_s))
    for name, start_s, end_s in parts:
        own = _number(uid, path, attempt.attempt_id, name)
        yield Span(trace, own, number, name, start_s, end_s, attributes=_of(uid))


def trace_of(uid: str) -> int:
    """Returns the trace id of a run, a hash of its uid."""
    return int.from_bytes(blake3(uid.encode()).digest(length=16), "big")


def _number(*path: str) -> int:
    return int.from_bytes(blake3("\x00".join(path).encode()).digest(length=8), "big")


def _of(uid: str) -> dict[str, gen_ai.Value]:
    return {"flowmesh.run": uid}
