"""Revoked content: the steps of runs under way that use it fail, and no tenant pays for them.

Content that is stored again later is new content, so only runs that were accepted before the
revocation are concerned: also those that are submitted again after a restart.
"""

from collections.abc import Iterable

from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.machine import actions
from flowmesh_core.machine.events import ContentRevoked
from flowmesh_core.machine.model import Run, StepRun, Subscriber
from flowmesh_core.machine.revoked_steps import revoked_steps
from flowmesh_core.machine.state import State
from flowmesh_core.units import Digest

FAILURE = Failure(
    FailureKind.REVOKED,
    "content that it uses was revoked",
    "submit the workflow again with other content, or upload the content again",
)


def revoked(state: State, event: ContentRevoked) -> None:
    """Ends the work of all runs on revoked content; a repeated event changes nothing."""
    if event not in state.revocations:
        state.revocations.append(event)
    for run in list(state.runs.values()):
        if not run.finishing:
            _end_work(state, run, event)


def submitted(state: State, run: Run) -> None:
    """Applies earlier revocations to a run that was accepted before them."""
    for event in state.revocations:
        _end_work(state, run, event)


def is_revoked(state: State, run: Run, digest: Digest) -> bool:
    """Whether a run may not use this content any more."""
    return is_hidden(state.revocations, run.plan.namespace, run.created_s, digest)


def revoked_paths(run: Run, event: ContentRevoked) -> list[str]:
    """Returns the paths of the steps of a run that used or made the content."""
    if not _concerns(event, run):
        return []
    outputs = {path: step.outputs for path, step in run.steps.items()}
    return revoked_steps(run.plan, run.artifacts, outputs, event.identities)


def is_hidden(
    events: Iterable[ContentRevoked], namespace: str, created_s: float, digest: Digest
) -> bool:
    """Whether a run of this namespace that was accepted then may not use this content any more."""
    return any(
        digest in e.identities and e.namespace in ("", namespace) and created_s <= e.revoked_s
        for e in events
    )


def _concerns(event: ContentRevoked, run: Run) -> bool:
    of_namespace = event.namespace in ("", run.plan.namespace)
    return of_namespace and run.created_s <= event.revoked_s


def _end_work(state: State, run: Run, event: ContentRevoked) -> None:
    paths = revoked_paths(run, event)
    if not paths:
        return
    if run.failure is None:
        run.failed_step, run.failure = paths[0], FAILURE
    for path in paths:
        step = run.steps[path]
        if not step.ended and step.failure is None:
            _leave_actions(state, run, step)
            step.failure = FAILURE
            state.touch(run, path)
    state.changed(run)
    state.touched[run.uid] = None


def _leave_actions(state: State, run: Run, step: StepRun) -> None:
    """Ends the step's subscriptions without making its run pay for what still runs."""
    for number, part in step.parts.items():
        action = None if part.key is None else state.actions.get(part.key)
        if action is not None and part.result is None:
            actions.leave_unpaid(state, action, Subscriber(run.uid, step.plan.path, number))
