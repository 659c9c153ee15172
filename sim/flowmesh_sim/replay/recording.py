"""Reads and writes trace files: one JSON document per line, with names replaced by numbers.

``docs/simulator.md`` describes the lines. Runs, tenants, steps, actions, signatures, attempts,
workers and scopes are named ``r1``, ``t1`` ... in order of appearance: equal names stay equal
within a file, and the originals cannot be recovered. Times count from the first run's submission.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from flowmesh_api.v1.enums import Phase
from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.trace import AttemptRecord, EngineRecord, PartRecord, RecordedRun, StepRecord
from flowmesh_core.decoding import decode
from flowmesh_core.errors import FlowMeshError, SpecError

VERSION = 1


class Head(msgspec.Struct, frozen=True):
    """The first line of a file."""

    version: int
    runs: int


_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(kind)
    for name, kind in {
        "trace": Head,
        "engine": EngineRecord,
        "run": RecordedRun,
        "step": StepRecord,
        "part": PartRecord,
        "attempt": AttemptRecord,
    }.items()
}
_decoder = msgspec.json.Decoder()
_ENDED = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})


@dataclass(frozen=True, slots=True)
class Recording:
    """Recorded runs in order of submission; the first submission is second 0."""

    runs: tuple[RecordedRun, ...]


class _Names:
    """Replaces names by numbers."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, letter: str, name: str) -> str:
        if not name:
            return ""
        found = self._by_name.get((letter, name))
        if found is None:
            self._counts[letter] = self._counts.get(letter, 0) + 1
            found = self._by_name[letter, name] = f"{letter}{self._counts[letter]}"
        return found


def anonymous(runs: Iterable[RecordedRun]) -> Recording:
    """Returns a recording with names replaced and times relative to the first run.

    Raises:
        FlowMeshError: there are no runs, or one has not ended.
    """
    ordered = sorted(runs, key=lambda r: (r.created_s, r.run))
    if not ordered:
        raise FlowMeshError("there is no run to trace", where="trace")
    for run in ordered:
        if run.phase not in _ENDED:
            raise FlowMeshError(
                f"run {run.run} has not ended",
                where="trace",
                remedy="wait for it with `fmesh watch`, then trace it",
            )
    names, start_s = _Names(), ordered[0].created_s
    return Recording(tuple(_renamed(run, names, start_s) for run in ordered))


def _renamed(run: RecordedRun, names: _Names, start_s: float) -> RecordedRun:
    def step(path: str) -> str:
        return names("s", path)

    return replace(
        run,
        run=names("r", run.run),
        tenant=names("t", run.tenant),
        publish=names("c", run.publish),
        lookup=tuple(names("c", s) for s in run.lookup),
        private=names("c", run.private),
        created_s=run.created_s - start_s,
        ended_s=run.ended_s - start_s,
        steps=tuple(
            replace(
                s,
                step=step(s.step),
                after=tuple(replace(a, step=step(a.step)) for a in s.after),
            )
            for s in run.steps
        ),
        parts=tuple(
            replace(
                p,
                step=step(p.step),
                action=names("a", p.action),
                producer=names("r", p.producer),
            )
            for p in run.parts
        ),
        attempts=tuple(
            replace(
                a,
                step=step(a.step),
                action=names("a", a.action),
                attempt=names("e", a.attempt),
                worker=names("w", a.worker),
                signature=names("g", a.signature),
                ended_s=a.ended_s - start_s,
                assigned_s=a.assigned_s - start_s if a.signature else 0.0,
            )
            for a in run.attempts
        ),
    )


def write_recording(recording: Recording) -> bytes:
    """Returns the lines of the file."""
    lines = [_line("trace", Head(VERSION, len(recording.runs)))]
    engines = {(e.name, e.contract, e.implementation): e for r in recording.runs for e in r.engines}
    lines += [_line("engine", e) for e in engines.values()]
    for run in recording.runs:
        lines.append(_line("run", replace(run, engines=(), steps=(), parts=(), attempts=())))
        lines += [_line("step", s) for s in run.steps]
        lines += [_line("part", p) for p in run.parts]
        lines += [_line("attempt", a) for a in run.attempts]
    return b"".join(lines)


def _line(kind: str, record: Any) -> bytes:
    return msgspec.json.encode({"kind": kind, **msgspec.to_builtins(record)}) + b"\n"


def read_recording(path: Path) -> Recording:
    """Reads a file.

    Raises:
        SpecError: the file is not a trace; names the line.
    """
    try:
        data = path.read_bytes()
    except OSError as e:
        raise SpecError([Problem(str(path), f"cannot be read: {e.strerror}")]) from e
    found: list[tuple[str, Any]] = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            kind = str(decode(_decoder, line)["kind"])
            found.append((kind, decode(_DECODERS[kind], line)))
        except (msgspec.DecodeError, KeyError, TypeError) as e:
            reason = f"line {number} is not a line of a trace: {e}"
            raise SpecError([Problem(str(path), reason)]) from e
    if not found or not isinstance(found[0][1], Head) or found[0][1].version != VERSION:
        reason = f"is not a trace of version {VERSION}; `fmesh trace RUN --out FILE` writes one"
        raise SpecError([Problem(str(path), reason)])
    return Recording(tuple(_gathered(found)))


def _gathered(found: list[tuple[str, Any]]) -> list[RecordedRun]:
    engines = tuple(record for kind, record in found if kind == "engine")
    runs: list[tuple[RecordedRun, dict[str, list[Any]]]] = []
    for kind, record in found:
        if kind == "run":
            runs.append((record, {"step": [], "part": [], "attempt": []}))
        elif runs and kind in runs[-1][1]:
            runs[-1][1][kind].append(record)
    return [
        replace(run, engines=engines, **{f"{k}s": tuple(v) for k, v in rest.items()})
        for run, rest in runs
    ]
