"""Renders an artifact's lineage as a tree, and the origins of a data set's rows."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from flowmesh_api.v1.lineage import (
    ArtifactInfo,
    ChunkOrigin,
    Derivation,
    Direction,
    LineageWalk,
    RowOrigins,
)
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views import formatting

_DIGITS = 12
_OTHERS = 4
_PARAM_CHARS = 60
_CHUNKS = 200
_WAYS = 1
_END = {True: "; uploaded, or made by an unknown run", False: "; used by no run that has ended"}

Line = tuple[int, str, str | None]
"""Indentation, text, and the artifact whose derivations follow."""


def show_walk(terminal: Terminal, walk: LineageWalk, *, every_way: bool = False) -> None:
    """Writes the tree; the derivations of an artifact are written once, then referred to.

    Args:
        terminal: where to write.
        walk: the derivations.
        every_way: whether to write every different derivation of equal bytes, not only the first.
    """
    up = walk.direction == Direction.UP
    at: defaultdict[str, list[Derivation]] = defaultdict(list)
    about: dict[str, ArtifactInfo] = {}
    for derivation in walk.derivations:
        about.update(derivation.about)
        for near in set(derivation.outputs.values()) if up else _inputs(derivation):
            at[near].append(derivation)
    todo: list[Line] = [(0, _artifact(walk.digest, about), walk.digest)]
    written: set[str] = set()
    while todo:
        level, text, digest = todo.pop()
        if digest is None:
            terminal.text("  " * level + text)
            continue
        story = at.get(digest, [])
        repeated = digest in written and bool(story)
        written.add(digest)
        ending = "; see above" if repeated else ("" if story or walk.cut else _END[up])
        terminal.text("  " * level + text + ending)
        if not repeated:
            ways = _WAYS if up and not every_way else len(story)
            lines = _story(story, level + 1, about, up=up, ways=ways)
            if walk.others.get(digest):
                lines.append((level + 1, _also(walk.others[digest], "other run"), None))
            todo += reversed(lines)
    if walk.cut:
        terminal.text("and more beyond --depth")


def _story(
    derivations: Iterable[Derivation],
    level: int,
    about: dict[str, ArtifactInfo],
    *,
    up: bool,
    ways: int,
) -> list[Line]:
    """Returns the lines for what made an artifact, or used it; equal work is written once.

    Of different work that gave equal bytes, the first ``ways`` are written and the rest is counted.
    Derivations are in the walk's order: the run that executed the work before those that reused it.
    """
    groups: dict[bytes, list[Derivation]] = {}
    for d in derivations:
        groups.setdefault(_work(d), []).append(d)
    stories = list(groups.values())
    lines: list[Line] = []
    for first, *others in stories[:ways]:
        title = f"by {first.engine} {first.contract}.{first.implementation}"
        lines.append((level, f"{title} in {_where(first)}", None))
        lines += [(level + 2, text, None) for text in _details(first)]
        if others:
            named = ", ".join(_where(d) for d in others[:_OTHERS])
            more = f" and {len(others) - _OTHERS} more" if len(others) > _OTHERS else ""
            lines.append((level + 2, f"also in {named}{more}", None))
        lines += [
            (level + 1, f"{'from' if up else 'gave'} {port}: {_artifact(digest, about)}", digest)
            for port, digest in (_given(first) if up else sorted(first.outputs.items()))
        ]
    written = {d.uid for group in stories[:ways] for d in group}
    remaining = [d for group in stories[ways:] for d in group]
    if remaining:
        runs = {d.uid for d in remaining} - written
        makers = (len(runs), "other run") if runs else (len(remaining), "other step")
        lines.append((level, _also(*makers), None))
    return lines


def _also(number: int, noun: str) -> str:
    return f"also made by {formatting.count(number, noun)}; --all-runs shows how"


def _work(derivation: Derivation) -> bytes:
    d = derivation
    return msgspec.msgpack.encode(
        (d.engine, d.contract, d.implementation, d.params, d.fields, d.inputs, d.outputs)
    )


def _given(derivation: Derivation) -> list[tuple[str, str]]:
    return [(port, d) for port, digests in sorted(derivation.inputs.items()) for d in digests]


def _where(d: Derivation) -> str:
    hits = f", {formatting.count(d.hits, 'hit')}" if d.hits else ""
    return f"{d.namespace}/{d.run} {d.step} ({d.uid}{hits}, {formatting.date(d.time_s)})"


def _details(d: Derivation) -> list[str]:
    found = []
    params = {**d.params, **d.fields}
    if params:
        found.append("with " + ", ".join(f"{k}={_value(v)}" for k, v in params.items()))
    for maker in d.makers[:_OTHERS]:
        libraries = ", ".join(f"{k} {v}" for k, v in sorted(maker.libraries.items()))
        place = f"{maker.worker} ({maker.device_class})"
        actions = f"{formatting.count(maker.actions, 'action')} on {place}"
        found.append(f"{actions}{': ' + libraries if libraries else ''}")
    if d.row_port:
        found.append(f"row-wise: chunk k of {d.row_output} is made of chunk k of {d.row_port}")
    return found


def _value(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _PARAM_CHARS else f"{text[: _PARAM_CHARS - 1]}…"


def _artifact(digest: str, about: dict[str, ArtifactInfo]) -> str:
    known = about.get(digest)
    if known is None:
        return digest[:_DIGITS]
    rows = f", {formatting.count(known.rows, 'row')}" if known.kind == "dataset" else ""
    return f"{known.kind} {digest[:_DIGITS]}{rows}, {formatting.size(known.size_bytes)}"


def _inputs(derivation: Derivation) -> set[str]:
    return {d for digests in derivation.inputs.values() for d in digests}


def show_origins(terminal: Terminal, found: RowOrigins) -> None:
    """Writes a line per chunk: its rows, and the rows that they came from."""
    for path in found.chunks[:_CHUNKS]:
        terminal.text(" ".join([_rows(path[0], first=True), *map(_rows, path[1:])]))
    if len(found.chunks) > _CHUNKS:
        terminal.text(f"and {len(found.chunks) - _CHUNKS} more chunks; --json has them all")
    for step, port, digests in found.whole:
        data = f"data set{'' if len(digests) == 1 else 's'} {_digests(digests)}"
        terminal.text(f"step {step} made all of it from every row of {data} (input {port})")
    if not found.complete:
        terminal.text("a data set in between is no longer in the store: the origins end there")


def _rows(origin: ChunkOrigin, *, first: bool = False) -> str:
    last = origin.first_row + origin.rows - 1
    rows = f"rows {origin.first_row}-{last}" if origin.rows else "no rows"
    place = f"{rows} (chunk {origin.chunk}) of {origin.digest[:_DIGITS]}"
    return place if first else f"<- {origin.step}: {place}"


def _digests(digests: Sequence[str]) -> str:
    return ", ".join(d[:_DIGITS] for d in digests)
