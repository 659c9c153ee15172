"""Renders a step's explanation: what it waits for, what it reused, what ran for it."""

from collections import Counter
from typing import Any

from flowmesh_api.v1.enums import HitKind
from flowmesh_api.v1.why import AttemptLine, HitLine, Why, WhyInput
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views import formatting
from flowmesh_cli.views.steps import state_word

_SHOWN = 20
_NUMBERS = ("ran s", "loaded s", "paid")
_HOW = {
    HitKind.PUBLISHED: "their results were already published",
    HitKind.IN_FLIGHT: "another run was executing them at the same time",
    HitKind.STEP_LEVEL: "the result of the whole step was already published",
}


def show_story(terminal: Terminal, story: Why, names: dict[str, str]) -> None:
    """Writes the explanation; ``names`` are titles of runs by uid."""
    step = story.step
    reason = step.message or step.reason
    reason = f": {reason}" if reason and reason.lower() != step.state.lower() else ""
    terminal.text(f"{step.path} ({step.engine}) is {state_word(step)}{reason}")
    if story.waits_for:
        terminal.text(f"  it waits for {', '.join(story.waits_for)}")
    for given in story.inputs:
        terminal.text(f"  {_input(given)}")
    for rejection in story.rejections:
        terminal.text(
            f"  not placed ({rejection['cause']}, {rejection['count']}): {rejection['detail']}"
        )
    _show_scopes(terminal, story)
    _show_hits(terminal, story.hits, names)
    _show_parts(terminal, story)
    show_attempts(terminal, story.attempts)


def _input(given: WhyInput) -> str:
    got = ", ".join(given.given) or given.instead or "not known yet"
    skipped = "; ".join(given.skipped)
    return f"{given.port}: {got} ({skipped})" if skipped else f"{given.port}: {got}"


def _show_scopes(terminal: Terminal, story: Why) -> None:
    scopes = story.scopes
    if scopes:
        policy = f" by policy {scopes['policy']}" if scopes.get("policy") else ", without a policy"
        terminal.text(
            f"  it publishes for {formatting.scope(scopes['publish'])} and searches results of "
            f"{', '.join(map(formatting.scope, scopes['lookup']))}{policy}"
        )


def _show_hits(terminal: Terminal, hits: tuple[HitLine, ...], names: dict[str, str]) -> None:
    groups: Counter[tuple[str, str]] = Counter((h.hit, h.producer) for h in hits)
    for (kind, producer), number in groups.items():
        saved = sum(h.saved_nanousd for h in hits if (h.hit, h.producer) == (kind, producer))
        by = f", made by {names.get(producer, producer)}" if producer else ""
        terminal.text(
            f"  {formatting.count(number, 'action')} not run: {_HOW[HitKind(kind)]}{by}; "
            f"saved {formatting.usd(saved)}"
        )


def _show_parts(terminal: Terminal, story: Why) -> None:
    for part in story.parts[:_SHOWN]:
        if part.state in ("done", ""):
            continue
        placed_on = ", ".join(_attempt_place(a, part.state) for a in part.attempts)
        others = len(part.subscribers) - 1
        facts = [
            placed_on,
            f"wanted by {formatting.count(others, 'other run')}" if others > 0 else "",
        ]
        facts += [f"failed as {kind} {n} times" for kind, n in part.failures.items()]
        facts += [f"lost {part.losses} times" if part.losses else "", part.last_failure]
        detail = "; ".join(fact for fact in facts if fact)
        terminal.text(
            f"  action {part.part} ({part.action_id[:12]}) {part.state} {detail}".rstrip()
        )
    more = story.more_parts + max(0, len(story.parts) - _SHOWN)
    if more:
        terminal.text(f"  and {formatting.count(more, 'action')} more")


def _attempt_place(attempt: dict[str, Any], state: str) -> str:
    """Describes where an attempt is, with its phase where that differs from the state."""
    phase, worker = attempt["phase"], attempt["worker"]
    silent_s = attempt.get("silentS", 0.0)
    silent = f" (its engine host has shown no heartbeat for {silent_s:.0f} s)" if silent_s else ""
    return f"on {worker}{silent}" if phase in ("", state) else f"({phase}) on {worker}{silent}"


def show_attempts(terminal: Terminal, attempts: tuple[AttemptLine, ...]) -> None:
    """Writes a line per attempt."""
    if not attempts:
        return
    rows = [
        [
            formatting.clock(a.time_s),
            a.worker,
            a.outcome,
            f"{a.run_s:.2f}",
            f"{a.load_s:.1f}",
            formatting.exact_usd(a.share_nanousd),
            f"of {formatting.exact_usd(a.bill_nanousd)} by {a.sharers}" if a.sharers > 1 else "",
            a.message,
        ]
        for a in attempts[:_SHOWN]
    ]
    headings = ["ended", "worker", "outcome", "ran s", "loaded s", "paid", "share", "message"]
    terminal.table(headings, rows, right=_NUMBERS, optional=_NUMBERS[1::-1])
    if len(attempts) > _SHOWN:
        terminal.text(f"  and {formatting.count(len(attempts) - _SHOWN, 'attempt')} more")
