"""What an artifact was made from, or what was made from it, as a tree."""

from collections import defaultdict

from flowmesh_cli import figures
from flowmesh_cli.terminal import Terminal
from flowmesh_control.lineage import Direction, Walk
from flowmesh_core.lineage import Derivation

_DIGITS = 12


def show_walk(terminal: Terminal, walk: Walk, depth: int) -> None:
    """Writes the tree; what was shown once is not followed again."""
    up = walk.direction == Direction.UP
    at: defaultdict[str, list[Derivation]] = defaultdict(list)
    for derivation in walk.derivations:
        for digest in set(derivation.outputs.values()) if up else _inputs(derivation):
            at[digest].append(derivation)
    terminal.text(f"{walk.digest[:_DIGITS]} {'was made' if up else 'was used'}")
    if not walk.derivations:
        terminal.text("  by no run that is known" if up else "  by no run that has ended")
    seen: set[tuple[str, str]] = set()
    todo = [(1, derivation) for derivation in reversed(at[walk.digest])]
    while todo:
        level, derivation = todo.pop()
        known = (derivation.uid, derivation.step) in seen
        seen.add((derivation.uid, derivation.step))
        terminal.text("  " * level + _line(derivation, up) + (" (see above)" if known else ""))
        if known or level >= depth:
            continue
        onward = _inputs(derivation) if up else set(derivation.outputs.values())
        following = [d for digest in sorted(onward) for d in at.get(digest, ())]
        todo += [(level + 1, d) for d in reversed(following)]
    if walk.cut:
        terminal.text("  and more, which was not followed")


def _line(derivation: Derivation, up: bool) -> str:
    ports = ", ".join(f"{port} {d[:_DIGITS]}" for port, d in derivation.outputs.items())
    inputs = ", ".join(
        f"{port} {', '.join(d[:_DIGITS] for d in digests)}"
        for port, digests in derivation.inputs.items()
    )
    hits = f", {figures.count(derivation.hits, 'hit')}" if derivation.hits else ""
    by = f"{derivation.namespace}/{derivation.run} {derivation.step} ({derivation.engine}{hits})"
    if up:
        return (
            f"by {by}"
            + (f" from {inputs}" if inputs else "")
            + f" at {figures.date(derivation.time_s)}"
        )
    return f"by {by} for {ports} at {figures.date(derivation.time_s)}"


def _inputs(derivation: Derivation) -> set[str]:
    return {d for digests in derivation.inputs.values() for d in digests}
